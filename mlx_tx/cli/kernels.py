"""``mlx-tx kernels check``: do the kernels keep to what Metal's compiler is known to take?"""

from __future__ import annotations

import argparse

from .common import FailedError

HELP = "check the Metal kernels' sources without a Mac"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="address spaces, forbidden constructs, names that MLX's own kernels use")
    check.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Hand over to the emulator's strict check."""
    try:
        from mlx_tx_conformance.emulator.strict import cli_run
    except ImportError as error:
        raise FailedError(f"the strict check is not part of this installation ({error})") from error
    return int(cli_run(args.arguments))
