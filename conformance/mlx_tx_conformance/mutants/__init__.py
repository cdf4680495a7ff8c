"""Planted faults that the suite must catch, each by the clause that names it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from .mutant import Mutant, StaleMutant
from .run import Verdict, run_mutants, unmutated

__all__ = ["Mutant", "StaleMutant", "Verdict", "all_mutants", "find", "run_mutants", "selected", "unmutated"]


def all_mutants() -> tuple[Mutant, ...]:
    """Every mutant, in order."""
    from . import attention_faults, blockwise_faults, cache_faults, count_faults, kernel_faults, model_faults

    of_attention = attention_faults.MUTANTS + blockwise_faults.MUTANTS
    of_kernels = kernel_faults.MUTANTS + count_faults.MUTANTS
    return of_attention + of_kernels + model_faults.MUTANTS + cache_faults.MUTANTS


def find(name: str) -> Mutant:
    """The mutant of that name."""
    for mutant in all_mutants():
        if mutant.name == name:
            return mutant
    close = difflib.get_close_matches(name, [mutant.name for mutant in all_mutants()], n=1)
    raise KeyError(f"no mutant is named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))


def selected(globs: Sequence[str]) -> tuple[Mutant, ...]:
    """The mutants whose name any of the globs matches (all without globs)."""
    return tuple(m for m in all_mutants() if not globs or any(fnmatchcase(m.name, glob) for glob in globs))
