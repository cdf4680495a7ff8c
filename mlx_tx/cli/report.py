"""``mlx-tx report``: render journals."""

from __future__ import annotations

import argparse
from pathlib import Path

from .common import usage_errors, write_text

HELP = "render one journal, or several from different machines or targets as one"
FORMATS = ("pretty", "json", "md", "junit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("journals", nargs="+", type=Path, metavar="JOURNAL", help="written by conform --out")
    parser.add_argument("--format", choices=FORMATS, default="pretty")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report to this file")


def run(args: argparse.Namespace) -> int:
    """Merge and render."""
    from mlx_tx_conformance import report
    from mlx_tx_conformance.runner import read_journal, run_of

    with usage_errors():
        merged = run_of([read_journal(path) for path in args.journals])
    if args.format == "pretty" and args.out is None:
        report.pretty.show(merged)
    else:
        write_text(args.out, report.render(merged, args.format))
    return merged.exit_code
