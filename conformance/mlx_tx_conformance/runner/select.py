"""Which cases to run: globs over clause ids and case ids."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any


class SelectionError(ValueError):
    """A pattern that selects nothing; the message suggests one that does."""


def matches(text: str, pattern: str) -> bool:
    """Whether a glob matches. Brackets, as in a case id, are ordinary characters; upper and lower case are the same."""
    return fnmatchcase(text.lower(), pattern.lower().replace("[", "[[]"))


def selects(case: Any, pattern: str) -> bool:
    """Whether a pattern selects a case: by its clause id, or by its full id where the pattern has a slash."""
    if "/" not in pattern:
        return matches(case.clause, pattern)
    return matches(case.id, pattern) or matches(case.id, pattern + "[*")


def select(
    cases: Iterable[Any], patterns: Sequence[str] = (), dtypes: Sequence[str] = (), tags: Sequence[str] = ()
) -> list[tuple[int, Any]]:
    """The cases that any pattern selects (all without patterns), with their place in the spec.

    Raises SelectionError for a pattern that selects nothing, and where nothing is left.
    """
    everything = list(enumerate(cases))
    chosen = [(order, case) for order, case in everything if not patterns or any(selects(case, p) for p in patterns)]
    for pattern in patterns:
        if not any(selects(case, pattern) for _, case in everything):
            known = sorted({case.clause for _, case in everything} | {case.id.split("[")[0] for _, case in everything})
            close = difflib.get_close_matches(pattern, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise SelectionError(f"no case matches {pattern!r}{hint}")
    chosen = [
        (order, case)
        for order, case in chosen
        if (not dtypes or case.dtype in dtypes) and (not tags or set(tags) & set(case.tags))
    ]
    if not chosen:
        raise SelectionError("no case is left by --clause, --dtype and --tag together")
    return chosen
