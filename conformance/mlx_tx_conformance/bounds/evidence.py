"""The evidence for the bounds: correct code stays within them, planted faults do not.

``python -m mlx_tx_conformance.bounds.evidence`` runs the seeded corpus through every correct implementation in its
precision class and reports error/bound, then each planted fault on the design that shows it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..call import DEFAULT_PRECISION, DTYPES, Call, Result
from ..inputs import Setting, find_design, rng_for
from . import faults
from .bound import Bound
from .corpus import Sample, samples
from .reference import Plain, correct_implementations
from .reference_gradients import Backward32
from .registry import bound_call
from .scale_fit import score_test

# |z| of the scale fit from which it counts as found; correct code stays below 1.
SCORE_THRESHOLD = 2.0


@dataclass(frozen=True)
class Headroom:
    """Error/bound of one run: the largest over all elements, by output, against the two forms apart and together."""

    dtype: str
    implementation: str
    output: str
    limit: float
    det: float
    prob: float
    undecided: int
    about: Mapping[str, Any]


def correct_runs(corpus: Iterable[Sample]) -> Iterable[Headroom]:
    """Every correct implementation, in every class that its dtype may declare, on every call."""
    for item in corpus:
        dtype = item.call.dtype
        for precision in ("f32-internal",) if dtype == "float32" else ("f32-internal", "P", "split"):
            bounds = bound_call(item.call, precision)
            for name, run in _implementations(item.call.op, dtype, precision).items():
                outputs = run(item.call)
                for output, actual in outputs.items():
                    yield _headroom(dtype, f"{precision}: {name}", output, actual, bounds[output], item.about)


def _implementations(op: str, dtype: str, precision: str) -> Mapping[str, Callable[[Call], dict[str, np.ndarray]]]:
    if op == "attention":
        return correct_implementations(dtype, precision)
    if precision == "split":
        return {}
    rounds = precision == "P"
    return {"from lse": Backward32(rounds), "from weights": Backward32(rounds, from_lse=False)}


def _headroom(
    dtype: str, name: str, output: str, actual: np.ndarray, bound: Bound, about: Mapping[str, Any]
) -> Headroom:
    decided = np.broadcast_to(bound.decidable, bound.value.shape)

    def largest(held: Bound) -> float:
        return float(np.max(np.where(decided, held.headroom(actual), 0.0), initial=0.0))

    det, prob = replace(bound, prob=bound.det), replace(bound, det=bound.prob)
    return Headroom(dtype, name, output, largest(bound), largest(det), largest(prob), int(np.sum(~decided)), about)


def summary(runs: Iterable[Headroom]) -> list[str]:
    """A table: runs, and median / 99 % / largest error/bound, by dtype, implementation and output."""
    rows: dict[tuple[str, str, str], list[Headroom]] = {}
    for run in runs:
        rows.setdefault((run.dtype, run.implementation, run.output), []).append(run)
    lines = [
        f"{'dtype':9} {'implementation':42} {'output':6} {'runs':>5}  limit (min of both)   det    prob  undecided"
    ]
    for (dtype, name, output), found in rows.items():
        limits = np.array([run.limit for run in found])
        middle, high, top = np.percentile(limits, [50, 99, 100])
        det, prob = max(run.det for run in found), max(run.prob for run in found)
        undecided = sum(run.undecided > 0 for run in found)
        lines.append(
            f"{dtype:9} {name:42} {output:6} {len(found):5}  {middle:.3f}/{high:.3f}/{top:.3f}"
            f"     {det:.3f}  {prob:.3f}  {undecided}"
        )
    return lines


@dataclass(frozen=True)
class Exhibit:
    """A fault and the design that shows it.

    ``seen_by``: ``out`` or ``lse`` (error/bound of that output exceeds 1), ``bits`` (the output is not the exact one),
    ``score test`` (the fit of a scale error exceeds its threshold).
    """

    fault: type[faults.Fault]
    design: str
    seen_by: str
    dims: Mapping[str, int]
    parameters: Mapping[str, Any]
    options: Mapping[str, Any]

    def call(self, dtype: str, seed: int = 0) -> Call:
        """The call on which the fault shows."""
        dims = {"B": 1, "N_q": 1, "N_kv": 1, "T_q": 4, "T_kv": 4096, "D": 96, "D_v": 96, **self.dims}
        rng = rng_for(f"{self.design} {self.fault.name}", seed, dtype)
        setting = Setting(dims, DTYPES[dtype], self.options)
        arrays = find_design(self.design)(rng, setting, **self.parameters)
        return Call("attention", arrays, self.options, {}, ("out", "lse"))

    def sight(self, call: Call, outputs: Mapping[str, np.ndarray]) -> float:
        """How clearly a run departs from what is right: at most 1 is right."""
        bounds = bound_call(call, DEFAULT_PRECISION[call.dtype])
        if self.seen_by == "bits":
            right = bounds["out"].value.astype(outputs["out"].dtype)
            return float("inf") if (outputs["out"] != right).any() else 0.0
        if self.seen_by == "score test":
            return abs(score_test(call, Result(outputs), bounds).z) / SCORE_THRESHOLD
        return float(bounds[self.seen_by].headroom(outputs[self.seen_by]).max())


def _exhibit(fault: type[faults.Fault], design: str, seen_by: str = "out", **rest: Any) -> Exhibit:
    parts = {"dims": {}, "parameters": {}, "options": {}, **rest}
    return Exhibit(fault, design, seen_by, **parts)


# Which design shows which fault. Every fault is shown in every dtype (the last two in float32 only).
EXHIBITS: tuple[Exhibit, ...] = (
    _exhibit(faults.LastKeyLost, "private_channels"),
    _exhibit(faults.LastKeyLost, "tagged"),
    _exhibit(faults.HiddenKeySeen, "private_channels"),
    _exhibit(faults.HiddenKeySeen, "one_live_key", "bits"),
    _exhibit(faults.SeenKeyHidden, "private_channels"),
    _exhibit(faults.SeenKeyHidden, "counting", "bits"),
    _exhibit(faults.WindowWider, "private_channels", options={"window": 1024, "causal": True}),
    _exhibit(faults.WindowWider, "counting", "bits", options={"window": 1024, "causal": True}),
    _exhibit(faults.WindowNarrower, "private_channels", options={"window": 1024, "causal": True}),
    _exhibit(faults.WindowNarrower, "counting", "bits", options={"window": 1024, "causal": True}),
    _exhibit(faults.ScaleOff, "balanced_sink"),
    _exhibit(faults.ScaleOff, "v_is_k", "score test", dims={"T_q": 8}),
    _exhibit(faults.ScaleOff, "normal", "lse"),
    _exhibit(faults.ScaleOfNextSize, "balanced_sink"),
    _exhibit(faults.ScaleOfNextSize, "normal", "lse"),
    _exhibit(faults.HalfScores, "competing"),
    _exhibit(faults.HalfScores, "spiky", "lse"),
    _exhibit(faults.HalfScoreSums, "competing"),
    _exhibit(faults.HalfScoreSums, "spiky"),
    _exhibit(faults.HalfOutputSums, "one_sign_v", parameters={"offset": 1.0}),
    _exhibit(faults.HalfTotals, "normal", "lse"),
    _exhibit(faults.RationalCap, "spiky", options={"softcap": 30.0}),
    _exhibit(faults.NarrowProducts, "competing"),
    _exhibit(faults.CoarseExp, "normal"),
)


def dtypes_of(exhibit: Exhibit) -> tuple[str, ...]:
    """The dtypes in which a fault must show."""
    return ("float32",) if exhibit.fault in faults.FLOAT32_FAULTS else tuple(DTYPES)


def fault_table(seeds: int = 1) -> list[str]:
    """A table: the least sight of each fault over the seeds, and the largest of correct code on the same calls."""
    lines = [f"{'fault':26} {'design':18} {'seen by':10} " + " ".join(f"{dtype:>20}" for dtype in DTYPES)]
    for exhibit in EXHIBITS:
        cells = []
        for dtype in DTYPES:
            if dtype not in dtypes_of(exhibit):
                cells.append(f"{'':>20}")
                continue
            wrong, right = [], []
            for seed in range(seeds):
                call = exhibit.call(dtype, seed)
                wrong.append(exhibit.sight(call, exhibit.fault()(call)))
                right.append(exhibit.sight(call, Plain(dtype != "float32")(call)))
            cells.append(f"{min(wrong):.3g} (right {max(right):.2g})".rjust(20))
        lines.append(f"{exhibit.fault.name:26} {exhibit.design:18} {exhibit.seen_by:10} " + " ".join(cells))
    return lines


def main(argv: list[str] | None = None) -> int:
    """Run the evidence; exit status 1 where correct code exceeds a bound or a fault does not show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300, help="attention calls of the corpus (default 300)")
    parser.add_argument("--gradients", type=int, default=60, help="gradient calls of the corpus (default 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, default=4096, help="most keys of a call")
    parser.add_argument("--fault-seeds", type=int, default=1, help="draws of each fault's design")
    parser.add_argument("--no-faults", action="store_true", help="correct code only")
    arguments = parser.parse_args(argv)
    runs = list(correct_runs(samples(arguments.cases, arguments.seed, arguments.longest)))
    runs += correct_runs(samples(arguments.gradients, arguments.seed, min(1024, arguments.longest), gradients=True))
    print("\n".join(summary(runs)))
    exceeding = [run for run in runs if not run.limit <= 1]
    for run in exceeding:
        print(f"exceeds its bound: {run}")
    if not arguments.no_faults:
        print("\n".join(["", *fault_table(arguments.fault_seeds)]))
    return 1 if exceeding else 0


if __name__ == "__main__":
    raise SystemExit(main())
