"""``mlx-tx mutants``: does the suite catch planted faults?"""

from __future__ import annotations

import argparse

from .common import FailedError

HELP = "run planted faults of mlx_tx, each on the clause that should name it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What follows goes to the mutants as it is."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="see `mlx-tx mutants -- --help`")


def run(args: argparse.Namespace) -> int:
    """Hand over to the suite."""
    try:
        from mlx_tx_conformance.mutants import cli_run
    except ImportError as error:
        raise FailedError(f"the mutants are not part of this installation ({error})") from error
    rest = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments
    return int(cli_run(rest))
