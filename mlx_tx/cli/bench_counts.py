"""``mlx-tx bench --counts``: what attention kernels read, write and compute, counted on the emulated Metal device."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

from .. import __version__
from .common import FailedError, UsageError, count

KERNELS = ("forward", "decode", "dq", "dkv")
IMPLEMENTATIONS = ("mlx_tx", "mlx", "unfused")
NOTE = (
    "Counted on the emulated Metal device: every load and store of the program, without caches and coalescing. "
    "Counts say nothing about time on a GPU."
)
# What is counted where neither sizes nor kernels are chosen.
HEADS = 2
DECODE_HEADS = (4, 2)
# Titles of the table, with the fields that stand below them.
COLUMNS = (
    ("kernel", "kernel"),
    ("implementation", "implementation"),
    ("dtype", "dtype"),
    ("D", "D"),
    ("T_q", "T_q"),
    ("T_kv", "T_kv"),
    ("N_q", "N_q"),
    ("N_kv", "N_kv"),
    ("causal", "causal"),
    ("bytes read", "device_bytes_read"),
    ("bytes written", "device_bytes_written"),
    ("mma", "mma"),
    ("exp", "exp"),
    ("barriers", "barriers"),
    ("threadgroup bytes", "threadgroup_bytes"),
)
NUMBERS_FROM = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that belong to ``--counts``."""
    group = parser.add_argument_group("with --counts")
    group.add_argument(
        "--kernel", action="append", default=[], choices=KERNELS, help="kernels to count. Repeatable (default: all)"
    )
    group.add_argument(
        "--implementation", action="append", default=[], choices=IMPLEMENTATIONS, help="Repeatable (default: all)"
    )
    group.add_argument("--queries", type=count, metavar="T_q", help="queries of decode (default: 1)")
    group.add_argument("--kv-heads", type=count, metavar="N_kv", help="key/value heads (default: as many as heads)")


def run(args: argparse.Namespace) -> int:
    """Count and print; 3 where nothing could be counted."""
    from mlx_tx_conformance.emulator import KernelError, unavailable
    from mlx_tx_conformance.emulator.counts import COUNTERS, iter_count_rows
    from mlx_tx_conformance.runner.environment import describe

    missing = unavailable()
    if missing is not None:
        raise FailedError(f"counting needs the emulated device, which does not work here: {missing}")
    cases = chosen_cases(args)
    implementations = tuple(args.implementation) or IMPLEMENTATIONS
    rows = []
    try:
        for row in iter_count_rows(cases, implementations):
            rows.append(row)
            print(f"{row['kernel']} {row['implementation']} D={row['D']} T_kv={row['T_kv']}", file=sys.stderr)
    except KernelError as error:
        raise FailedError(str(error)) from error
    left_out = [
        {"kernel": kernel, "implementation": name, "reason": _reason((name, kernel) in COUNTERS)}
        for kernel in (tuple(args.kernel) or KERNELS)
        for name in implementations
        if not any((row["kernel"], row["implementation"]) == (kernel, name) for row in rows)
    ]
    if not rows:
        raise FailedError("nothing to count: " + "; ".join(f"{e['implementation']} {e['reason']}" for e in left_out))
    facts = describe("emulated", "none")
    facts.pop("blas")
    header = {"suite": __version__, **facts, "note": NOTE}
    if args.format == "json":
        print(json.dumps({"header": header, "rows": rows, "left_out": left_out}, indent=2))
    else:
        print(_markdown(rows, left_out) if args.format == "md" else _pretty(rows, left_out))
    return 0


def chosen_cases(args: argparse.Namespace) -> list[Any]:
    """The cases that the options name; a default set of sizes where they name none."""
    from mlx_tx_conformance.emulator.counts import DEFAULT_CASES, CountCase

    kernels = tuple(args.kernel) or KERNELS
    sizes = (args.lengths, args.head_size, args.dtype, args.heads, args.kv_heads, args.queries, args.causal)
    if all(size is None for size in sizes):
        cases = [case for case in DEFAULT_CASES if case.kernel in kernels]
        # The backward kernels at the sizes of the forward one.
        backward = [kernel for kernel in kernels if kernel in ("dq", "dkv")]
        forward = [case for case in DEFAULT_CASES if case.kernel == "forward"]
        return cases + [CountCase(**{**vars(case), "kernel": kernel}) for kernel in backward for case in forward]
    found = []
    for kernel, dtype, D, T in product(
        kernels, args.dtype or ("float16",), args.head_size or (64, 128), args.lengths or (128, 256, 512, 1024)
    ):
        few = kernel == "decode"
        N_q = args.heads or (DECODE_HEADS[0] if few else HEADS)
        N_kv = args.kv_heads or (DECODE_HEADS[1] if few and args.heads is None else N_q)
        T_q = (args.queries or 1) if few else T
        band = (False,) if few and args.causal is None else (False, True) if args.causal is None else (args.causal,)
        for causal in band:
            try:
                found.append(CountCase(kernel, dtype, D, T_q, T, N_q, N_kv, causal))
            except ValueError as error:
                raise UsageError(str(error)) from error
    return found


def _reason(countable: bool) -> str:
    return "has no kernel for these sizes" if countable else "has no kernel of its own for this that can be counted"


def _cells(row: dict[str, Any]) -> list[str]:
    values = [row[field] for _, field in COLUMNS]
    return [
        ("yes" if value else "no") if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else value
        for value in values
    ]


def _pretty(rows: Sequence[dict[str, Any]], left_out: Sequence[dict[str, str]]) -> str:
    lines = [[title for title, _ in COLUMNS], *(_cells(row) for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(COLUMNS))]
    texts = [
        "  ".join(
            t.ljust(w) if n < NUMBERS_FROM else t.rjust(w) for n, (t, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([*(text.rstrip() for text in texts), *_left_out(left_out), NOTE])


def _markdown(rows: Sequence[dict[str, Any]], left_out: Sequence[dict[str, str]]) -> str:
    alignment = ["---"] * NUMBERS_FROM + ["--:"] * (len(COLUMNS) - NUMBERS_FROM)
    lines = [[title for title, _ in COLUMNS], alignment, *(_cells(row) for row in rows)]
    table = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(["# Counts of attention kernels", "", *table, "", *_left_out(left_out), NOTE])


def _left_out(left_out: Sequence[dict[str, str]]) -> list[str]:
    return [f"{entry['kernel']}: {entry['implementation']} {entry['reason']}." for entry in left_out]
