"""Walking over blocks: the partition, what is skipped, and how much memory it takes."""

import math

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx
from mlx_tx.arguments import AttentionSpec, normalise
from mlx_tx.paths import blocks
from tests.mlx_tx.problems import normal
from tests.mlx_tx.reference import to_numpy

attend = mlx_tx.scaled_dot_product_attention


def spec(T_q, T_kv, head_size=64, **facts):
    sizes = {"B": 1, "N_q": 1, "N_kv": 1, "T_q": T_q, "T_kv": T_kv, "D": head_size, "D_v": head_size}
    return AttentionSpec(**sizes, dtype=mx.float32, scale=1.0, **{"offsets": (0,), **facts})


@pytest.mark.parametrize(("T_q", "T_kv"), [(1, 1), (1, 100_000), (7, 40), (128, 128), (129, 257), (5000, 20_000)])
def test_blocks_cover_everything_once(T_q, T_kv):
    call = spec(T_q, T_kv)
    for spans, T in ((blocks.query_spans(call), T_q), (blocks.key_spans(call), T_kv)):
        assert [i for start, end in spans for i in range(start, end)] == list(range(T))


@pytest.mark.parametrize("head_size", [16, 64, 128])
def test_scores_of_a_block_and_number_of_blocks_grow_linearly(head_size):
    for T in [2**n for n in range(9, 18)]:
        call = spec(T, T, head_size)
        scores = max(blocks.BLOCK**2, T * head_size // 16)
        q_size, k_size = blocks.block_sizes(call)
        assert scores / 2 < q_size * k_size <= scores
        assert len(blocks.query_spans(call)) * len(blocks.key_spans(call)) <= 2 * T * T / scores


def test_decoding_takes_many_keys_at_a_time():
    assert len(blocks.key_spans(spec(1, 4096))) == 1


def test_blocks_that_the_band_rules_out_are_left_away():
    call = spec(1024, 1024, right=0)
    kept = [tile for keys in blocks.key_spans(call) for tile in blocks.tiles_of(call, keys)]
    assert len(kept) == 8 * 9 // 2
    call = spec(1024, 1024, right=0, left=127)
    assert sum(len(blocks.tiles_of(call, keys)) for keys in blocks.key_spans(call)) == 8 + 7


def test_skipped_blocks_cost_no_product(monkeypatch):
    q = mx.zeros((1, 1, 1024, 16))
    monkeypatch.setattr(mx, "contiguous", lambda x: x)  # MLX cannot export it

    def products(**options):
        names = ("scale", "mask", "bias", "sinks", "window", "alibi", "softcap", "kv_lengths", "segments", "q_offset")
        given = {**dict.fromkeys(names), "causal": False, "return_lse": False, "check": False, **options}
        rows = []
        mx.export_function(rows.append, lambda q, k, v: blocks.forward(*normalise(q, k, v, **given)), q, q, q)
        return sum(row.get("name") == "Matmul" for row in rows)

    assert products() == 2 * 8 * 8
    assert products(causal=True) == 2 * 8 * 9 // 2
    assert products(window=64) == 2 * (8 + 7)
    assert products(kv_lengths=[200]) == 2 * 8 * 2
    assert products(causal=True, q_offset=mx.array(0)) == 2 * 8 * 8  # an array: not known on the host


def test_chain_changes_no_value():
    chain = blocks.Chain()
    x = normal(np.random.default_rng(0), 1, 1, 3, 3)
    assert chain.wait(x) is not None
    chain.finish(mx.array([[[[np.nan]]]]), mx.array([[[[np.inf]]]]))
    np.testing.assert_array_equal(to_numpy(chain.wait(x)), to_numpy(x))
    np.testing.assert_array_equal(to_numpy(chain.wait(x, 0.5)), to_numpy(x) / 2)


# Memory, as MLX counts it; every figure is the least of three runs, since MLX's CPU backend runs ahead by a varying
# number of operations.

HEADS, D = 2, 32
SIZES = (256, 512, 1024)


@pytest.fixture
def _half_blocks(monkeypatch):
    """Blocks of 64, so that sequences of half the length have as many."""
    monkeypatch.setattr(blocks, "BLOCK", 64)


def peak(run):
    """Bytes that a computation takes beyond what was there before it, its results included."""
    least = math.inf
    for _ in range(8):  # what is freed in time depends on how far the host is ahead
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        with mx.stream(mx.cpu):
            results = run()
            mx.eval(results)
        least = min(least, mx.get_peak_memory() - before)
        del results
    return least


def exponent(figures):
    """Growth exponents from successive differences, over sizes that double."""
    return [math.log2((c - b) / (b - a)) for a, b, c in zip(figures, figures[1:], figures[2:], strict=False)]


def options_of(form, T):
    if form == "mask":
        see = mx.array(np.random.default_rng(0).random((T, T)) < 0.7)
        mx.eval(see)
        return {"mask": see}
    return {"causal": True} if form == "causal" else {}


@pytest.mark.usefixtures("_half_blocks")
@pytest.mark.parametrize("form", ["plain", "causal", "mask"])
def test_extra_memory_of_the_forward_is_linear(form):
    figures = []
    for T in SIZES:
        q, k, v = (normal(np.random.default_rng(n), 1, HEADS, T, D) for n in range(3))
        options = options_of(form, T)
        mx.eval(q, k, v)
        figures.append(peak(lambda q=q, k=k, v=v, o=options: attend(q, k, v, path="blockwise", **o)))
    assert max(exponent(figures)) < 1.5, figures  # 2 where the scores are stored
    assert figures[-1] < 4 * HEADS * SIZES[-1] * SIZES[-1] / 4, figures


@pytest.mark.usefixtures("_half_blocks")
@pytest.mark.parametrize("form", ["plain", "causal", "mask"])
def test_extra_memory_of_the_gradients_is_linear(form):
    figures = []
    for T in SIZES:
        q, k, v, w = (normal(np.random.default_rng(n), 1, HEADS, T, D) for n in range(4))
        options = options_of(form, T)
        mx.eval(q, k, v, w)

        def run(q=q, k=k, v=v, w=w, o=options):
            return mx.vjp(lambda q, k, v: attend(q, k, v, path="blockwise", **o), [q, k, v], [w])[1]

        figures.append(peak(run))
    assert max(exponent(figures)) < 1.5, figures  # 2 where the scores are stored
    assert figures[-1] < 4 * HEADS * SIZES[-1] * SIZES[-1] / 2, figures


def test_composed_path_takes_what_blockwise_saves():
    q = normal(np.random.default_rng(0), 1, HEADS, 1024, D)
    mx.eval(q)
    scores = 4 * HEADS * 1024 * 1024
    assert peak(lambda: attend(q, q, q, path="composed")) > scores
    assert peak(lambda: attend(q, q, q, path="blockwise")) < scores / 2


def test_constant_mask_gets_no_gradient_computed():
    # The gradient of a mask that nobody asked for would be as large as the scores.
    T = 1024
    q, w = (normal(np.random.default_rng(n), 1, HEADS, T, D) for n in range(2))
    mask = mx.zeros((HEADS, T, T))
    mx.eval(q, w, mask)

    def gradient(*names):
        given = {"q": q, "mask": mask}
        rest = {name: x for name, x in given.items() if name not in names}
        return mx.grad(lambda x: (attend(k=q, v=q, path="blockwise", **{**rest, **x}) * w).sum())(
            {name: given[name] for name in names}
        )

    assert peak(lambda: gradient("q")["q"]) < mask.nbytes
    assert peak(lambda: gradient("mask")["mask"]) > mask.nbytes
