"""Run mutants: each in a process of its own, on the cases that should name its fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from .mutant import Mutant

TIME_LIMIT_S = 300
KILLING = ("fail", "error")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: ``killed`` by the cases listed, ``survived``, or ``broken`` (it could not be run)."""

    mutant: str
    clause: str
    outcome: str
    by: tuple[str, ...] = ()
    message: str = ""
    ran: int = 0
    matrix: dict[str, int] = field(default_factory=dict)


def run_mutants(mutants: Sequence[Mutant], jobs: int = 2, matrix: bool = False) -> Iterator[Verdict]:
    """Run mutants side by side; verdicts come as they are found.

    A mutant is killed by the first failing case among those its ``clause`` selects. With ``matrix`` every clause is run
    and the number of failing cases of each is kept.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(_run_apart, mutant, matrix) for mutant in mutants]
        for future in as_completed(futures):
            yield future.result()


def unmutated(mutants: Sequence[Mutant]) -> Iterator[tuple[str, str, str]]:
    """Run the unmutated code on every case that the mutants' clauses select; yields the cases that do not pass.

    Items are (target, case, message). Without this a kill would prove nothing.
    """
    from ..checks import run_case
    from ..targets import open_target

    for name, device in sorted({(mutant.target, mutant.device) for mutant in mutants}):
        globs = sorted({mutant.clause for mutant in mutants if (mutant.target, mutant.device) == (name, device)})
        target = open_target(name, device)
        for case in cases_of(globs):
            outcome = run_case(case, target)
            if outcome.verdict in KILLING:
                yield name, case.id, outcome.message


def cases_of(globs: Sequence[str]) -> list[Any]:
    """The cases of the spec that any of the globs selects."""
    from ..data import spec_root
    from ..runner.select import select
    from ..spec import load_spec

    return [case for _, case in select(load_spec(spec_root()).cases, globs)]


def _run_apart(mutant: Mutant, matrix: bool) -> Verdict:
    command = [
        sys.executable,
        "-m",
        "mlx_tx_conformance.mutants.worker",
        mutant.name,
        *(["--matrix"] if matrix else []),
    ]
    limit = TIME_LIMIT_S * (10 if matrix else 1)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return Verdict(mutant.name, mutant.clause, "broken", message=f"no verdict after {limit} s")
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return Verdict(mutant.name, mutant.clause, "broken", message=last[0])
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    answer["by"] = tuple(answer["by"])
    return Verdict(**answer)
