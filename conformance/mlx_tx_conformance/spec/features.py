"""Which values of a feature a case exercises: what the coverage gate counts.

Each function takes a case and gives the names of the values that it exercises, as listed beside it in ``ops``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# A case, by its attributes only: the registry of ops must not depend on the model of the spec.
CaseLike = Any


@dataclass(frozen=True)
class Feature:
    """Something that varies between calls of an op, and the values of it that the spec must exercise."""

    name: str
    values: tuple[str, ...]
    found: Callable[[CaseLike], Iterable[str]]


MASK_SHAPES = ("2-D", "3-D", "shared", "by batch", "by head", "full", "one row of keys", "one column of queries")


def _option(name: str) -> Callable[[CaseLike], Iterable[str]]:
    return lambda case: ("none" if case.call.get(name) is None else "given",)


def flag(name: str, label: str | None = None) -> Feature:
    """An option that is true or false."""
    return Feature(label or name, ("false", "true"), lambda case: (str(bool(case.call.get(name))).lower(),))


def given(name: str) -> Feature:
    """An option that may be absent."""
    return Feature(name, ("none", "given"), _option(name))


def array(name: str) -> Feature:
    """An array that may be absent."""
    return Feature(name, ("none", "given"), lambda case: ("given" if has_array(case, name) else "none",))


def has_array(case: CaseLike, name: str) -> bool:
    """Whether an array is among the inputs, or a name of an intermediate value under the call."""
    return case.inputs.get(name) is not None or name in _references(case)


def _references(case: CaseLike) -> set[str]:
    return {name for name, value in case.call.items() if isinstance(value, str) and value in case.let}


DTYPE = Feature("dtype", ("float32", "float16", "bfloat16"), lambda case: (case.dtype,))


def _window(case: CaseLike) -> Iterable[str]:
    window = case.call.get("window")
    return ("none" if window is None else "pair" if isinstance(window, list | tuple) else "int",)


WINDOW = Feature("window", ("none", "int", "pair"), _window)


def _offset(case: CaseLike) -> Iterable[str]:
    if case.inputs.get("q_offset") is not None:
        return ("array",)
    return ("none" if case.call.get("q_offset") is None else "int",)


Q_OFFSET = Feature("q_offset", ("none", "int", "array"), _offset)


def _alibi(case: CaseLike) -> Iterable[str]:
    recipe = case.inputs.get("alibi")
    if recipe is None:
        return ("standard" if case.call.get("alibi") else "none",)
    return ("slopes by batch" if len(literal_shape(recipe, case)) == 2 else "slopes",)


ALIBI = Feature("alibi", ("none", "standard", "slopes"), _alibi)


def _segments(case: CaseLike) -> Iterable[str]:
    if case.inputs.get("q_segments") is not None:
        return ("pair",)
    return ("self" if case.inputs.get("segments") is not None else "none",)


SEGMENTS = Feature("segments", ("none", "self", "pair"), _segments)


def _heads(case: CaseLike) -> Iterable[str]:
    N_q, N_kv = case.dims["N_q"], case.dims["N_kv"]
    if N_q == N_kv:
        return ("mha",) if N_q > 1 else ()
    return ("mqa" if N_kv == 1 else "gqa",)


HEADS = Feature("heads", ("mha", "gqa", "mqa"), _heads)


def _value_size(case: CaseLike) -> Iterable[str]:
    D, D_v = case.dims["D"], case.dims["D_v"]
    return ("D_v = D" if D_v == D else "D_v < D" if D_v < D else "D_v > D",)


VALUE_SIZE = Feature("value size", ("D_v = D", "D_v < D", "D_v > D"), _value_size)


def _head_size(case: CaseLike) -> Iterable[str]:
    D = case.dims["D"]
    return ("a multiple of 8" if D % 8 == 0 else "not a multiple of 8",)


HEAD_SIZE = Feature("head size", ("a multiple of 8", "not a multiple of 8"), _head_size)


def _lengths(case: CaseLike) -> Iterable[str]:
    T_q, T_kv = case.dims["T_q"], case.dims["T_kv"]
    if T_q == 1 < T_kv:
        yield "T_q = 1"
    yield "T_q = T_kv" if T_q == T_kv else "T_q < T_kv" if T_q < T_kv else "T_q > T_kv"


LENGTHS = Feature("lengths", ("T_q = 1", "T_q < T_kv", "T_q = T_kv", "T_q > T_kv"), _lengths)

BATCH = Feature("batch", ("one", "many"), lambda case: ("one" if case.dims["B"] == 1 else "many",))


def mask_form(recipe: Any) -> str:
    """``boolean`` or ``additive``, from the recipe of a mask."""
    if isinstance(recipe, dict):
        if "values" in recipe:
            return mask_form(recipe["values"])
        return "boolean" if "where" in recipe and recipe.get("additive") is None else "additive"
    while isinstance(recipe, list) and recipe:
        recipe = recipe[0]
    return "boolean" if isinstance(recipe, bool) else "additive"


def _mask(case: CaseLike) -> Iterable[str]:
    if case.inputs.get("mask") is None:
        return ("causal",) if case.call.get("mask") == "causal" else ("none",)
    return (mask_form(case.inputs["mask"]),)


MASK = Feature("mask", ("none", "boolean", "additive"), _mask)


def literal_shape(recipe: Any, case: CaseLike) -> tuple[int, ...]:
    """The shape that a recipe gives a mask, bias or slopes array: its own, that of its values, or the full one."""
    if isinstance(recipe, dict):
        if recipe.get("shape") is not None:
            return tuple(recipe["shape"])
        if "values" in recipe:
            return literal_shape(recipe["values"], case)
        return tuple(case.dims[name] for name in ("B", "N_q", "T_q", "T_kv"))
    shape = []
    while isinstance(recipe, list):
        shape.append(len(recipe))
        recipe = recipe[0] if recipe else None
    return tuple(shape)


def mask_shape(recipe: Any, case: CaseLike) -> str:
    """Which of :data:`MASK_SHAPES` a mask has. An axis of length one in the whole case is spanned by nothing."""
    shape = literal_shape(recipe, case)
    if len(shape) < 4:
        return f"{len(shape)}-D"
    sizes = tuple(case.dims[name] for name in ("B", "N_q", "T_q", "T_kv"))
    batch, head, query, key = (n == size > 1 for n, size in zip(shape, sizes, strict=True))
    if not query and sizes[2] > 1:
        return "one row of keys"
    if not key and sizes[3] > 1:
        return "one column of queries"
    return "full" if batch and head else "by batch" if batch else "by head" if head else "shared"


def shapes_of(name: str, form: str | None = None) -> Feature:
    """The broadcast shapes of a mask (of one form) or of a bias."""

    def found(case: CaseLike) -> Iterable[str]:
        recipe = case.inputs.get(name)
        if recipe is None or (form is not None and mask_form(recipe) != form):
            return ()
        return (mask_shape(recipe, case),)

    return Feature(f"{form} {name} shape" if form else f"{name} shape", MASK_SHAPES, found)


def layouts(*names: str) -> Feature:
    """How the main arrays lie in memory."""
    values = ("contiguous", "transposed", "sliced", "broadcast", "offset", "donated")
    return Feature("layout", values, lambda case: {case.layout.get(name, "contiguous") for name in names})


def outputs(*names: str) -> Feature:
    """Each output asked for."""
    return Feature("outputs", names, lambda case: case.call["outputs"])


def _power_of_two(case: CaseLike) -> Iterable[str]:
    n = case.call.get("n_heads", 0)
    return ("a power of two" if n & (n - 1) == 0 else "not a power of two",) if isinstance(n, int) else ()


HEAD_COUNT = Feature("head count", ("a power of two", "not a power of two"), _power_of_two)


def _axis(case: CaseLike) -> Iterable[str]:
    return ("last" if case.call.get("axis", -1) in (-1, 3) else "another",)


AXIS = Feature("axis", ("last", "another"), _axis)


def _rotated(case: CaseLike) -> Iterable[str]:
    dims = case.call.get("dims")
    return ("some" if dims is not None and dims != case.dims["D"] else "all",)


ROTATED = Feature("dims", ("all", "some"), _rotated)


def _rope_offset(case: CaseLike) -> Iterable[str]:
    if case.inputs.get("offset") is not None:
        return ("array",)
    return ("none" if case.call.get("offset") is None else "int",)


ROPE_OFFSET = Feature("offset", ("none", "int", "array"), _rope_offset)


def _projection_biases(case: CaseLike) -> Iterable[str]:
    return ("given" if any(has_array(case, name) for name in ("b_q", "b_k", "b_v", "b_o")) else "none",)


PROJECTION_BIASES = Feature("biases", ("none", "given"), _projection_biases)
