"""A failing attention call as a Python file of its own: NumPy, the implementation, and nothing of this package."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..call import DTYPES, Call, Target

# Arrays with at most this many elements are written out as lists.
LITERAL_ELEMENTS = 64
SEED = 0
BATCH_AXES = {"mask": 4, "bias": 4, "alibi": 2, "kv_lengths": 1, "q_offset": 1}
BATCH_AXES |= {"segments": 2, "q_segments": 2, "kv_segments": 2}


def make_snippet(target: Target, call: Call, departs: Callable[[Call], bool], title: str) -> str:
    """The snippet, or an empty text for an implementation that cannot be written down (a closure, another op).

    The call is cut to the batch row and heads that depart, and its q, k, v are drawn anew by seeded NumPy where that
    departs as well (``departs`` runs a call and says so); otherwise they are embedded.
    """
    reproduce: Callable[[Call], Any] | None = getattr(target, "reproduce", None)
    if reproduce is None or call.op != "attention" or reproduce(call) is None:
        return ""
    call = _cut(call, departs)
    drawn = call.with_arrays(**_drawn(call))
    seeded = departs(drawn)
    if seeded:
        call = drawn
    made = reproduce(call)
    lines = [f"# {title}", "# Runs without the conformance suite.", ""]
    if made.library == "mlx":
        lines += ["import mlx.core as mx"]
    lines += ["import numpy as np", *(line for line in made.imports if line not in ("import mlx.core as mx",)), ""]
    lines += _inputs(made.call, seeded, made.library)
    lines += ["", *_expected(made.call), "", *_conversion(made.call, made.library)]
    lines += [f"out = {made.expression}", *_compared(made.library)]
    return "\n".join(lines) + "\n"


def _cut(call: Call, departs: Callable[[Call], bool]) -> Call:
    """The first batch row and group of heads that departs alone, or the whole call if none does."""
    B, N_kv = call.arrays["q"].shape[0], call.arrays["k"].shape[1]
    if B * N_kv == 1:
        return call
    for b in range(B):
        for g in range(N_kv):
            one = _part(call, b, g)
            if departs(one):
                return one
    return call


def _part(call: Call, b: int, g: int) -> Call:
    B, N_q = call.arrays["q"].shape[:2]
    group = N_q // call.arrays["k"].shape[1]
    heads = slice(g * group, (g + 1) * group)
    arrays = {}
    for name, array in call.arrays.items():
        arrays[name] = np.ascontiguousarray(_part_of(name, array, b, slice(g, g + 1), heads, (B, N_q)))
    # The standard slopes depend on how many heads there are: they become numbers.
    if call.options.get("alibi") is True:
        from ..oracle.positions import alibi_slopes

        arrays["alibi"] = np.asarray(alibi_slopes(N_q), np.float32)[heads]
        call = call.with_options(alibi=None)
    return Call(call.op, arrays, call.options, call.layout, call.outputs)


def _part_of(name: str, array: np.ndarray, b: int, kv: slice, heads: slice, sizes: tuple[int, int]) -> np.ndarray:
    """One batch row and one group of heads of an array, as far as it has such axes."""
    B, N_q = sizes
    if name in ("q", "k", "v", "d_out", "d_lse"):
        return array[b : b + 1, kv if name in ("k", "v") else heads]
    if BATCH_AXES.get(name) == array.ndim and array.shape[0] == B:
        array = array[b : b + 1]
    axis = {"mask": array.ndim - 3, "bias": array.ndim - 3, "alibi": array.ndim - 1, "sinks": 0}.get(name, -1)
    if axis >= 0 and array.shape[axis] == N_q:
        return np.take(array, range(heads.start, heads.stop), axis=axis)
    return array


def _drawn(call: Call) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    dtype = DTYPES[call.dtype]
    return {
        name: rng.standard_normal(call.arrays[name].shape).astype(np.float32).astype(dtype) for name in ("q", "k", "v")
    }


def _inputs(call: Call, seeded: bool, library: str) -> list[str]:
    """Lines that make the NumPy arrays; bfloat16 ones as float32 that hold bfloat16 numbers."""
    lines = []
    if seeded:
        lines.append(f"rng = np.random.default_rng({SEED})")
        for name in ("q", "k", "v"):
            drawn = f"rng.standard_normal({call.arrays[name].shape})"
            lines.append(f"{name} = {_rounded(drawn, call.dtype, library)}")
    for name, array in call.arrays.items():
        if not (seeded and name in ("q", "k", "v")):
            lines += _written(name, array)
    return lines


def _rounded(text: str, dtype: str, library: str) -> str:
    if dtype != "bfloat16":
        return f"{text}.astype(np.float32)" + (".astype(np.float16)" if dtype == "float16" else "")
    if library == "mlx":
        return f"np.array(mx.array({text}.astype(np.float32)).astype(mx.bfloat16).astype(mx.float32))"
    return f"{text}.astype(__import__('ml_dtypes').bfloat16).astype(np.float32)"


def _written(name: str, array: np.ndarray) -> list[str]:
    """An array as a literal where it is small, else as compressed bytes."""
    half = array.dtype == DTYPES["bfloat16"]
    values = array.astype(np.float32) if half else array
    kind = values.dtype.name
    if values.size <= LITERAL_ELEMENTS:
        text = repr(values.tolist()).replace("nan", "np.nan").replace("inf", "np.inf")
        return [f"{name} = np.array({text}, dtype=np.{kind if kind != 'bool' else 'bool_'})"]
    if array.dtype == np.bool_ and array.ndim <= 4:
        data = np.packbits(array.reshape(-1)).tobytes()
        unpack = f"np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode({_b64(data)})), np.uint8))"
        return ["import base64, zlib", f"{name} = {unpack}[:{array.size}].astype(bool).reshape({array.shape})"]
    buffer = f"np.frombuffer(zlib.decompress(base64.b64decode({_b64(values.tobytes())})), np.{kind})"
    return ["import base64, zlib", f"{name} = {buffer}.reshape({array.shape})"]


def _b64(data: bytes) -> str:
    return repr(base64.b64encode(zlib.compress(data, 9)).decode())


def _conversion(call: Call, library: str) -> list[str]:
    """Lines that hand the arrays over in the implementation's library and dtype."""
    lines = []
    for name, array in call.arrays.items():
        half = array.dtype == DTYPES["bfloat16"]
        if library == "mlx":
            lines.append(f"{name} = mx.array({name})" + (".astype(mx.bfloat16)" if half else ""))
        elif half:
            lines.append(f"{name} = {name}.astype(__import__('ml_dtypes').bfloat16)")
    return lines


def _expected(call: Call) -> list[str]:
    """Lines that compute ``expected`` in float64, with only the features that the call has."""
    arrays, options = call.arrays, call.options
    lines = ["# What the result should be, in float64."]
    lines += ["group = q.shape[1] // k.shape[1]"]
    lines += ["Q, K, V = (x.astype(np.float64) for x in (q, np.repeat(k, group, 1), np.repeat(v, group, 1)))"]
    scale = options.get("scale")
    number = "1 / np.sqrt(q.shape[-1])" if scale is None else repr(scale)
    lines += [f"s = np.float64(np.float32({number})) * (Q @ K.swapaxes(2, 3))"]
    if options.get("softcap") is not None:
        lines += [f"s = {options['softcap']!r} * np.tanh(s / {options['softcap']!r})"]
    offset = "k.shape[2] - q.shape[2]"
    if "q_offset" in arrays:
        offset = "q_offset.reshape(-1, 1, 1, 1)"
    elif options.get("q_offset") is not None:
        offset = repr(options["q_offset"])
    lines += [f"i, j = np.arange(q.shape[2])[:, None] + {offset}, np.arange(k.shape[2])"]
    if "alibi" in arrays or options.get("alibi") is True:
        if "alibi" in arrays:
            lines += ["slopes = (alibi if alibi.ndim == 2 else alibi[None]).astype(np.float64)[:, :, None, None]"]
        else:
            from ..oracle.positions import alibi_slopes

            slopes = np.asarray(alibi_slopes(arrays["q"].shape[1])).tolist()
            lines += [f"slopes = np.array({slopes!r})[None, :, None, None]"]
        lines += ["s = s - slopes * abs(i - j)"]
    for name in ("bias", "mask"):
        if name in arrays:
            boolean = arrays[name].dtype == np.bool_
            lines += [f"s = np.where({name}, s, -np.inf)" if boolean else f"s = s + {name}.astype(np.float64)"]
    causal = options.get("causal") or options.get("mask") == "causal"
    lines += [f"s = np.where({rule}, s, -np.inf)" for rule in _rules(call, bool(causal))]
    if "sinks" in arrays:
        lines += ["sink = sinks.astype(np.float64)[None, :, None, None]"]
        lines += ["top = np.maximum(s.max(-1, keepdims=True), sink)"]
        lines += ["p = np.exp(s - top)", "p = p / (p.sum(-1, keepdims=True) + np.exp(sink - top))"]
    else:
        lines += ["top = s.max(-1, keepdims=True)", "p = np.exp(s - np.where(np.isfinite(top), top, 0))"]
        lines += ["total = p.sum(-1, keepdims=True)", "p = np.where(total > 0, p / np.where(total > 0, total, 1), 0)"]
    if not np.isfinite(arrays["v"].astype(np.float64)).all():
        lines += ["V = np.where(np.isfinite(V), V, 0)  # hidden keys hold NaN or inf"]
    return [*lines, "expected = p @ V"]


def _rules(call: Call, causal: bool) -> list[str]:
    rules = ["j <= i"] if causal else []
    window = call.options.get("window")
    if isinstance(window, int):
        rules.append(f"(j <= i) & (i - j < {window})")
    elif window is not None:
        left, right = window
        rules += [f"j >= i - {left}"] if left is not None else []
        rules += [f"j <= i + {right}"] if right is not None else []
    if "kv_lengths" in call.arrays:
        rules.append("j < kv_lengths[:, None, None, None]")
    if "segments" in call.arrays:
        rules.append("segments[:, None, :, None] == segments[:, None, None, :]")
    if "q_segments" in call.arrays:
        rules.append("q_segments[:, None, :, None] == kv_segments[:, None, None, :]")
    return rules


def _compared(library: str) -> list[str]:
    convert = "np.array(out.astype(mx.float32))" if library == "mlx" else "np.asarray(out)"
    return [
        f"out = {convert}.astype(np.float64)",
        "error = np.abs(out - expected)",
        "worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)",
        'print("worst element", tuple(map(int, worst)), "actual", out[worst], "expected", expected[worst])',
    ]
