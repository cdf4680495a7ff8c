"""Bad arguments of the oracle are refused with their name, their value and what is allowed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlx_tx_conformance.oracle.arguments import is_floating
from mlx_tx_conformance.oracle.attention import attention

Q, KV = np.ones((2, 4, 3, 8)), np.ones((2, 2, 5, 8))

BAD_VALUES = {
    "softcap-zero": ({"softcap": 0}, "softcap must be > 0; got 0"),
    "softcap-negative": ({"softcap": -2.0}, "softcap must be > 0; got -2.0"),
    "softcap-nan": ({"softcap": float("nan")}, "softcap must be finite in float32; got nan"),
    "scale-nan": ({"scale": float("nan")}, "scale must be finite in float32; got nan"),
    "scale-beyond-float32": ({"scale": 1e39}, "scale must be finite in float32; got 1e+39"),
    "window-zero": ({"window": 0}, "window must be >= 1; got 0"),
    "window-negative-side": ({"window": (-1, 0)}, "window must be >= 0; got -1"),
    "window-of-three": ({"window": (1, 2, 3)}, "window must be an integer or a pair (left, right); got (1, 2, 3)"),
    "mask-of-other-keys": ({"mask": np.ones((3, 4), bool)}, "mask must have 2 to 4 axes and broadcast to (2, 4, 3, 5)"),
    "mask-of-one-axis": ({"mask": np.ones(5, bool)}, "mask must have 2 to 4 axes and broadcast to (2, 4, 3, 5)"),
    "mask-of-more-batch-rows": ({"mask": np.ones((3, 1, 3, 5))}, "mask must have 2 to 4 axes"),
    "mask-of-another-name": ({"mask": "bidirectional"}, "mask must be an array or \"causal\"; got 'bidirectional'"),
    "bias-of-other-keys": ({"bias": np.ones((3, 4))}, "bias must have 2 to 4 axes and broadcast to (2, 4, 3, 5)"),
    "sinks-of-kv-heads": ({"sinks": np.ones(2)}, "sinks must have shape (4,); got shape (2,)"),
    "alibi-of-kv-heads": ({"alibi": np.ones(2)}, "alibi must have shape (4,) or (2, 4); got shape (2,)"),
    "lengths-beyond-the-keys": ({"kv_lengths": [5, 6]}, "kv_lengths must lie in 0..T_kv = 5; got [5, 6]"),
    "lengths-negative": ({"kv_lengths": [-1, 5]}, "kv_lengths must lie in 0..T_kv = 5; got [-1, 5]"),
    "lengths-of-one-row": ({"kv_lengths": [5]}, "kv_lengths must have shape (2,); got shape (1,)"),
    "offset-of-three-rows": ({"q_offset": [1, 2, 3]}, "q_offset must have shape () or (2,); got shape (3,)"),
    "one-segment-array": ({"segments": np.zeros((2, 3), int)}, "segments must be a pair where T_q != T_kv"),
    "segments-of-three": (
        {"segments": (1, 2, 3)},
        "segments must be an array [B, T] or a pair of arrays; got 3 arrays",
    ),
    "segments-swapped": (
        {"segments": (np.zeros((2, 5), int), np.zeros((2, 3), int))},
        "segments must have shape (2, 3)",
    ),
    **{
        f"lengths-and-{name}": (
            {"kv_lengths": [4, 5], name: value},
            "q_offset must be given with kv_lengths and causal",
        )
        for name, value in (("causal", True), ("mask", "causal"), ("window", 2), ("alibi", True))
    },
}

BAD_TYPES = {
    "mask-of-integers": ({"mask": np.ones((3, 5), np.int32)}, "mask must be boolean or floating; got int32"),
    "bias-of-booleans": ({"bias": np.ones((3, 5), bool)}, "bias must be floating; got bool"),
    "window-of-a-float": ({"window": 2.5}, "window must be an integer or a pair (left, right); got 2.5"),
    "window-true": ({"window": True}, "window must be an integer or a pair (left, right); got True"),
    "window-side-of-a-float": ({"window": (1.0, 0)}, "window must be an integer or a pair (left, right); got 1.0"),
    "scale-of-a-string": ({"scale": "1"}, "scale must be a number; got '1'"),
    "softcap-true": ({"softcap": True}, "softcap must be a number; got True"),
    "lengths-of-floats": ({"kv_lengths": [4.0, 5.0]}, "kv_lengths must hold integers; got float64"),
    "offset-of-a-float": ({"q_offset": 1.5}, "q_offset must hold integers; got float64"),
}


@pytest.mark.parametrize(("options", "message"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values(options, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared below
        attention(Q, KV, KV, **options)
    assert str(refused.value).startswith(f"[attention] {message}")


@pytest.mark.parametrize(("options", "message"), BAD_TYPES.values(), ids=BAD_TYPES)
def test_bad_types(options, message):
    with pytest.raises(TypeError) as refused:
        attention(Q, KV, KV, **options)
    assert str(refused.value) == f"[attention] {message}"


@pytest.mark.parametrize(
    ("q", "k", "v", "message"),
    [
        ((2, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8), "q must have the layout [B, N, T, D]"),
        ((2, 4, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), "k must have the batch and head size of q"),
        ((2, 4, 3, 8), (2, 2, 5, 4), (2, 2, 5, 4), "k must have the batch and head size of q"),
        ((2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 4, 8), "v must have the batch, heads and length of k"),
        ((2, 4, 3, 8), (2, 2, 5, 8), (2, 1, 5, 8), "v must have the batch, heads and length of k"),
        ((2, 4, 3, 8), (2, 3, 5, 8), (2, 3, 5, 8), "N_q must be a multiple of N_kv; got N_q = 4, N_kv = 3"),
        ((2, 4, 3, 0), (2, 2, 5, 0), (2, 2, 5, 8), "q must have a head size of at least 1"),
    ],
    ids=["axes", "batch", "head-size", "length", "heads-of-v", "groups", "empty-head"],
)
def test_shapes_that_do_not_fit(q, k, v, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the whole message is compared below
        attention(np.ones(q), np.ones(k), np.ones(v))
    assert str(refused.value).startswith(f"[attention] {message}")


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="dropout"):
        attention(Q, KV, KV, dropout=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"window": np.int64(2)},
        {"window": [1, None]},
        {"scale": np.float32(0.5)},
        {"scale": 1},
        {"scale": 0.0},
        {"kv_lengths": [0, 5]},
        {"kv_lengths": np.array([1, 2], np.int32), "causal": True, "q_offset": 0},
        {"kv_lengths": [1, 2], "alibi": True, "q_offset": [0, 1]},
        {"q_offset": np.int32(4)},
        {"mask": np.ones((1, 1), bool)},
        {"mask": np.ones((4, 1, 5), np.float16)},
    ],
    ids=str,
)
def test_good_arguments(options):
    assert np.isfinite(attention(Q, KV, KV, **options).out).all()


@pytest.mark.parametrize(
    ("dtype", "floating"),
    [
        (np.float16, True),
        (ml_dtypes.bfloat16, True),
        (np.float64, True),
        (np.int8, False),
        (bool, False),
        (object, False),
    ],
    ids=["float16", "bfloat16", "float64", "int8", "bool", "object"],
)
def test_floating_dtypes(dtype, floating):
    assert is_floating(np.dtype(dtype)) is floating
