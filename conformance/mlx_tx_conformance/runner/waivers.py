"""Known failures, each with a device, a ticket and an end. A waiver that hides nothing any more is itself an error."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .rows import Row
from .select import matches

REQUIRED = ("cases", "device", "ticket", "until")
# What stands in the place of a clause id in the rows about the waivers themselves.
CLAUSE = "waivers"
OPTIONAL = ("target", "reason")


class WaiverError(ValueError):
    """A waiver file that cannot be used; the message names file and entry."""


@dataclass(frozen=True)
class Waiver:
    """One known failure: glob over case ids, targets and devices, the ticket that says why, the last day it holds."""

    cases: str
    device: str
    ticket: str
    until: datetime.date
    target: str = "*"
    reason: str = ""

    def covers(self, row: Mapping[str, Any]) -> bool:
        """Whether a result is within the waiver's scope."""
        return (
            matches(row["case"], self.cases)
            and fnmatchcase(row["target"], self.target)
            and fnmatchcase(row["device"], self.device)
        )


@dataclass
class Waivers:
    """The waivers of a run: applied row by row, judged at the end."""

    waivers: tuple[Waiver, ...] = ()
    today: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())
    _seen: set[Waiver] = field(default_factory=set)
    _needed: set[Waiver] = field(default_factory=set)

    def apply(self, row: Row) -> Row:
        """The row, with a failure that a valid waiver covers turned into the verdict waived."""
        for waiver in self.waivers:
            if not waiver.covers(row):
                continue
            self._seen.add(waiver)
            if row["verdict"] in ("fail", "waived") and waiver.until >= self.today:
                self._needed.add(waiver)
                if row["verdict"] == "fail":
                    message = f"waived until {waiver.until} ({waiver.ticket}): {row['message']}"
                    row = {**row, "verdict": "waived", "message": message}
        return row

    def complaints(self, device: str, known_cases: Iterable[str], order: int) -> list[Row]:
        """Rows with the verdict error for waivers that have expired, cover no case, or hide no failure."""
        known = list(known_cases)
        rows = []
        for number, waiver in enumerate(self.waivers, 1):
            message = ""
            if waiver.until < self.today:
                message = f"expired on {waiver.until} ({waiver.ticket})"
            elif not any(matches(case, waiver.cases) for case in known):
                message = f"covers no case of the spec ({waiver.ticket})"
            elif waiver in self._seen and waiver not in self._needed:
                message = f"nothing that it covers fails any more; remove it ({waiver.ticket})"
            if message:
                rows.append(_complaint(number, waiver, device, message, order))
        return rows


def load_waivers(path: Path) -> Waivers:
    """Read a YAML list of waivers. Raises WaiverError for a missing or unknown key, or a date that is none."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WaiverError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise WaiverError(f"{path}: {error}") from error
    if not isinstance(content, list):
        raise WaiverError(f"{path}: expected a list of waivers")
    return Waivers(tuple(_waiver(path, number, entry) for number, entry in enumerate(content, 1)))


def _waiver(path: Path, number: int, entry: Any) -> Waiver:
    place = f"{path}: waiver {number}"
    if not isinstance(entry, dict):
        raise WaiverError(f"{place} is no mapping")
    missing = [name for name in REQUIRED if name not in entry]
    unknown = [str(name) for name in entry if name not in (*REQUIRED, *OPTIONAL)]
    if missing or unknown:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has the unknown {', '.join(unknown)}"] if unknown else []
        raise WaiverError(f"{place} {' and '.join(wrong)}")
    until = entry["until"]
    if isinstance(until, str):
        try:
            until = datetime.date.fromisoformat(until)
        except ValueError:
            raise WaiverError(f"{place}: until must be a date (YYYY-MM-DD); got {until!r}") from None
    if not isinstance(until, datetime.date) or isinstance(until, datetime.datetime):
        raise WaiverError(f"{place}: until must be a date (YYYY-MM-DD); got {until!r}")
    if not str(entry["ticket"]).startswith(("http://", "https://")):
        raise WaiverError(f"{place}: ticket must be a URL; got {entry['ticket']!r}")
    texts = {name: str(entry[name]) for name in ("cases", "device", "ticket", "target", "reason") if name in entry}
    return Waiver(until=until, **texts)


def _complaint(number: int, waiver: Waiver, device: str, message: str, order: int) -> Row:
    return {
        "kind": "result",
        "order": order,
        "case": f"waiver-{number}/{waiver.cases}",
        "clause": CLAUSE,
        "target": waiver.target,
        "device": device,
        "path": "",
        "dtype": "",
        "verdict": "error",
        "headroom": None,
        "message": f"the waiver for {waiver.cases} on {waiver.target}, {waiver.device}: {message}",
        "seconds": 0.0,
        "fingerprint": "",
        "details": {"ticket": waiver.ticket},
    }
