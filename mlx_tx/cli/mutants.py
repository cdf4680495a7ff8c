"""``mlx-tx mutants``: does the suite catch planted faults, each by the clause that names it?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from .common import UsageError, count

HELP = "run planted faults of mlx_tx, each on the clause that should name it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``--only``, ``--matrix``, ``--list``, ``--jobs``, ``--format``."""
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="mutants by name. Repeatable")
    parser.add_argument("--list", action="store_true", help="list the mutants and run nothing")
    parser.add_argument(
        "--matrix", action="store_true", help="run every clause on every mutant and count what fails (takes long)"
    )
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, help="mutants at a time (default: cores)")
    parser.add_argument("--format", choices=("pretty", "json"), default="pretty")


def run(args: argparse.Namespace) -> int:
    """0 when every mutant is killed and the unmutated code passes, 1 otherwise."""
    from mlx_tx_conformance.mutants import run_mutants, selected, unmutated

    from .. import openblas

    chosen = selected(args.only)
    if not chosen:
        raise UsageError(f"--only: no mutant is named {' or '.join(args.only)}; see mlx-tx mutants --list")
    if args.list:
        _show_list(chosen, args.format)
        return 0
    verdicts = []
    for verdict in run_mutants(chosen, jobs=min(args.jobs, len(chosen), os.cpu_count() or 1), matrix=args.matrix):
        verdicts.append(verdict)
        if args.format == "pretty":
            print(_line(verdict), flush=True)
        else:
            print(f"{len(verdicts)}/{len(chosen)} {verdict.mutant}: {verdict.outcome}", file=sys.stderr, flush=True)
    print("the unmutated code on the same cases ...", file=sys.stderr, flush=True)
    openblas.preload()
    broken = [{"target": t, "case": c, "message": m} for t, c, m in unmutated(chosen)]
    alive = [v for v in verdicts if v.outcome != "killed"]
    if args.format == "json":
        rows: list[dict[str, Any]] = sorted((asdict(v) for v in verdicts), key=lambda row: row["mutant"])
        print(json.dumps({"mutants": rows, "unmutated_failures": broken}, indent=2))
    else:
        print(f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants killed")
        for row in broken:
            print(f"the unmutated code fails {row['case']} on {row['target']}: {row['message']}")
    return 1 if alive or broken else 0


def _line(verdict: Any) -> str:
    if verdict.outcome == "killed":
        return f"killed    {verdict.mutant:36} by {verdict.by[0]}"
    if verdict.outcome == "survived":
        return f"SURVIVED  {verdict.mutant:36} {verdict.ran} cases of {verdict.clause} passed"
    return f"BROKEN    {verdict.mutant:36} {verdict.message}"


def _show_list(chosen: Any, form: str) -> None:
    if form == "json":
        print(json.dumps([asdict(mutant) for mutant in chosen], indent=2))
        return
    for mutant in chosen:
        print(f"{mutant.name:36} {mutant.clause:32} {mutant.target:18} {mutant.about}")
