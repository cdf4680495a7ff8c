"""What the strict check says: findings, and the report that collects them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .rules import RULES

Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Finding:
    """One departure from a rule.

    ``rule`` is a key of ``RULES``; ``line`` counts from 1 in ``where`` (a file, or ``source`` / ``header`` of a
    kernel; 0 when the finding has no line); ``hint`` says what to write instead. ``instance`` names the template
    instance and argument sizes that show it, empty when every instance does.
    """

    where: str
    line: int
    rule: str
    message: str
    hint: str = ""
    severity: Severity = "error"
    instance: str = ""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"[Finding] rule must be one of RULES; got {self.rule!r}")

    def pretty(self) -> str:
        """The finding on one line, its hint on a second."""
        place = f"{self.where}:{self.line}" if self.line else self.where
        text = f"{place}: {self.severity}: {self.message} [{self.rule}]"
        if self.instance:
            text += f" (in {self.instance})"
        return text + (f"\n    {self.hint}" if self.hint else "")


@dataclass(frozen=True)
class Report:
    """Findings by what was checked, in order, and what could not be checked (``unsupported``: reason)."""

    findings: Mapping[str, tuple[Finding, ...]]
    unsupported: str = ""
    threadgroup_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(f.severity == "error" for group in self.findings.values() for f in group)

    @property
    def warnings(self) -> int:
        """How many findings are warnings."""
        return sum(f.severity == "warning" for group in self.findings.values() for f in group)

    @property
    def ok(self) -> bool:
        """True when everything was checked and nothing is an error."""
        return self.errors == 0 and not self.unsupported

    def pretty(self) -> str:
        """The report as text for a terminal."""
        lines = []
        for name, group in self.findings.items():
            failed = any(f.severity == "error" for f in group)
            lines.append(f"{name}: {'rejected' if failed else 'accepted'}")
            lines.extend("  " + line for f in group for line in f.pretty().splitlines())
        for instance, size in self.threadgroup_bytes.items():
            lines.append(f"threadgroup memory: {size:6d} bytes  {instance}")
        if self.unsupported:
            lines.append(f"unsupported: {self.unsupported}")
        lines.append(f"{len(self.findings)} checked, {self.errors} errors, {self.warnings} warnings")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, as ``json`` prints it."""
        return {
            "ok": self.ok,
            "checked": len(self.findings),
            "errors": self.errors,
            "warnings": self.warnings,
            "unsupported": self.unsupported,
            "threadgroup_bytes": dict(self.threadgroup_bytes),
            "findings": [{"checked": name, **asdict(f)} for name, group in self.findings.items() for f in group],
        }

    def json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.as_dict(), indent=2)


def unique(findings: Iterable[Finding]) -> list[Finding]:
    """Sorted findings, each said once: of those that differ in the instance only, the first instance's.

    Arithmetic in double on a line that says `double` is no second finding.
    """
    findings = list(findings)
    said = {(f.where, f.line) for f in findings if f.rule == "double"}
    findings = [f for f in findings if f.rule != "double-arithmetic" or (f.where, f.line) not in said]
    first: dict[tuple[str, int, str], str] = {}
    kept = {f for f in findings if first.setdefault((f.where, f.line, f.rule), f.instance) == f.instance}
    return sorted(kept)
