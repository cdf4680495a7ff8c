"""Hold an attention to the spec inside a test of your own.

.. code-block:: python

    from mlx_tx_conformance import hold

    def test_my_attention():
        hold(my_attention, clauses=["MSK-*", "GQA-1"], dtypes=["float32"])
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .call import Target
from .runner.result import Run
from .runner.rows import Row, in_order
from .runner.select import select
from .runner.worker import run_task
from .targets import BaseTarget, function_target

# Cases listed in the error for each clause; the report has them all.
MOST_LISTED = 3


class Nonconforming(AssertionError):
    """An implementation broke clauses. ``report`` is the whole run, ``clauses`` the ids of the broken ones."""

    def __init__(self, report: Run) -> None:
        self.report = report
        self.clauses = tuple(dict.fromkeys(row["clause"] for row in report.broken))
        super().__init__(_message(report))


def hold(
    attention: Callable[..., Any] | Target,
    clauses: Sequence[str] | str = (),
    dtypes: Sequence[str] = (),
    *,
    array_library: str | None = None,
    precision: Mapping[str, str] | None = None,
    device: str | None = None,
    seed: int = 0,
    spec: Path | str | None = None,
) -> Run:
    """Run the spec's cases on an attention, in this process, and return the report.

    ``attention(q, k, v, ...)`` takes q [B, N_q, T_q, D], k [B, N_kv, T_kv, D], v [B, N_kv, T_kv, D_v] and whatever
    else it can do by the names of :func:`mlx_tx.scaled_dot_product_attention` (``scale``, ``mask``, ``causal``,
    ``window``, ...); a case that needs an argument it does not take is unsupported, not a failure. A target object
    is taken as it is.

    Args:
        clauses: globs over clause ids (``"MSK-*"``) or, with a slash, case ids. Default: all.
        dtypes: ``float32``, ``float16``, ``bfloat16``. Default: all.
        array_library: ``"mlx"`` or ``"numpy"``. Default: what the function's annotations or module say, else MLX.
        precision: the class of roundings inside, by dtype (see the docs on precision classes).
        device: ``"cpu"`` or ``"gpu"``. Default: MLX's default device.
        seed: another draw of the random inputs.
        spec: a folder of clause files. Default: the shipped ones.

    Raises :class:`Nonconforming` (an AssertionError) that lists the broken clauses, and ValueError for a glob that
    selects nothing or where the attention supports none of the cases selected.
    """
    from .checks import run_case
    from .spec import load_spec

    globs = (clauses,) if isinstance(clauses, str) else tuple(clauses)
    target = _target(attention, array_library, precision, device)
    chosen = select(load_spec(spec).cases, globs, tuple(dtypes))
    started = time.perf_counter()
    rows = [run_task(run_case, case, target, order=order, seed=seed) for order, case in chosen]
    run = _run(target, rows, seed, time.perf_counter() - started)
    if run.broken:
        raise Nonconforming(run)
    if all(row["verdict"] == "unsupported" for row in rows):
        reasons = sorted({row["message"] for row in rows})
        raise ValueError(f"[hold] {target.name} supports none of the {len(rows)} cases selected: {'; '.join(reasons)}")
    return run


def _target(
    attention: Callable[..., Any] | Target,
    array_library: str | None,
    precision: Mapping[str, str] | None,
    device: str | None,
) -> Target:
    if isinstance(attention, BaseTarget) or (isinstance(attention, Target) and not isinstance(attention, type)):
        return attention
    if not callable(attention):
        raise TypeError(f"[hold] attention must be a function or a target; got {type(attention).__name__}")
    return function_target(
        attention, array_library=array_library, precision=precision, device=device or _default_device()
    )


def _default_device() -> str:
    import mlx.core as mx

    return "gpu" if mx.default_device().type == mx.DeviceType.gpu else "cpu"


def _run(target: Target, rows: Sequence[Row], seed: int, seconds: float) -> Run:
    from . import __version__
    from .runner.environment import describe, preload_blas

    header = {"suite": __version__, **describe(target.device, preload_blas()), "seed": seed, "targets": [target.name]}
    return Run((header,), tuple(in_order(rows)), (), seconds)


def _message(report: Run) -> str:
    lines = []
    for clause in dict.fromkeys(row["clause"] for row in report.broken):
        rows = [row for row in report.rows if row["clause"] == clause]
        broken = [row for row in report.broken if row["clause"] == clause]
        ran = sum(row["verdict"] != "unsupported" for row in rows)
        lines.append(f"{clause} ({len(broken)} of {ran} cases)")
        lines += [f"  {row['case']}: {row['verdict']}: {row['message']}" for row in broken[:MOST_LISTED]]
        if len(broken) > MOST_LISTED:
            lines.append(f"  … and {len(broken) - MOST_LISTED} more")
    return "does not conform\n" + "\n".join(lines)
