"""Which values of the features of a model's parts a case exercises; see :mod:`.features`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .features import CaseLike, Feature, has_array

SCALINGS = ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope")
MLP_KINDS = ("relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh")
GATED = frozenset({"swiglu", "geglu", "geglu_tanh"})
# From here on positions lie beyond what anything was trained on.
FAR = 100_000


def _written(recipe: Any) -> list[Any]:
    """The numbers of an array that is written out, flat."""
    if isinstance(recipe, dict):
        recipe = recipe.get("values", [])
    if not isinstance(recipe, list):
        return [recipe]
    return [number for part in recipe for number in _written(part)]


def _ids(case: CaseLike) -> Iterable[str]:
    ids = _written(case.inputs.get("ids", []))
    outside = [n for n in ids if isinstance(n, int) and not 0 <= n < case.dims["vocab"]]
    if not outside:
        return ("inside",)
    return [label for label, there in (("negative", min(outside) < 0), ("too large", max(outside) >= 0)) if there]


IDS = Feature("ids", ("inside", "negative", "too large"), _ids)


def _far(case: CaseLike) -> Iterable[str]:
    recipe = case.inputs.get("positions")
    numbers = [n for n in _written(recipe) if isinstance(n, int | float)] if recipe is not None else []
    formula = recipe.get("formula", "") if isinstance(recipe, dict) else ""
    digits = [int(word) for word in str(formula).replace("+", " ").split() if word.isdigit()]
    return ("far" if max([*numbers, *digits], default=0) >= FAR else "near",)


FAR_POSITIONS = Feature("positions", ("near", "far"), _far)


def _channels(case: CaseLike) -> Iterable[str]:
    dims = case.call.get("dims", case.dims["d_model"])
    return ("two" if dims == 2 else "odd" if dims % 2 else "even",)


CHANNELS = Feature("channels", ("even", "odd", "two"), _channels)


def _scaling(case: CaseLike) -> Iterable[str]:
    scaling = case.call.get("scaling")
    return ("none" if scaling is None else str(scaling.get("kind")),)


SCALING = Feature("scaling", ("none", *SCALINGS), _scaling)


def _truncated(case: CaseLike) -> Iterable[str]:
    scaling = case.call.get("scaling") or {}
    if scaling.get("kind") == "yarn":
        yield "truncated" if scaling.get("truncate", True) else "not truncated"


TRUNCATED = Feature("yarn ramp", ("truncated", "not truncated"), _truncated)


def _factors(case: CaseLike) -> Iterable[str]:
    scaling = case.call.get("scaling") or {}
    if scaling.get("kind") == "longrope":
        length = case.call.get("length", 0)
        yield "long" if length > scaling["original_max_positions"] else "short"


FACTORS = Feature("longrope factors", ("short", "long"), _factors)

KIND = Feature("kind", MLP_KINDS, lambda case: (case.call["kind"],) if "kind" in case.call else ())
BIASES = Feature(
    "biases",
    ("none", "given"),
    lambda case: ("given" if any(has_array(case, name) for name in ("b_up", "b_gate", "b_down")) else "none",),
)


def _top_k(case: CaseLike) -> Iterable[str]:
    k = case.call.get("top_k")
    if k is not None:
        yield "one" if k == 1 else "all" if k == case.dims["experts"] else "some"


TOP_K = Feature("top_k", ("one", "some", "all"), _top_k)


def choice_of(name: str, *values: str) -> Feature:
    """An option whose value is a word or a flag, by the value; absent ones are not counted."""
    return Feature(name, values, lambda case: () if name not in case.call else (str(case.call[name]).lower(),))
