"""The attention layer against loops over tokens, heads and channels."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.oracle.attention import attention
from mlx_tx_conformance.oracle.layers import attention_layer, merge_heads, split_heads
from mlx_tx_conformance.oracle.positions import rope

from .naive import floats, naive_attention

B, T, M, D_MODEL, D_MEMORY, D, D_V, D_OUT = 2, 4, 3, 6, 5, 4, 3, 7


def weights(N_q: int, N_kv: int, biases: bool, d_source: int = D_MODEL) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    widths = {"q": (D_MODEL, N_q * D), "k": (d_source, N_kv * D), "v": (d_source, N_kv * D_V), "o": (N_q * D_V, D_OUT)}
    arrays = {f"w_{name}": rng.normal(size=shape) / 2 for name, shape in widths.items()}
    if biases:
        arrays |= {f"b_{name}": rng.normal(size=shape[1]) for name, shape in widths.items()}
    return arrays


def tokens(length: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, length, width))


def naive_project(x: np.ndarray, arrays: dict[str, np.ndarray], name: str, heads: int) -> np.ndarray:
    """[B, N, T, D]: entry (b, h, t, d) is column h D + d of x W + b."""
    w = arrays[f"w_{name}"]
    size = w.shape[1] // heads
    out = np.zeros((x.shape[0], heads, x.shape[1], size))
    for b, h, t, d in np.ndindex(out.shape):
        column = h * size + d
        out[b, h, t, d] = sum(x[b, t, m] * w[m, column] for m in range(w.shape[0]))
        out[b, h, t, d] += arrays[f"b_{name}"][column] if f"b_{name}" in arrays else 0.0
    return out


def naive_layer(x, source, arrays, N_q, N_kv, rope_options=None, **options):
    q, k, v = (
        naive_project(origin, arrays, name, n)
        for origin, name, n in ((x, "q", N_q), (source, "k", N_kv), (source, "v", N_kv))
    )
    if rope_options is not None:
        q, k = rope(q, **rope_options), rope(k, **rope_options)
    out = floats(naive_attention(q, k, v, scale=float(np.float32(D**-0.5)), **options)["out"])
    joined = np.array(
        [[np.concatenate([out[b, h, t] for h in range(N_q)]) for t in range(x.shape[1])] for b in range(B)]
    )
    return naive_project(joined, arrays, "o", 1)[:, 0]


@pytest.mark.parametrize("biases", [False, True], ids=["no-biases", "biases"])
@pytest.mark.parametrize(("N_q", "N_kv"), [(2, 2), (4, 2), (3, 1)], ids=["mha", "gqa", "mqa"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_self_attention(N_q, N_kv, biases, causal):
    x, arrays = tokens(T, D_MODEL, 1), weights(N_q, N_kv, biases)
    stages = attention_layer(x, arrays, N_q=N_q, N_kv=N_kv, causal=causal)
    np.testing.assert_allclose(
        stages["out"], naive_layer(x, x, arrays, N_q, N_kv, causal=causal), rtol=1e-11, atol=1e-13
    )


def test_cross_attention():
    x, memory, arrays = tokens(T, D_MODEL, 1), tokens(M, D_MEMORY, 2), weights(4, 2, True, D_MEMORY)
    out = attention_layer(x, arrays, N_q=4, N_kv=2, memory=memory, kv_lengths=[2, 3])["out"]
    expected = naive_layer(x, memory, arrays, 4, 2, kv_lengths=[2, 3])
    np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"traditional": True, "offset": 3}, {"dims": 2, "base": 50.0}], ids=str)
def test_rotation(options):
    x, arrays = tokens(T, D_MODEL, 1), weights(4, 2, False)
    stages = attention_layer(x, arrays, N_q=4, N_kv=2, causal=True, rope=options)
    expected = naive_layer(x, x, arrays, 4, 2, rope_options=options, causal=True)
    np.testing.assert_allclose(stages["out"], expected, rtol=1e-11, atol=1e-13)
    assert not np.allclose(stages["q_rotated"], stages["q_heads"])
    assert stages["k_rotated"].shape == (B, 2, T, D)


def test_every_stage_by_name_in_order():
    x, arrays = tokens(T, D_MODEL, 1), weights(4, 2, True)
    stages = attention_layer(x, arrays, N_q=4, N_kv=2, rope={}, window=2, softcap=3.0, sinks=np.ones(4))
    shapes = {
        "q": (B, T, 4 * D),
        "k": (B, T, 2 * D),
        "v": (B, T, 2 * D_V),
        "q_heads": (B, 4, T, D),
        "k_heads": (B, 2, T, D),
        "v_heads": (B, 2, T, D_V),
        "q_rotated": (B, 4, T, D),
        "k_rotated": (B, 2, T, D),
        "scores": (B, 4, T, T),
        "capped": (B, 4, T, T),
        "biased": (B, 4, T, T),
        "allowed": (B, 4, T, T),
        "weights": (B, 4, T, T),
        "sink_weight": (B, 4, T),
        "lse": (B, 4, T),
        "heads_out": (B, 4, T, D_V),
        "merged": (B, T, 4 * D_V),
        "out": (B, T, D_OUT),
    }
    assert {name: array.shape for name, array in stages.items()} == shapes
    assert list(stages) == list(shapes)
    core = attention(
        stages["q_rotated"], stages["k_rotated"], stages["v_heads"], window=2, softcap=3.0, sinks=np.ones(4)
    )
    np.testing.assert_array_equal(stages["heads_out"], core.out)


def test_heads_are_split_and_merged_in_order():
    x = np.arange(12.0).reshape(1, 2, 6)
    heads = split_heads(x, 3)
    assert heads[0, :, 0].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert heads[0, :, 1].tolist() == [[6, 7], [8, 9], [10, 11]]
    np.testing.assert_array_equal(merge_heads(heads), x)


def test_without_n_kv_every_query_head_has_its_own():
    x, arrays = tokens(T, D_MODEL, 1), weights(2, 2, False)
    np.testing.assert_array_equal(
        attention_layer(x, arrays, N_q=2)["out"], attention_layer(x, arrays, N_q=2, N_kv=2)["out"]
    )


def test_rotation_with_memory_is_refused():
    x = tokens(T, D_MODEL, 1)
    with pytest.raises(ValueError, match=r"\[attention_layer\] rope must be None with memory"):
        attention_layer(x, weights(2, 2, False), N_q=2, memory=x, rope={})


def test_columns_that_do_not_divide_into_heads_are_refused():
    x = tokens(T, D_MODEL, 1)
    with pytest.raises(ValueError, match=r"\[attention_layer\] w_q must have columns divisible by 3 heads; got 8"):
        attention_layer(x, weights(2, 2, False), N_q=3)
