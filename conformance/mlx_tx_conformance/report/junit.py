"""The report as JUnit XML: a test suite for each target, a test case for each case."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from ..runner.result import Run
from .table import column_title, header_line, remarks

# Control characters that XML 1.0 has no way to write; a crashed target's last words may hold any.
FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(run: Run) -> str:
    """Failures as failures, errors as errors, unsupported and waived as skipped."""
    top = ET.Element("testsuites", name="mlx-tx conformance")
    for column in run.columns:
        rows = [row for row in run.rows if (row["target"], row["device"]) == column]
        verdicts = [row["verdict"] for row in rows]
        suite = ET.SubElement(
            top,
            "testsuite",
            name=_clean(column_title(column)),
            tests=str(len(rows)),
            failures=str(verdicts.count("fail")),
            errors=str(verdicts.count("error")),
            skipped=str(verdicts.count("unsupported") + verdicts.count("waived")),
            time=f"{sum(row['seconds'] for row in rows):.3f}",
        )
        properties = ET.SubElement(suite, "properties")
        for header in run.headers:
            ET.SubElement(properties, "property", name="header", value=_clean(header_line(header)))
        for remark in remarks(run):
            ET.SubElement(properties, "property", name="remark", value=remark)
        for row in rows:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=_clean(f"{row['target']}.{row['clause']}"),
                name=_clean(row["case"]),
                time=f"{row['seconds']:.3f}",
            )
            message = _clean(row["message"])
            if row["verdict"] == "fail":
                ET.SubElement(case, "failure", message=message)
            elif row["verdict"] == "error":
                ET.SubElement(case, "error", message=message)
            elif row["verdict"] in ("unsupported", "waived"):
                ET.SubElement(case, "skipped", message=f"{row['verdict']}: {message}")
            elif row["verdict"] == "weak":
                ET.SubElement(case, "system-out").text = f"weak: {message}"
    for note in run.truncated:
        suite = ET.SubElement(top, "testsuite", name="journal", tests="1", errors="1", failures="0", skipped="0")
        case = ET.SubElement(suite, "testcase", classname="journal", name="complete")
        ET.SubElement(case, "error", message=_clean(f"the run is incomplete: {note}"))
    for name in ("tests", "failures", "errors", "skipped"):
        top.set(name, str(sum(int(suite.get(name, "0")) for suite in top)))
    top.set("time", f"{sum(row['seconds'] for row in run.rows):.3f}")
    ET.indent(top)
    return ET.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    return FORBIDDEN.sub("�", text)
