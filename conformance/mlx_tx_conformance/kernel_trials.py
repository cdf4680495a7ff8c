"""Every kernel family tried on the device in force against the composed path: what `mlx-tx doctor --device` runs.

The calls are those that cover all pairs of features, dtypes and head sizes, for many queries and for few, and a
gradient for each dtype. Their results are held to the composed path on the CPU, which no kernel takes part in. This is
a first look at a machine, with tolerances that a broken kernel misses by far; `mlx-tx conform` holds every clause to
derived bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import mlx.core as mx

    from .emulator.attention_kernels import KernelCall

HELD, REFUSED, CAPPED, WRONG = "held", "no compile", "thread cap", "wrong"
FAULTY = "error"
STATUSES = (HELD, REFUSED, CAPPED, WRONG, FAULTY)
# Of gradients: sums over a length of products of results that are off by the tolerance of the output.
GRADIENT_FACTOR = 10.0

_CAP = re.compile(r"thread ?group size|threads per threadgroup|threads_per_threadgroup", re.I)
_COMPILE = re.compile(r"build metal library|compil|failed to load|unable to load (kernel|function)", re.I)


@dataclass(frozen=True)
class Trial:
    """A call that is tried: its kernels by name, the full names of their instantiations, how to run it, and what it
    may be off by."""

    kernel: str
    label: str
    threads: int
    run: Callable[[], Sequence[mx.array]]
    expected: Callable[[], Sequence[mx.array]]
    allowed: float


@dataclass(frozen=True)
class Finding:
    """What became of a trial: one of ``STATUSES``, the largest difference from the composed path, what was said."""

    kernel: str
    label: str
    status: str
    error: float | None
    allowed: float
    threads: int
    message: str = ""


def trials(most: int | None = None) -> Iterator[Trial]:
    """The trials, kernel by kernel; the first ``most`` of each where given."""
    from .emulator.attention_kernels import DTYPES, FEW, MANY, calls

    for lengths in (MANY, FEW):
        for number, call in enumerate(calls(lengths)):
            if most is not None and number >= most:
                break
            yield _forward(call)
    for number, dtype in enumerate(DTYPES):
        if most is None or number < most:
            yield _gradients(dtype)


def try_all(found: Iterable[Trial]) -> Iterator[Finding]:
    """Run trials one after another on the executor in force."""
    for trial in found:
        yield _tried(trial)


def classify(error: Exception) -> str:
    """What kind of failure an exception of a launch is."""
    text = str(error)
    if _CAP.search(text):
        return CAPPED
    return REFUSED if getattr(error, "kind", "") == "compile" or _COMPILE.search(text) else FAULTY


def _tried(trial: Trial) -> Finding:
    import mlx.core as mx

    from .emulator import KernelError

    def finding(status: str, error: float | None = None, message: str = "") -> Finding:
        return Finding(trial.kernel, trial.label, status, error, trial.allowed, trial.threads, message)

    try:
        outputs = trial.run()
        mx.eval(outputs)
    except (RuntimeError, ValueError, KernelError) as error:
        first = str(error).strip().splitlines()[:1]
        return finding(classify(error), message=first[0] if first else type(error).__name__)
    with mx.stream(mx.cpu):
        expected = trial.expected()
        mx.eval(expected)
        worst = max(_difference(x, y) for x, y in zip(outputs, expected, strict=True))
    if not worst <= trial.allowed:
        return finding(WRONG, worst, f"off by {worst:.3g}, allowed {trial.allowed:.3g}")
    return finding(HELD, worst)


def _forward(call: KernelCall) -> Trial:
    from mlx_tx.kernels.trust import TOLERANCE
    from mlx_tx.paths import composed, fused

    works = call.works
    return Trial(
        kernel="+".join(work.kernel.name for work in works),
        label=f"{' and '.join(work.label for work in works)} ({call.label.strip()})",
        threads=max(work.threads for work in works),
        run=lambda: fused.launch(call.spec, call.arrays),
        expected=lambda: composed.run(call.spec, call.arrays),
        allowed=TOLERANCE[call.spec.dtype],
    )


def _gradients(dtype: str) -> Trial:
    """The gradient of a causal call with grouped heads, by q, k and v."""
    import mlx.core as mx

    from mlx_tx.kernels.trust import TOLERANCE
    from mlx_tx.paths import composed, fused

    from .emulator.attention_kernels import MANY, call

    case = call(3, dtype, (64, 64), MANY, (2, 4, 2), {"causal": True})
    kind = getattr(mx, dtype)
    arrays = [case.arrays.q, case.arrays.k, case.arrays.v]
    cotangent = mx.array(np.random.default_rng(4).standard_normal((2, 4, MANY[0], 64), np.float32)).astype(kind)

    def gradients(run: Callable[..., Any]) -> list[mx.array]:
        def out(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
            return run(case.spec, replace(case.arrays, q=q, k=k, v=v))[0].astype(kind)

        return list(mx.vjp(out, arrays, [cotangent])[1])

    return Trial(
        kernel="gradients",
        label=f"gradients by q, k, v ({dtype} D=64 causal)",
        threads=case.works[0].threads,
        run=lambda: gradients(fused.run),
        expected=lambda: gradients(composed.run),
        allowed=GRADIENT_FACTOR * TOLERANCE[kind],
    )


def _difference(x: mx.array, expected: mx.array) -> float:
    """The largest absolute difference; equal infinities do not differ, NaN always does."""
    import mlx.core as mx

    a, b = (np.asarray(value.astype(mx.float32)) for value in (x, expected))
    with np.errstate(invalid="ignore"):
        apart = np.where(a == b, np.float32(0), np.abs(a - b))
    return float("inf") if np.isnan(apart).any() else float(apart.max(initial=0.0))
