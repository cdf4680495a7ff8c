"""What several commands share: errors, arguments, and how the spec and a target are found."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEVICES = ("auto", "cpu", "gpu", "emulated")


class UsageError(Exception):
    """What was typed cannot be done; the message says what can."""


class FailedError(Exception):
    """The command could not do its work, through no fault of what was typed."""


def add_spec(parser: argparse.ArgumentParser) -> None:
    """``--spec``: another folder of clause files."""
    parser.add_argument(
        "--spec", type=Path, metavar="DIR", help="folder with the clause files (default: the shipped spec)"
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """``--device``."""
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="where to run (default: the GPU where there is one, else the CPU)",
    )


def add_clauses(parser: argparse.ArgumentParser) -> None:
    """``--clause``, repeatable."""
    parser.add_argument(
        "--clause",
        action="append",
        default=[],
        metavar="GLOB",
        help="clauses to run, such as 'MSK-*'; with a slash, cases ('MSK-1/equals-*'). Repeatable",
    )


def positive(text: str) -> float:
    """An argument that must be a positive number."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number; got {text!r}") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be positive; got {text}")
    return value


def count(text: str) -> int:
    """An argument that must be a positive integer."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer; got {text!r}") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {value}")
    return value


def is_full(error: OSError) -> bool:
    """Whether there was no room left to write to."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn the suite's errors about what the user gave into usage errors."""
    from mlx_tx_conformance.runner import (
        JournalError,
        JournalWriteError,
        PoolError,
        RefusedError,
        SelectionError,
        WaiverError,
    )
    from mlx_tx_conformance.runner.environment import DeviceError
    from mlx_tx_conformance.spec import SpecError
    from mlx_tx_conformance.targets import TargetError

    try:
        yield
    except (JournalError, RefusedError, SelectionError, SpecError, WaiverError, DeviceError, TargetError) as error:
        raise UsageError(str(error)) from error
    except (PoolError, JournalWriteError) as error:
        raise FailedError(str(error)) from error


def spec_folder(given: Path | None) -> Path:
    """The folder with the clause files."""
    from mlx_tx_conformance.data import spec_root

    if given is None:
        return spec_root()
    if not given.is_dir():
        raise UsageError(f"--spec: no folder {given}")
    return given


def load(given: Path | None) -> tuple[Path, Any]:
    """The folder and the loaded spec. Raises UsageError with file and line for one that does not load."""
    from mlx_tx_conformance.spec import SpecError, load_spec

    root = spec_folder(given)
    try:
        return root, load_spec(root)
    except SpecError as error:
        raise UsageError(str(error)) from error


def write_text(path: Path | None, text: str) -> None:
    """Write to a file, or to stdout."""
    import sys

    if path is None:
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise (FailedError if is_full(error) else UsageError)(f"{path}: {error.strerror}") from error
