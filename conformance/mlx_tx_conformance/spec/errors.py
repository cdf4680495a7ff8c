"""What is wrong with a spec file, where, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

# Beyond so many names a list of what is allowed helps nobody.
_LISTED = 24


@dataclass(frozen=True, order=True)
class Finding:
    """One thing to put right. ``rule`` names the kind of fault (kebab-case), ``file`` and ``line`` where it stands."""

    file: str
    line: int
    message: str
    rule: str = "form"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"

    def as_dict(self) -> dict[str, str | int]:
        """JSON-ready."""
        return {"file": self.file, "line": self.line, "rule": self.rule, "message": self.message}


class SpecError(ValueError):
    """A spec that cannot be used. ``findings`` holds every fault found, its text one line for each."""

    def __init__(self, findings: Iterable[Finding] | Finding | str) -> None:
        if isinstance(findings, str):
            self.findings: tuple[Finding, ...] = ()
            super().__init__(findings)
            return
        self.findings = (findings,) if isinstance(findings, Finding) else tuple(findings)
        super().__init__("\n".join(map(str, self.findings)))

    def __reduce__(self) -> tuple[type[SpecError], tuple[object]]:
        return type(self), (self.findings or str(self),)


def suggestion(word: object, known: Iterable[str], noun: str = "known") -> str:
    """``; did you mean 'shapes'?`` where a known word is near; otherwise the known words, if they are few."""
    names = [str(name) for name in known]
    lowered = {name.lower(): name for name in reversed(names)}
    near = get_close_matches(str(word).lower(), lowered, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {lowered[near[0]]!r}?"
    if names and len(names) <= _LISTED:
        return f"; {noun}: {', '.join(names)}"
    return ""
