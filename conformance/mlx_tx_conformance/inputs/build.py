"""From a case of the spec to a call with arrays: deterministic by the case's id and seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..call import DTYPES, Call
from ..spec.expr import evaluate
from ..spec.ops import OPS
from .designs import Setting, find_design
from .recipes import build_array
from .weights import model_weights

_QKV = ("q", "k", "v")
# What arrays of whole numbers hold where a case says nothing: any token of the vocabulary; positions in order.
_TOKENS = {"uniform": [0, "vocab"]}
_DEFAULTS: Mapping[str, Any] = {"ids": _TOKENS, "tokens": _TOKENS, "source": _TOKENS, "positions": {"formula": "j"}}


def rng_for(case_id: str, seed: int, name: str) -> np.random.Generator:
    """The generator of one array (or of the design) of a case; another array's recipe does not change it."""
    digest = hashlib.sha256(f"{case_id}\0{seed}\0{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def build_call(case: Any) -> Call:
    """The call that a case describes, its arrays made.

    ``inputs.design`` makes q, k and v (and perhaps a mask); recipes of the same names go before it. Arrays that the
    operation requires and the case does not mention are normal: of standard deviation 1, weights of 1/sqrt(rows).
    Names of intermediate values under ``call`` are left out: a chain fills them in.
    """
    op = OPS[case.call["op"]]
    names = {**case.dims, **{name: value for name, value in case.call.items() if isinstance(value, int | float)}}
    recipes = {name: recipe for name, recipe in case.inputs.items() if name != "design" and recipe is not None}
    config = case.call.get("config") if op.weighted else None
    if config is not None:
        names = {**names, "vocab": config["vocab_size"]}
        if config["kind"] == "encoder_decoder":
            recipes = {"source": _TOKENS, **recipes}
    options = {name: value for name, value in case.call.items() if _is_option(case, name, value)}

    arrays: dict[str, np.ndarray] = {}
    if all(name in op.arrays for name in _QKV):
        arrays.update(_designed(case, options, frozenset(recipes)))
    for name, array in op.arrays.items():
        recipe = recipes.get(name)
        if recipe is None:
            if name in arrays or not (array.required or name == "d_out"):
                continue
            recipe = _DEFAULTS.get(name, {"normal": 1.0})
        shape = tuple(int(evaluate(size, names)) for size in array.shape)
        if name.startswith("w_") and name not in recipes:
            recipe = {"normal": shape[-2] ** -0.5}
        rng = rng_for(case.id, case.seed, name)
        arrays[name] = build_array(name, recipe, shape=shape, dtype=case.dtype, rng=rng, names=names)
    if config is not None:
        try:
            rng_of = lambda n: rng_for(case.id, case.seed, n)  # noqa: E731
            arrays.update(model_weights(config, rng_of, case.dtype, case.call.get("weights")))
        except ValueError:
            if case.check != "raises":  # a configuration that must be refused may have no weights
                raise
    for name, layout in case.layout.items():
        if layout == "broadcast":  # only an array that repeats along the batch can lie so
            arrays[name] = np.repeat(arrays[name][:1], len(arrays[name]), axis=0)
    outputs = tuple(case.call.get("outputs") or op.default_outputs)
    return Call(op.name, arrays, options, dict(case.layout), outputs)


def _designed(case: Any, options: Mapping[str, Any], given: frozenset[str]) -> dict[str, np.ndarray]:
    chosen = case.inputs.get("design") or "normal"
    (name, parameters), *rest = chosen.items() if isinstance(chosen, Mapping) else [(chosen, None)]
    if rest:
        raise ValueError(f"[inputs] design must be one design with its parameters; got {chosen!r}")
    setting = Setting(case.dims, DTYPES[case.dtype], options, given)
    made = find_design(name)(rng_for(case.id, case.seed, "design"), setting, **(parameters or {}))
    return {name: array for name, array in made.items() if name not in given}


def _is_option(case: Any, name: str, value: Any) -> bool:
    if name in ("op", "outputs") or value is None:
        return False
    return not (isinstance(value, str) and value in case.let)


def fingerprint(call: Call) -> str:
    """sha256 of the call's inputs: name, dtype, shape and bytes of every array, by name."""
    digest = hashlib.sha256()
    for name in sorted(call.arrays):
        array = np.ascontiguousarray(call.arrays[name])
        digest.update(f"{name}\0{array.dtype.name}\0{','.join(map(str, array.shape))}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
