"""``mlx-tx kernels check``: do the kernels keep to what Metal's compiler is known to take?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from .common import FailedError, UsageError

HELP = "check the Metal kernels' sources without a Mac"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="address spaces, forbidden constructs, names that MLX's own kernels use")
    check.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help=".metal files or folders (default: all of ours)",
    )
    check.add_argument("--format", choices=("pretty", "json"), default="pretty")


def run(args: argparse.Namespace) -> int:
    """Check, print, and exit 0 where nothing is wrong, 1 where something is, 3 where it could not all be checked.

    Accepted here does not prove that Apple's compiler accepts it.
    """
    from mlx_tx_conformance.emulator.strict import check_paths, main_check

    try:
        if args.paths:
            report = check_paths(args.paths)
        else:
            from mlx_tx_conformance.emulator.attention_kernels import kernel_sources

            report = main_check(kernel_sources())
    except OSError as error:
        raise UsageError(str(error)) from error
    if not report.findings:
        raise FailedError(f"no .metal file in {', '.join(map(str, args.paths))}: nothing was checked")
    print(json.dumps(report.as_dict(), indent=2) if args.format == "json" else report.pretty())
    return 1 if report.errors else 0 if report.ok else 3
