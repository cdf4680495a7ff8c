"""The parts of a model as ops, on mlx_tx's functions and modules with the arrays of the call in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from .derive import Arrays

Part = Callable[[Arrays, Mapping[str, Any]], Any]


def _embedding(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx.core as mx

    from mlx_tx.embeddings import Embedding

    table = arrays["table"]
    module = Embedding(*table.shape)
    module.weight = table
    found = module(arrays["ids"], check=bool(options.get("check")))
    scale = options.get("scale")
    # As the models do it: float32 inside, rounded once.
    return found if scale is None else (found.astype(mx.float32) * scale).astype(found.dtype)


def _learned_positions(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    from mlx_tx.embeddings import LearnedPositions

    table = arrays["table"]
    module = LearnedPositions(*table.shape)
    module.weight = table
    return module(arrays["positions"], check=bool(options.get("check")))


def _sinusoidal(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx_tx

    return mlx_tx.sinusoidal_positions(arrays["positions"], **options)


def _relative_bias(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx.core as mx

    from mlx_tx.relative import RelativeBias

    table, T_q, T_kv = arrays["table"], options["T_q"], options["T_kv"]
    module = RelativeBias(*table.shape)
    module.weight = table
    first = options.get("q_offset", T_kv - T_q)
    distances = mx.arange(T_kv)[None, None, :] - (mx.arange(T_q) + first)[None, :, None]
    return module(distances, bidirectional=options["bidirectional"], max_distance=options.get("max_distance", 128))


def _rms_norm(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx_tx

    return mlx_tx.rms_norm(arrays["x"], arrays.get("weight"), arrays.get("bias"), **options)


def _layer_norm(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx_tx

    return mlx_tx.layer_norm(arrays["x"], arrays.get("weight"), arrays.get("bias"), **options)


def _mlp(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    import mlx.core as mx

    from mlx_tx.config import GATED_MLPS, MLPConfig
    from mlx_tx.mlp import MLP

    x, kind = arrays["x"], options["kind"]
    parts = ("up", "gate", "down") if kind in GATED_MLPS else ("up", "down")
    biased = any(f"b_{name}" in arrays for name in parts)
    module = MLP(x.shape[-1], MLPConfig(kind=kind, d_ff=arrays["w_up"].shape[1], bias=biased))
    for name in parts:
        linear, weight = getattr(module, f"{name}_proj"), arrays[f"w_{name}"]
        linear.weight = weight.T
        if biased:
            linear.bias = arrays.get(f"b_{name}", mx.zeros((weight.shape[1],), dtype=weight.dtype))
    return module(x)


def _moe(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    from mlx_tx.config import GATED_MLPS, MLPConfig
    from mlx_tx.mlp import MoE

    x, kind = arrays["x"], options["kind"]
    E, _, d_ff = arrays["w_up"].shape
    config = MLPConfig(
        kind="moe",
        d_ff=d_ff,
        num_experts=E,
        top_k=options["top_k"],
        norm_topk=options["norm_topk"],
        expert_kind=kind,
    )
    module = MoE(x.shape[-1], config)
    module.router.weight = arrays["w_router"].T
    for name in ("up", "gate", "down") if kind in GATED_MLPS else ("up", "down"):
        getattr(module.experts, f"{name}_proj").weight = arrays[f"w_{name}"].swapaxes(-1, -2)
    return module(x)


def _rope(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    """Plain rotation, or by a recipe for longer texts."""
    import mlx_tx

    given = {**arrays, **options}
    x, scaling = given.pop("x"), given.pop("scaling", None)
    if scaling is None:
        given.pop("length", None)
        return mlx_tx.rope(x, **given)
    return mlx_tx.scaled_rope(x, scaling=mlx_tx.RopeScaling.from_dict(dict(scaling)), **given)


PARTS: Mapping[str, Part] = MappingProxyType(
    {
        "embedding": _embedding,
        "layer_norm": _layer_norm,
        "learned_positions": _learned_positions,
        "mlp": _mlp,
        "moe": _moe,
        "relative_bias": _relative_bias,
        "rms_norm": _rms_norm,
        "rope": _rope,
        "sinusoidal": _sinusoidal,
    }
)
