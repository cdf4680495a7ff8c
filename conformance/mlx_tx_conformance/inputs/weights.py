"""The weights of a model: every parameter that its configuration has, by name, from the case's id and seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..call import DTYPES
from ..oracle import settings
from ..oracle.parameters import parameter_shapes

Rng = Callable[[str], np.random.Generator]


def model_weights(
    config: Mapping[str, Any], rng_for: Rng, dtype: str, recipe: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Every parameter of ``config`` by name.

    Matrices are normal with the deviation 1/sqrt(inputs), so that sizes stay near 1 from layer to layer; weights of
    norms lie around 1 less their offset; biases and tables are normal, too small to decide anything by themselves.
    ``recipe``: ``set`` writes arrays out by name, ``scale`` multiplies those that a glob names, ``zero`` clears them.
    """
    recipe = recipe or {}
    model = settings.read(config)
    written = recipe.get("set") or {}
    shapes = parameter_shapes(config)
    unknown = [name for name in written if name not in shapes]
    if unknown:
        raise ValueError(f"[inputs] weights.set must name parameters of the model; got {', '.join(unknown)}")
    arrays = {}
    for name, shape in shapes.items():
        array = _random(name, shape, model, rng_for(name))
        if name in written:
            array = np.broadcast_to(np.asarray(written[name], dtype=np.float64), shape)
        for glob, factor in (recipe.get("scale") or {}).items():
            if fnmatchcase(name, glob):
                array = array * float(factor)
        if any(fnmatchcase(name, glob) for glob in recipe.get("zero") or ()):
            array = np.zeros(shape)
        arrays[name] = np.ascontiguousarray(array).astype(DTYPES[dtype])
    return arrays


def _random(name: str, shape: tuple[int, ...], model: settings.Model, rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(shape)
    if name.endswith(("sinks", "relative_bias.weight")):
        return noise
    if name.endswith(".bias"):
        return 0.2 * noise
    if name.startswith("embed_tokens"):
        return noise / model.embedding_scale
    if name.endswith("position.weight"):
        return noise
    if len(shape) == 1:
        return 1.0 - model.norm.offset + 0.2 * noise
    return noise * shape[-1] ** -0.5
