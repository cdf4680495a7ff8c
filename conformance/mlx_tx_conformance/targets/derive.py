"""Other ops made of an attention function: gradients, forward-mode and second derivatives, a vectorised call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..call import Call

Arrays = dict[str, Any]
Function = Callable[[Arrays], Arrays]
Attend = Callable[[Arrays, Mapping[str, Any], bool], tuple[Any, Any]]

# Array axes that are the batch, by number of dimensions, for arrays that have one.
BATCHED = {"q": 4, "k": 4, "v": 4, "mask": 4, "bias": 4, "alibi": 2, "kv_lengths": 1, "q_offset": 1, "segments": 2}
BATCHED |= {"q_segments": 2, "kv_segments": 2}


def attention(attend: Attend, options: Mapping[str, Any], call: Call) -> Function:
    """Results ``out`` and, where wanted, ``lse``."""
    want_lse = "lse" in call.outputs

    def function(arrays: Arrays) -> Arrays:
        out, lse = attend(arrays, options, want_lse)
        return {"out": out} if lse is None else {"out": out, "lse": lse}

    return function


def gradients(attend: Attend, options: Mapping[str, Any], call: Call) -> Function:
    """Gradients by the input arrays that the call's outputs name, for the cotangents ``d_out`` and ``d_lse``."""
    outputs = call.outputs
    names = [name for name in outputs if name in call.arrays]

    def function(arrays: Arrays) -> Arrays:
        import mlx.core as mx

        arrays = dict(arrays)
        cotangents = [arrays.pop(name) for name in ("d_out", "d_lse") if name in arrays]
        want_lse = len(cotangents) > 1 or "lse" in outputs
        if want_lse and len(cotangents) == 1:
            cotangents.append(mx.zeros(cotangents[0].shape[:-1], dtype=mx.float32))
        fixed, primals = _split(arrays, names)

        def values(*given: Any) -> list[Any]:
            out, lse = attend({**fixed, **dict(zip(names, given, strict=True))}, options, want_lse)
            return [out] if lse is None else [out, lse]

        results, found = mx.vjp(values, primals, cotangents)
        named = {**dict(zip(names, found, strict=True)), **dict(zip(("out", "lse"), results, strict=False))}
        return {name: named[name] for name in outputs if name in named}

    return function


def forward_mode(attend: Attend, options: Mapping[str, Any], call: Call) -> Function:
    """The derivative of the output along the tangents ``t_q``, ``t_k``, ``t_v``."""
    del call

    def function(arrays: Arrays) -> Arrays:
        import mlx.core as mx

        arrays, primals, tangents = _with_tangents(arrays)

        def value(*given: Any) -> list[Any]:
            return [attend({**arrays, **dict(zip(("q", "k", "v"), given, strict=True))}, options, False)[0]]

        _, derivative = mx.jvp(value, primals, tangents)
        return {"out": derivative[0]}

    return function


def second(attend: Attend, options: Mapping[str, Any], call: Call) -> Function:
    """Reverse over reverse: the gradient by q of ``<dq, t_q>``, dq being the gradient by q for the cotangent ``d_out``.

    By the symmetry of second derivatives this is the derivative of dq along ``t_q``.
    """
    del call

    def function(arrays: Arrays) -> Arrays:
        import mlx.core as mx

        arrays, (q, k, v), tangents = _with_tangents(arrays)
        d_out = arrays.pop("d_out")

        def value(*given: Any) -> list[Any]:
            return [attend({**arrays, **dict(zip(("q", "k", "v"), given, strict=True))}, options, False)[0]]

        def gradient(moving: Any) -> list[Any]:
            return [mx.vjp(value, [moving, k, v], [d_out])[1][0]]

        _, derivative = mx.vjp(gradient, [q], [tangents[0]])
        return {"out": derivative[0]}

    return function


def vectorised(attend: Attend, options: Mapping[str, Any], call: Call) -> Function:
    """The same results through ``mx.vmap`` over the batch: each call sees a batch of one."""
    B = call.arrays["q"].shape[0]
    names = list(call.arrays)
    mapped = [BATCHED.get(n) == a.ndim and a.shape[0] == B for n, a in call.arrays.items()]

    def function(arrays: Arrays) -> Arrays:
        import mlx.core as mx

        def value(*given: Any) -> Any:
            return attend(dict(zip(names, given, strict=True)), options, False)[0]

        axes = tuple(0 if batched else None for batched in mapped)
        # The batch axis is mapped over, and a new batch axis of one takes its place.
        given = [arrays[n][:, None] if batched else arrays[n] for n, batched in zip(names, mapped, strict=True)]
        return {"out": mx.vmap(value, in_axes=axes)(*given)[:, 0]}

    return function


DERIVED: Mapping[str, Callable[[Attend, Mapping[str, Any], Call], Function]] = {
    "attention": attention,
    "attention_gradients": gradients,
    "attention_jvp": forward_mode,
    "attention_hvp": second,
    "attention_vmap": vectorised,
}


# Ops that differentiate nothing.
FORWARD_OPS = frozenset(
    {
        *("attention", "rope", "alibi_slopes", "softmax", "attention_layer", "rnn"),
        *("embedding", "sinusoidal", "learned_positions", "relative_bias", "rms_norm", "layer_norm", "mlp", "moe"),
    }
)


def compiled(function: Function) -> Function:
    """The same function through ``mx.compile``."""

    def run(arrays: Arrays) -> Arrays:
        import mlx.core as mx

        names = list(arrays)
        found: list[str] = []

        def flat(*values: Any) -> list[Any]:
            results = function(dict(zip(names, values, strict=True)))
            found[:] = list(results)
            return list(results.values())

        values = mx.compile(flat)(*arrays.values())
        return dict(zip(found, values, strict=True))

    return run


def _split(arrays: Arrays, names: Sequence[str]) -> tuple[Arrays, list[Any]]:
    fixed = {name: array for name, array in arrays.items() if name not in names}
    return fixed, [arrays[name] for name in names]


def _with_tangents(arrays: Arrays) -> tuple[Arrays, list[Any], list[Any]]:
    arrays = dict(arrays)
    primals = [arrays.pop(name) for name in ("q", "k", "v")]
    tangents = [arrays.pop(f"t_{name}") for name in ("q", "k", "v")]
    return arrays, primals, tangents
