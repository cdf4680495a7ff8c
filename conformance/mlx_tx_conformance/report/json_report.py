"""The report as one JSON object: ``header``, ``summary``, ``results``. Its schema is ``schemas/report.json``."""

from __future__ import annotations

import json
from typing import Any

from ..runner.result import Run
from .table import remarks


def as_object(run: Run) -> dict[str, Any]:
    """The report as Python objects. The header of a merged run is that of its first part, with all under ``runs``."""
    headers = [
        {name: value for name, value in header.items() if name not in ("kind", "format")} for header in run.headers
    ]
    header: dict[str, Any] = dict(headers[0]) if headers else {}
    if len(headers) > 1:
        header["runs"] = headers
    header["remarks"] = remarks(run)
    header["truncated"] = list(run.truncated)
    header["seconds"] = round(run.seconds, 3)
    results = [{name: value for name, value in row.items() if name not in ("kind", "order")} for row in run.rows]
    return {"header": header, "summary": run.counts, "results": results}


def render(run: Run) -> str:
    """The object as text."""
    return json.dumps(as_object(run), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
