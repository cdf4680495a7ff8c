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
    """A table in Markdown: median / 99 % / largest error/bound of every output, by dtype and implementation.

    Below it, for each dtype and class, the largest against either form alone.
    """
    found: dict[tuple[str, str], dict[str, list[Headroom]]] = {}
    for run in runs:
        found.setdefault((run.dtype, run.implementation), {}).setdefault(run.output, []).append(run)
    outputs = list(dict.fromkeys(output for by_output in found.values() for output in by_output))
    lines = [f"| dtype | implementation | calls | {' | '.join(outputs)} |", "|---" * (3 + len(outputs)) + "|"]
    for (dtype, name), by_output in found.items():
        cells = [_spread(by_output.get(output, [])) for output in outputs]
        calls = max(len(group) for group in by_output.values())
        lines.append(f"| {dtype} | {name} | {calls} | {' | '.join(cells)} |")
    classes: dict[tuple[str, str], list[Headroom]] = {}
    for (dtype, name), by_output in found.items():
        classes.setdefault((dtype, name.split(":")[0]), []).extend(run for group in by_output.values() for run in group)
    lines.append("")
    for (dtype, precision), group in classes.items():
        det, prob = max(run.det for run in group), max(run.prob for run in group)
        undecided = sum(run.undecided > 0 for run in group)
        lines.append(
            f"{dtype}, class {precision}: {len(group)} outputs, largest against the deterministic form {det:.3f}, "
            f"the probabilistic {prob:.3f}; not decidable: {undecided}"
        )
    return lines


def _spread(runs: list[Headroom]) -> str:
    if not runs:
        return ""
    middle, high, top = np.percentile([run.limit for run in runs], [50, 99, 100])
    return f"{middle:.3f} / {high:.3f} / {top:.3f}"


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


def fault_table(seeds: int = 1) -> tuple[list[str], bool]:
    """A table in Markdown: the least sight of each fault over the seeds, and the largest of correct code there.

    The second result tells whether every fault was seen and no correct run was.
    """
    lines = [f"| fault | design | seen by | {' | '.join(DTYPES)} |", "|---" * (3 + len(DTYPES)) + "|"]
    good = True
    for exhibit in EXHIBITS:
        cells = []
        for dtype in DTYPES:
            if dtype not in dtypes_of(exhibit):
                cells.append("")
                continue
            calls = [exhibit.call(dtype, seed) for seed in range(seeds)]
            wrong = min(exhibit.sight(call, exhibit.fault()(call)) for call in calls)
            right = max(exhibit.sight(call, Plain(dtype != "float32")(call)) for call in calls)
            good = good and wrong > 1 >= right
            cells.append(
                "yes (no)" if exhibit.seen_by == "bits" and wrong > 1 >= right else f"{wrong:.3g} ({right:.2g})"
            )
        lines.append(f"| {exhibit.fault.name} | {exhibit.design} | {exhibit.seen_by} | {' | '.join(cells)} |")
    return lines, good


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
    good = True
    for count, longest, gradients in (
        (arguments.cases, arguments.longest, False),
        (arguments.gradients, min(1024, arguments.longest), True),
    ):
        runs = list(correct_runs(samples(count, arguments.seed, longest, gradients)))
        print("\n".join([f"{len(runs)} outputs of {count} calls", "", *summary(runs), ""]))
        for run in runs:
            if not run.limit <= 1:
                print(f"exceeds its bound: {run}")
                good = False
    if not arguments.no_faults:
        table, shown = fault_table(arguments.fault_seeds)
        print("\n".join(table))
        good = good and shown
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
