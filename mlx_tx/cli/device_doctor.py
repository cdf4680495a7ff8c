"""``mlx-tx doctor --device gpu``: do the kernels hold on this machine? What a Mac user runs first."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .common import FailedError

DEVICES = ("gpu", "emulated")
SHOWN_FAILURES = 5
EMULATED_NOTE = (
    "emulated: the kernels' sources ran on the CPU. That proves nothing about Apple's compiler, speed, register "
    "pressure or memory ordering; run this on a Mac with --device gpu."
)


def run(args: argparse.Namespace) -> int:
    """0 where every kernel holds, 1 where one does not, 3 where the device is not there."""
    started = time.perf_counter()
    with _device(args.device) as header:
        found = _findings(args.trials)
    report = {
        **header,
        "seconds": round(time.perf_counter() - started, 1),
        "kernels": kernels_of(found),
        "failures": [_row(finding) for finding in found if finding.status != "held"],
    }
    report["holds"] = not report["failures"]
    print(json.dumps(report, indent=2, allow_nan=False) if args.format == "json" else _pretty(report))
    return 0 if report["holds"] else 1


@contextmanager
def _device(device: str) -> Iterator[dict[str, Any]]:
    """Inside the block kernels run on the device; gives what is known about it."""
    import mlx.core as mx

    from mlx_tx.kernels import current_executor, kernels_available
    from mlx_tx_conformance import emulator
    from mlx_tx_conformance.runner.environment import device_name

    if device == "emulated":
        missing = emulator.unavailable()
        if missing is not None:
            raise FailedError(f"the emulated device does not work here: {missing}")
        with mx.stream(mx.cpu), emulator.device() as emulated:
            yield _header(emulated.name, device_name("emulated"))
        return
    if not kernels_available():
        raise FailedError(
            "there is no Metal GPU that MLX can use here, so no kernel was tried; --device emulated runs the same "
            "trials on the CPU"
        )
    # Without a GPU there is an executor that somebody installed: its name is the device's.
    executor = current_executor().name
    on_gpu = mx.metal.is_available()
    with mx.stream(mx.gpu if on_gpu else mx.cpu):
        yield _header("metal", device_name("gpu")) if on_gpu else _header(executor, executor)


def _header(executor: str, name: str) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "executor": executor,
        "device": name,
        "macos": platform.mac_ver()[0] or None,
        "platform": platform.platform(terse=True),
        "mlx": version("mlx"),
        "note": EMULATED_NOTE if "emulated" in executor else "",
    }


def _findings(most: int | None) -> list[Any]:
    from mlx_tx_conformance.kernel_trials import trials, try_all

    found = []
    said = time.monotonic()
    for finding in try_all(trials(most)):
        found.append(finding)
        if time.monotonic() - said > 5:
            said = time.monotonic()
            print(f"{len(found)} trials, now {finding.kernel}", file=sys.stderr, flush=True)
    return found


def kernels_of(findings: Sequence[Any]) -> list[dict[str, Any]]:
    """One row a kernel: trials by status, the largest error and what it may be where it came nearest to that."""
    from mlx_tx_conformance.kernel_trials import STATUSES

    rows = []
    for kernel in dict.fromkeys(finding.kernel for finding in findings):
        own = [finding for finding in findings if finding.kernel == kernel]
        measured = [finding for finding in own if finding.error is not None]
        worst = max(measured, key=lambda finding: finding.error / finding.allowed, default=None)
        rows.append(
            {
                "kernel": kernel,
                "trials": len(own),
                **{status.replace(" ", "_"): sum(f.status == status for f in own) for status in STATUSES},
                "threads": max(finding.threads for finding in own),
                "largest_error": None if worst is None else _finite(worst.error),
                "allowed": None if worst is None else worst.allowed,
            }
        )
    return rows


def _row(finding: Any) -> dict[str, Any]:
    return {
        "kernel": finding.kernel,
        "trial": finding.label,
        "status": finding.status,
        "error": None if finding.error is None else _finite(finding.error),
        "message": finding.message,
    }


def _finite(error: float) -> float | str:
    """JSON has no infinity, which is what a NaN counts as."""
    return error if error < float("inf") else "inf"


def _pretty(report: dict[str, Any]) -> str:
    lines = [
        f"device    {report['device']} ({report['executor']})",
        f"macOS     {report['macos'] or 'none; ' + report['platform']}",
        f"MLX       {report['mlx']}",
        "",
    ]
    titles = ("kernel", "trials", "held", "no compile", "thread cap", "wrong", "error", "threads", "largest error")
    table = [titles] + [
        (
            row["kernel"],
            *(str(row[title.replace(" ", "_")]) for title in titles[1:-1]),
            "–" if row["largest_error"] is None else f"{float(row['largest_error']):.2g} of {row['allowed']:.2g}",
        )
        for row in report["kernels"]
    ]
    widths = [max(len(line[n]) for line in table) for n in range(len(titles))]
    lines += [
        "  ".join([line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))])
        for line in table
    ]
    lines.append("")
    for failure in report["failures"][:SHOWN_FAILURES]:
        lines += [f"{failure['status']}: {failure['trial']}", f"    {failure['message']}"]
    more = len(report["failures"]) - SHOWN_FAILURES
    lines += [f"... and {more} more (--format json has them all)"] if more > 0 else []
    trials = sum(row["trials"] for row in report["kernels"])
    if report["holds"]:
        lines.append(f"every kernel holds: {trials} trials in {report['seconds']:.0f} s")
    else:
        lines.append(
            f"{len(report['failures'])} of {trials} trials failed. Calls that need these kernels take another path, "
            "with a warning; please report this output."
        )
    return "\n".join([*lines, *([report["note"]] if report["note"] else [])])
