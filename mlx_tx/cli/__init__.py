"""The command line: ``mlx-tx COMMAND``. One module for each command; what a command needs is imported when it runs.

Exit status: 0 conforms (or done), 1 does not conform, 2 wrong usage, 3 errored or incomplete, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from .. import __version__
from . import bench, conform, diff, doctor, explain, kernels, mutants, report, spec
from .common import FailedError, UsageError, is_full

COMMANDS: tuple[ModuleType, ...] = (conform, report, diff, explain, spec, mutants, kernels, bench, doctor)
EXIT_USAGE, EXIT_ERRORED, EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 2, 3, 130, 141

EPILOG = (
    "exit status: 0 conforms (or done), 1 does not conform, 2 wrong usage, 3 errored or incomplete, 130 interrupted"
)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="mlx-tx", description="Is this attention right, and which clause does it break?", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"mlx-tx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, epilog=EPILOG)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    # A terminal or file that cannot show a character shows another one; no result is lost for it.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    args = make_parser().parse_args(argv)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
    except UsageError as error:
        print(f"mlx-tx {args.command}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except FailedError as error:
        print(f"mlx-tx {args.command}: {error}", file=sys.stderr)
        return EXIT_ERRORED
    except BrokenPipeError:
        # The reader has what it wanted.
        _drop_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if not is_full(error):
            raise
        _drop_stdout()
        print(f"mlx-tx {args.command}: cannot write: {error.strerror}", file=sys.stderr)
        return EXIT_ERRORED
    except KeyboardInterrupt:
        print(f"mlx-tx {args.command}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return status


def _drop_stdout() -> None:
    """What is still to be written goes nowhere, or Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
