"""The verdict on one case and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VERDICTS = ("pass", "weak", "fail", "error", "unsupported", "waived")

# Verdicts with which an implementation still conforms.
CONFORMING = frozenset({"pass", "weak", "unsupported", "waived"})


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    ``headroom`` is the largest error/bound over all elements (``None`` where a check is exact or has no bound):
    at most 1 passes. ``fingerprint`` is the sha256 of the input bytes, ``details`` what a report may show
    (worst element, the figures of a law, ...), JSON-ready.
    """

    verdict: str
    message: str = ""
    headroom: float | None = None
    path: str = ""
    fingerprint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"[Outcome] verdict must be one of {', '.join(VERDICTS)}; got {self.verdict!r}")


def passed(message: str = "", **rest: Any) -> Outcome:
    """The check held."""
    return Outcome("pass", message, **rest)


def failed(message: str, **rest: Any) -> Outcome:
    """The check did not hold; the message says where and by how much."""
    return Outcome("fail", message, **rest)


def undecidable(message: str, **rest: Any) -> Outcome:
    """The bound says nothing about this case, which is not a pass."""
    return Outcome("error", f"not decidable: {message}", **rest)
