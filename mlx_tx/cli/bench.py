"""``mlx-tx bench``: what attention costs, by target and length, as counted in its graph or timed on this machine.

``--counts`` counts kernels instead; see :mod:`.bench_counts`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from . import bench_counts
from .common import UsageError, add_device, count, usage_errors

HELP = "operation counts, depth, peak memory and times of attention by length; with --counts what kernels do"
DEFAULT_TARGETS = ("mlx_tx:composed", "mlx_tx:blockwise", "mx.fast")
FIGURES = ("flops", "depth", "peak_bytes")
DTYPES = ("float32", "float16", "bfloat16")
LENGTHS, HEADS, HEAD_SIZE, DTYPE = (128, 256, 512, 1024), 8, 64, "float32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--target", action="append", default=[], metavar="TARGET", help="as for conform. Repeatable")
    parser.add_argument("--counts", action="store_true", help="count what kernels do, on the emulated Metal device")
    parser.add_argument("--no-times", action="store_true", help="only what the graph tells: no times")
    parser.add_argument("--lengths", type=count, nargs="+", metavar="T", help="default: 128 256 512 1024")
    parser.add_argument("--heads", type=count, metavar="N", help="default: 8; with --counts 2, of decode 4")
    parser.add_argument("--head-size", type=count, nargs="+", metavar="D", help="default: 64; with --counts 64 128")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, help="default: float32; with --counts float16")
    parser.add_argument(
        "--causal", action=argparse.BooleanOptionalAction, help="default: not; with --counts both, where it matters"
    )
    parser.add_argument("--gradients", action="store_true", help="of q, k and v instead of the forward pass")
    parser.add_argument("--format", choices=("pretty", "json", "md"), default="pretty")
    add_device(parser)
    bench_counts.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print a table, one line for each target and length."""
    _check(args)
    if args.counts:
        return bench_counts.run(args)
    from mlx_tx_conformance.runner.environment import choose_device, describe, preload_blas
    from mlx_tx_conformance.targets import expand_target, open_target

    with usage_errors():
        blas = preload_blas()
        device = choose_device(args.device)
        words = args.target or DEFAULT_TARGETS
        targets = [open_target(text, device) for word in words for text in expand_target(word, device)]
    if not args.no_times and device == "emulated":
        raise UsageError("an emulated device's time says nothing; use --no-times or --counts")
    header = describe(device, blas)
    rows = []
    for T in args.lengths or LENGTHS:
        for target in targets:
            print(f"{target.name} T={T}", file=sys.stderr)
            rows.append(_measure(args, target, T))
    if args.format == "json":
        print(json.dumps({"header": header, "results": rows}, indent=2))
    else:
        print(f"{header['device']} ({header['device_name']}), BLAS {blas}, mlx {header['versions']['mlx']}")
        print(_table(rows))
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError for options of one form that were given to the other."""
    if args.counts:
        given = {"--target": args.target, "--gradients": args.gradients, "--no-times": args.no_times}
        given["--device"] = args.device not in ("auto", "emulated")
        other = "--counts, which counts kernels on the emulated device"
    else:
        given = {"--kernel": args.kernel, "--implementation": args.implementation, "--queries": args.queries}
        given |= {"--kv-heads": args.kv_heads, "--format md": args.format == "md"}
        given |= {f"several {name}": len(values or ()) > 1 for name, values in _single(args).items()}
        other = "a bench without --counts"
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise UsageError(f"{', '.join(wrong)}: not with {other}")


def _single(args: argparse.Namespace) -> dict[str, Sequence[Any] | None]:
    return {"--head-size": args.head_size, "--dtype": args.dtype}


def _measure(args: argparse.Namespace, target: Any, T: int) -> dict[str, Any]:
    from mlx_tx_conformance.call import Unsupported

    call = _call(args, T)
    row: dict[str, Any] = {"target": target.name, "T": T}
    reason = target.supports(call)
    if reason is not None:
        return {**row, "unsupported": reason}
    for figure in FIGURES:
        try:
            row[figure] = int(target.figure(call, figure))
        except Unsupported:
            row[figure] = None
    if not args.no_times:
        try:
            row["ms"] = round(1000 * target.figure(call, "seconds"), 3)
        except Unsupported:
            row["ms"] = None
    return row


def _call(args: argparse.Namespace, T: int) -> Any:
    import numpy as np

    from mlx_tx_conformance.call import DTYPES as NUMPY_DTYPES
    from mlx_tx_conformance.call import Call

    rng = np.random.Generator(np.random.PCG64(0))
    (D,), (dtype,) = args.head_size or (HEAD_SIZE,), args.dtype or (DTYPE,)
    shape = (1, args.heads or HEADS, T, D)
    names = ("q", "k", "v", "d_out") if args.gradients else ("q", "k", "v")
    arrays = {name: rng.standard_normal(shape).astype(NUMPY_DTYPES[dtype]) for name in names}
    options = {"causal": True} if args.causal else {}
    if args.gradients:
        return Call("attention_gradients", arrays, options, outputs=("q", "k", "v"))
    return Call("attention", arrays, options)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    titles = [name for name in ("target", "T", *FIGURES, "ms") if any(name in row for row in rows)]
    lines = [titles] + [[_text(row.get(name)) for name in titles] for row in rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(titles))]
    texts = [
        [line[0].ljust(widths[0]), *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True))] for line in lines
    ]
    return "\n".join("  ".join(text).rstrip() for text in texts)


def _text(value: Any) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
