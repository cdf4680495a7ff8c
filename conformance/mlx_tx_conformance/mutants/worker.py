"""The process in which one mutant lives: ``python -m mlx_tx_conformance.mutants.worker NAME [--matrix]``."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter

from . import find
from .run import KILLING, Verdict, cases_of


def judge(name: str, matrix: bool) -> Verdict:
    """Plant the mutant in this process and run the cases that should kill it (or all, for the matrix)."""
    mutant = find(name)
    mutant.plant()
    from ..checks import run_case
    from ..targets import open_target

    target = open_target(mutant.target, mutant.device)
    ran, by, message = 0, [], ""
    for case in cases_of([mutant.clause]):
        outcome = run_case(case, target)
        ran += outcome.verdict != "unsupported"
        if outcome.verdict in KILLING:
            by.append(case.id)
            message = outcome.message
            break
    failing: Counter[str] = Counter()
    if matrix:
        for case in cases_of(["*"]):
            if run_case(case, target).verdict in KILLING:
                failing[case.clause] += 1
    outcome_name = "killed" if by else "survived"
    return Verdict(mutant.name, mutant.clause, outcome_name, tuple(by), message, ran, dict(failing))


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(judge(sys.argv[1], "--matrix" in sys.argv[2:]))))
