"""A result as one row of the journal: what ran, on what, the verdict, and what it rests on. JSON-ready."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..outcome import VERDICTS, Outcome

Row = dict[str, Any]


def make_row(case: Any, target: str, device: str, outcome: Outcome, *, order: int, seconds: float) -> Row:
    """The row of one case on one target."""
    return {
        "kind": "result",
        "order": order,
        "case": case.id,
        "clause": case.clause,
        "target": target,
        "device": device,
        "path": outcome.path,
        "dtype": case.dtype,
        "verdict": outcome.verdict,
        "headroom": plain(outcome.headroom),
        "message": outcome.message,
        "seconds": round(seconds, 4),
        "fingerprint": outcome.fingerprint,
        "details": plain(outcome.details),
    }


def key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What may occur once in a run: a case on a target on a device."""
    return (row["case"], row["target"], row["device"])


def in_order(rows: Iterable[Row], targets: Sequence[str] = ()) -> list[Row]:
    """Rows as a report lists them: by the case's place in the spec, then by target; never by who finished first."""
    place = {target: number for number, target in enumerate(targets)}

    def position(row: Row) -> tuple[int, str, int, str, str]:
        return (row["order"], row["case"], place.get(row["target"], len(place)), row["target"], row["device"])

    return sorted(rows, key=position)


def count_verdicts(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many rows have each verdict, zeros included."""
    counts = dict.fromkeys(VERDICTS, 0)
    for row in rows:
        counts[row["verdict"]] += 1
    return counts


def plain(value: Any) -> Any:
    """The value as JSON has it: NumPy scalars and arrays unpacked, numbers that JSON lacks as "inf", "-inf", "nan"."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.astype(np.float64).tolist() if value.dtype.kind not in "biuf" else value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
