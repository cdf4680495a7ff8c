"""``mlx-tx diff``: what changed between two runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import UsageError, usage_errors

HELP = "verdicts that changed from one journal to another (exit 1 where one changed for the worse)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("before", type=Path, metavar="BEFORE")
    parser.add_argument("after", type=Path, metavar="AFTER")


def run(args: argparse.Namespace) -> int:
    """Compare."""
    from mlx_tx_conformance.report import changes, diff_text
    from mlx_tx_conformance.runner import read_journal, run_of

    with usage_errors():
        before, after = (run_of([read_journal(path)]) for path in (args.before, args.after))
    try:
        found = changes(before, after)
    except ValueError as error:
        raise UsageError(str(error)) from error
    print(diff_text(before, after, found), end="")
    return 1 if any(change.worse for change in found) else 0
