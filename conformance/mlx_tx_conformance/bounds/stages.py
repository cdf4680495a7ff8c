"""Bounds of the stages of a whole model, each computed from the implementation's own previous stages.

An error then shows where it was made and nowhere else, and no bound grows with the depth of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ..call import Call
from ..oracle import models
from ..oracle.layers import merge_heads, split_heads
from ..oracle.record import Recorder, Step
from .attention import bounds_of_problem
from .bound import Bound, finish
from .classes import PrecisionClass
from .mlp import Errors, hidden_errors, linear_errors, mixture_errors, routing_errors
from .norms import layer_norm_errors, rms_norm_errors
from .problem import attention_problem
from .quantise import quantised_errors
from .rope_scaling import scaled_rope_errors
from .sinusoidal import sinusoidal_errors
from .units import U

Weights = Mapping[str, np.ndarray]
Stages = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Model:
    """A configuration with float64 weights, and what an oracle of its kind is called with."""

    config: Mapping[str, Any]
    weights: Weights
    inputs: tuple[np.ndarray, ...]
    options: Mapping[str, Any]

    def run(self, record: Recorder) -> Recorder:
        """The oracle on this model, recorded."""
        run: Callable[..., Any] = getattr(models, self.config["kind"])
        run(self.config, self.weights, *self.inputs, **self.options, record=record)
        return record


@dataclass(frozen=True)
class _Stage:
    """One stage: how it came about, and what to read it from."""

    name: str
    step: Step
    record: Recorder
    weights: Weights
    dtype: str
    precision: PrecisionClass

    @property
    def value(self) -> np.ndarray:
        return self.record.values[self.name]

    def read(self, n: int) -> np.ndarray:
        return self.record.read(self.step.inputs[n])

    def weight(self, ending: str) -> np.ndarray | None:
        found = [self.weights[name] for name in self.step.weights if name.endswith(ending)]
        return found[0] if found else None


def stage_bounds(model: Model, stages: Stages, dtype: str, precision: PrecisionClass) -> dict[str, Bound]:
    """Bound of every stage by name, in the order of the computation.

    ``stages`` are the implementation's, all of them; those that it lacks are computed by the oracle in their place.
    """
    record = model.run(Recorder(stages))
    bounds = {}
    for name, step in record.steps.items():
        stage = _Stage(name, step, record, model.weights, dtype, precision)
        bounds[name] = _BOUNDS[step.op](stage)
    return bounds


def _embedding(stage: _Stage) -> Bound:
    """A row, times a float32 factor, plus the code of the position: float32 inside, rounded once."""
    options, value = stage.step.options, stage.value
    row = options["scale"] * stage.weights[stage.step.weights[0]][options["ids"]]
    error = np.zeros_like(value) if options["scale"] == 1.0 else 2.0 * U * np.abs(row)
    if options["position"] == "sinusoidal":
        d_model = value.shape[-1]
        error = error + sinusoidal_errors(options["positions"], d_model, stage.precision, base=options["base"])[1]
        error = error + U * np.abs(value)
    if options["position"] == "learned":
        error = error + U * np.abs(value)
    return finish(value, error, error, stage.dtype)


def _norm(stage: _Stage) -> Bound:
    options = stage.step.options
    given = {"eps": options["eps"], "offset": options["offset"]}
    x, weight, bias = stage.read(0), stage.weight(".weight"), stage.weight(".bias")
    if options["kind"] == "layer":
        value, det, prob = layer_norm_errors(x, weight, bias, **given)
        return finish(value, det, prob, stage.dtype)
    value, det, prob = rms_norm_errors(x, weight, bias, **given)
    return finish(value, det, prob, stage.dtype)


def _linear(stage: _Stage) -> Bound:
    return _product(stage, stage.read(0))


def _join(stage: _Stage) -> Bound:
    return _product(stage, merge_heads(stage.read(0)))


def _product(stage: _Stage, x: np.ndarray) -> Bound:
    weight = stage.weight(".weight")
    assert weight is not None
    errors = linear_errors(x, weight.T, stage.weight(".bias"))
    cap, heads = stage.step.options.get("softcap"), stage.step.options.get("heads")
    if cap is not None:
        errors = _capped(errors.stored(stage.dtype), cap)
    if heads is not None:
        errors = Errors(*(split_heads(part, heads) for part in (errors.value, errors.det, errors.prob)))
    return errors.bound(stage.dtype)


def _capped(x: Errors, cap: float) -> Errors:
    """cap tanh(x / cap): errors shrink by the slope, or what it becomes within them; tanh errs by 4 ulp of 1."""
    value = cap * np.tanh(x.value / cap)
    slope = 1.0 - (value / cap) ** 2
    own = 8.0 * U * cap + 2.0 * U * np.abs(x.value) * slope
    det, prob = (error * np.minimum(1.0, slope + error / cap) + own for error in (x.det, x.prob))
    return Errors(value, det, prob)


def _rope(stage: _Stage) -> Bound:
    value, error = scaled_rope_errors(stage.read(0), stage.precision, **stage.step.options)
    return finish(value, error, error, stage.dtype)


def _attention(stage: _Stage) -> Bound:
    options = {name: value for name, value in stage.step.options.items() if value is not None}
    arrays = {name: stage.read(n) for n, name in enumerate(("q", "k", "v"))}
    for name in ("mask", "bias", "sinks", "kv_lengths", "segments"):
        if name in options:
            arrays[name] = np.asarray(options.pop(name))
    given = Call("attention", arrays, options)
    return bounds_of_problem(attention_problem(given, dtype=stage.dtype), stage.precision)["out"]


def _add(stage: _Stage) -> Bound:
    nothing = np.zeros_like(stage.value)
    return finish(stage.value, nothing, nothing, stage.dtype)


def _hidden(stage: _Stage) -> Bound:
    x = stage.read(0)
    up = linear_errors(x, _transposed(stage, "up_proj.weight"), stage.weight("up_proj.bias"))
    gate = None
    if stage.weight("gate_proj.weight") is not None:
        gate = linear_errors(x, _transposed(stage, "gate_proj.weight"), stage.weight("gate_proj.bias"))
    return hidden_errors(stage.step.options["kind"], up, gate, stage.dtype).bound(stage.dtype)


def _transposed(stage: _Stage, ending: str) -> np.ndarray:
    weight = stage.weight(ending)
    assert weight is not None
    return weight.swapaxes(-1, -2)


def _routing(stage: _Stage) -> Bound:
    logits = stage.read(0)
    exact = np.zeros_like(logits)
    options = stage.step.options
    errors, _ = routing_errors(Errors(logits, exact, exact), options["top_k"], options["norm_topk"])
    # The shares are float32 whatever the dtype of the model.
    return errors.bound("float32")


def _mixture(stage: _Stage) -> Bound:
    x, shares = stage.read(0), stage.read(1)
    short = {"up_proj": "up", "gate_proj": "gate", "down_proj": "down"}
    weights = {}
    for name in stage.step.weights:
        layer, part = name.split(".")[-2:]
        array = stage.weights[name]
        weights[f"{'w' if part == 'weight' else 'b'}_{short[layer]}"] = (
            array.swapaxes(-1, -2) if part == "weight" else array
        )
    exact = np.zeros_like(shares)
    errors = mixture_errors(x, weights, Errors(shares, exact, exact), stage.step.options["expert_kind"], stage.dtype)
    return errors.bound(stage.dtype)


def _quantise(stage: _Stage) -> Bound:
    value, error = quantised_errors(stage.read(0), stage.dtype, **stage.step.options)
    return finish(value, error, error, stage.dtype)


_BOUNDS: Mapping[str, Callable[[_Stage], Bound]] = MappingProxyType(
    {
        "add": _add,
        "attention": _attention,
        "embedding": _embedding,
        "hidden": _hidden,
        "join": _join,
        "linear": _linear,
        "mixture": _mixture,
        "norm": _norm,
        "quantise": _quantise,
        "rope": _rope,
        "routing": _routing,
    }
)
