"""What the attention function refuses, and the plain form it makes of what it takes."""

import mlx.core as mx
import numpy as np
import pytest

import mlx_tx
from mlx_tx import paths
from mlx_tx.arguments import normalise

attend = mlx_tx.scaled_dot_product_attention

B, N_q, N_kv, T_q, T_kv, D = 2, 4, 2, 3, 5, 8
Q, K, V = mx.zeros((B, N_q, T_q, D)), mx.zeros((B, N_kv, T_kv, D)), mx.zeros((B, N_kv, T_kv, 6))
NAN, INF = float("nan"), float("inf")

VALUES = [
    # changed arguments, and what the message must say
    ({"q": Q[0]}, r"q must have rank 4, \[B, N_q, T_q, D\]; got shape \(4, 3, 8\)"),
    ({"k": K[0]}, r"k must have rank 4, \[B, N_kv, T_kv, D\]; got shape \(2, 5, 8\)"),
    ({"v": V[0]}, r"v must have rank 4, \[B, N_kv, T_kv, D_v\]; got shape \(2, 5, 6\)"),
    ({"k": K[:1]}, r"k must have the batch size of q, 2; got shape \(1, 2, 5, 8\)"),
    ({"v": V[:1]}, r"v must have the batch size of q, 2; got shape \(1, 2, 5, 6\)"),
    ({"k": K[..., :7]}, r"k must have the head size of q, 8; got shape \(2, 2, 5, 7\)"),
    ({"v": V[:, :1]}, r"v must have the heads and length of k, \(2, 5\); got shape \(2, 1, 5, 6\)"),
    ({"v": V[:, :, :4]}, r"v must have the heads and length of k, \(2, 5\); got shape \(2, 2, 4, 6\)"),
    ({"q": Q[:, :3]}, r"heads of q must be a multiple of those of k; got N_q=3, N_kv=2"),
    ({"k": K[:, :0], "v": V[:, :0]}, r"heads of q must be a multiple of those of k; got N_q=4, N_kv=0"),
    ({"scale": NAN}, r"scale must be finite in float32; got nan"),
    ({"scale": INF}, r"scale must be finite in float32; got inf"),
    ({"scale": 1e39}, r"scale must be finite in float32; got 1e\+39"),
    ({"softcap": 0.0}, r"softcap must be > 0; got 0\.0"),
    ({"softcap": -1}, r"softcap must be > 0; got -1"),
    ({"softcap": 1e-60}, r"softcap must be > 0; got 1e-60"),
    ({"softcap": NAN}, r"softcap must be finite in float32; got nan"),
    ({"mask": "Causal"}, r"mask given as a string must be \"causal\"; got 'Causal'"),
    ({"mask": mx.zeros((3, 4))}, r"mask must broadcast to \[B, N_q, T_q, T_kv\]=\(2, 4, 3, 5\); got shape \(3, 4\)"),
    ({"mask": mx.zeros((2, 2, 3, 5))}, r"mask must broadcast to .*; got shape \(2, 2, 3, 5\)"),
    ({"mask": mx.zeros((1, 1, 1, 1, 5))}, r"mask must have at most 4 axes; got shape \(1, 1, 1, 1, 5\)"),
    ({"bias": mx.zeros((2, 5))}, r"bias must broadcast to .*; got shape \(2, 5\)"),
    ({"sinks": mx.zeros((2,))}, r"sinks must have shape \[N_q\]=\(4,\); got \(2,\)"),
    ({"sinks": mx.zeros((2, 4))}, r"sinks must have shape \[N_q\]=\(4,\); got \(2, 4\)"),
    ({"window": 0}, r"window must be >= 1; got 0"),
    ({"window": -3}, r"window must be >= 1; got -3"),
    ({"window": (-1, 0)}, r"window must be >= 0; got -1"),
    ({"window": (1, -1)}, r"window must be >= 0; got -1"),
    ({"window": (1, 2, 3)}, r"window as a pair must be \(left, right\); got \(1, 2, 3\)"),
    ({"alibi": mx.zeros((2,))}, r"alibi must have shape \[N_q\]=\(4,\) or \[B, N_q\]; got \(2,\)"),
    ({"alibi": [1.0, NAN, 1.0, 1.0]}, r"alibi slopes must be finite"),
    ({"kv_lengths": [1, 6]}, r"kv_lengths must be in 0\.\.T_kv=5; got 6"),
    ({"kv_lengths": [-1, 5]}, r"kv_lengths must be in 0\.\.T_kv=5; got -1"),
    ({"kv_lengths": [1]}, r"kv_lengths must have one entry for each of the B=2 rows; got 1"),
    ({"kv_lengths": mx.array([1])}, r"kv_lengths must have shape \(2,\); got \(1,\)"),
    ({"kv_lengths": [1, 2], "causal": True}, r"q_offset must be given together with kv_lengths and causal"),
    ({"kv_lengths": [1, 2], "mask": "causal"}, r"q_offset must be given together with kv_lengths and causal"),
    ({"kv_lengths": mx.array([1, 2]), "window": 2}, r"q_offset must be given together with kv_lengths"),
    ({"kv_lengths": [1, 2], "alibi": True}, r"q_offset must be given together with kv_lengths"),
    ({"q_offset": [1, 2, 3]}, r"q_offset must have one entry for each of the B=2 rows; got 3"),
    ({"q_offset": mx.array([1, 2, 3])}, r"q_offset must have shape \(\) or \(1,\) or \(2,\); got \(3,\)"),
    ({"q_offset": 2**31}, r"q_offset must be within 2\*\*29 of zero; got 2147483648"),
    ({"segments": mx.zeros((2, 5), dtype=mx.int32)}, r"segments must be a pair where T_q and T_kv differ; .*T_q=3"),
    (
        {"segments": (mx.zeros((2, 3), dtype=mx.int32),)},
        r"segments as a pair must be \(q_segments, kv_segments\); got 1",
    ),
    (
        {"segments": (mx.zeros((2, 3), dtype=mx.int32), mx.zeros((2, 4), dtype=mx.int32))},
        r"segments must have shape \(2, 5\); got \(2, 4\)",
    ),
    ({"path": "flash"}, r"path must be one of \"auto\", .*\"blockwise\"; got 'flash'"),
]

TYPES = [
    ({"q": np.zeros((2, 4, 3, 8), np.float32)}, r"q must be an mlx array; got ndarray"),
    ({"k": None}, r"k must be an mlx array; got NoneType"),
    ({"q": Q.astype(mx.bool_)}, r"q must be float32, float16 or bfloat16; got bool"),
    ({"v": V.astype(mx.complex64)}, r"v must be float32, float16 or bfloat16; got complex64"),
    ({"scale": "1"}, r"scale must be a number; got '1'"),
    ({"scale": True}, r"scale must be a number; got True"),
    ({"scale": mx.array([1.0])}, r"scale must be a number; got array"),
    ({"softcap": [1.0]}, r"softcap must be a number; got \[1\.0\]"),
    ({"mask": mx.zeros((3, 5), dtype=mx.int32)}, r"mask must be boolean .* or floating .*; got int32"),
    ({"mask": mx.zeros((3, 5), dtype=mx.uint8)}, r"mask must be boolean .* or floating .*; got uint8"),
    ({"mask": np.ones((3, 5), bool)}, r"mask must be an mlx array; got ndarray"),
    ({"bias": mx.zeros((3, 5), dtype=mx.bool_)}, r"bias must be floating; got bool"),
    ({"causal": 1}, r"causal must be True or False; got 1"),
    ({"causal": "yes", "mask": "causal"}, r"causal must be True or False; got 'yes'"),
    ({"sinks": [0.0] * 4}, r"sinks must be an mlx array; got list"),
    ({"sinks": mx.zeros((4,), dtype=mx.bool_)}, r"sinks must be numbers of at most 32 bits; got bool"),
    ({"window": 2.0}, r"window must be an integer; got 2\.0"),
    ({"window": True}, r"window must be an integer; got True"),
    ({"window": (1.5, 0)}, r"window must be an integer; got 1\.5"),
    ({"window": mx.array(2)}, r"window must be an integer; got array"),
    ({"alibi": mx.zeros((4,), dtype=mx.int32)}, r"alibi slopes must be floating; got int32"),
    ({"alibi": 1.0}, r"alibi must be an mlx array; got float"),
    ({"kv_lengths": 3}, r"kv_lengths must be a list or an array of integers; got 3"),
    ({"kv_lengths": [1.0, 2.0]}, r"kv_lengths must be an integer; got 1\.0"),
    ({"kv_lengths": [True, False]}, r"kv_lengths must be an integer; got True"),
    ({"kv_lengths": mx.array([1.0, 2.0])}, r"kv_lengths must hold integers; got float32"),
    ({"kv_lengths": mx.array([True, True])}, r"kv_lengths must hold integers; got bool"),
    ({"q_offset": 1.0}, r"q_offset must be an integer; got 1\.0"),
    ({"q_offset": True}, r"q_offset must be an integer; got True"),
    ({"q_offset": mx.array(1.0)}, r"q_offset must hold integers; got float32"),
    ({"segments": (mx.zeros((2, 3)), mx.zeros((2, 5)))}, r"segments must hold integers; got float32"),
    ({"segments": ([0] * 3, [0] * 5)}, r"segments must be an mlx array; got list"),
    ({"return_lse": 1}, r"return_lse must be True or False; got 1"),
    ({"check": None}, r"check must be True or False; got None"),
    ({"force_fused": 0}, r"force_fused must be True or False; got 0"),
]


def refused(changes):
    options = {"q": Q, "k": K, "v": V, **changes}
    return attend(options.pop("q"), options.pop("k"), options.pop("v"), **options)


@pytest.fixture(autouse=True)
def _no_work(monkeypatch):
    """A call that reaches a path fails the test: checks come before any work."""

    def ran(*_):
        raise AssertionError("a path ran")

    for path in paths.PATHS.values():
        monkeypatch.setattr(type(path), "run", property(lambda _: ran), raising=False)


@pytest.mark.parametrize(("changes", "message"), VALUES, ids=lambda x: x if isinstance(x, str) else None)
def test_bad_values_are_refused_by_name_before_any_work(changes, message):
    with pytest.raises(ValueError, match=r"^\[scaled_dot_product_attention\] .*" + message):
        refused(changes)


@pytest.mark.parametrize(("changes", "message"), TYPES, ids=lambda x: x if isinstance(x, str) else None)
def test_wrong_types_are_refused_by_name_before_any_work(changes, message):
    with pytest.raises(TypeError, match=r"^\[scaled_dot_product_attention\] " + message):
        refused(changes)


def test_wrong_dtype_is_a_value_error_too_as_in_mx_fast():
    with pytest.raises(ValueError, match="mask must be boolean"):
        refused({"mask": mx.zeros((3, 5), dtype=mx.int32)})


def plain(**changes):
    """The plain form of a call with these arguments."""
    options = dict.fromkeys(
        ("scale", "mask", "bias", "sinks", "window", "alibi", "softcap", "kv_lengths", "segments", "q_offset")
    )
    options |= {"causal": False, "return_lse": False, "check": False, **changes}
    return normalise(options.pop("q", Q), options.pop("k", K), options.pop("v", V), **options)


def test_defaults():
    spec, arrays = plain()
    assert (spec.B, spec.N_q, spec.N_kv, spec.T_q, spec.T_kv, spec.D, spec.D_v) == (B, N_q, N_kv, T_q, T_kv, D, 6)
    assert (spec.left, spec.right, spec.softcap, spec.lengths, spec.offsets) == (None, None, None, None, (T_kv - T_q,))
    assert spec.scale == float(np.float32(8**-0.5))
    assert [name for name, _ in arrays.present()] == ["q", "k", "v"]


@pytest.mark.parametrize(
    ("options", "band"),
    [
        ({"causal": True}, (None, 0)),
        ({"mask": "causal"}, (None, 0)),
        ({"window": 1}, (0, 0)),
        ({"window": 4}, (3, 0)),
        ({"window": (2, 3)}, (2, 3)),
        ({"window": [None, 3]}, (None, 3)),
        ({"window": (2, 3), "causal": True}, (2, 0)),
        ({"window": (None, None)}, (None, None)),
        ({"window": np.int64(4)}, (3, 0)),
    ],
)
def test_causal_and_windows_become_one_band(options, band):
    spec, _ = plain(**options)
    assert (spec.left, spec.right) == band


def test_scale_is_the_float32_number():
    assert plain(scale=0.1)[0].scale == float(np.float32(0.1)) != 0.1
    assert plain(scale=0)[0].scale == 0
    assert plain(softcap=np.float64(0.1))[0].softcap == float(np.float32(0.1))


def test_masks_get_four_axes_and_keep_their_dtype():
    for shape in ((), (5,), (3, 1), (4, 1, 5), (2, 1, 3, 5)):
        _, arrays = plain(mask=mx.zeros(shape, dtype=mx.bool_), bias=mx.zeros(shape, dtype=mx.float16))
        assert arrays.mask.shape == arrays.bias.shape == (1,) * (4 - len(shape)) + shape
        assert (arrays.mask.dtype, arrays.bias.dtype) == (mx.bool_, mx.float16)


def test_host_numbers_are_known_and_arrays_are_not():
    spec, arrays = plain(kv_lengths=[2, 5], q_offset=[1, 4], causal=True)
    assert (spec.lengths, spec.offsets) == ((2, 5), (1, 4))
    assert (arrays.kv_lengths.tolist(), arrays.q_offset.tolist()) == ([2, 5], [1, 4])
    spec, arrays = plain(kv_lengths=mx.array([2, 5]), q_offset=mx.array(4), causal=True)
    assert (spec.lengths, spec.offsets, arrays.q_offset.shape) == (None, None, (1,))
    spec, _ = plain(kv_lengths=mx.array([2, 5]), check=True)
    assert spec.lengths == (2, 5)
    assert plain(q_offset=[4, 4], causal=True)[0].offsets == (4,)
    assert plain(kv_lengths=np.array([2, 5]))[0].lengths == (2, 5)


def test_offset_without_a_rule_that_needs_it_is_left_away():
    assert plain(q_offset=mx.array([1, 2]))[1].q_offset is None
    assert plain(q_offset=mx.array([1, 2]), alibi=True)[1].q_offset is not None


def test_alibi_forms():
    assert plain(alibi=False)[1].slopes is None
    spec, arrays = plain(alibi=True)
    assert arrays.slopes.tolist() == [[2**-2, 2**-4, 2**-6, 2**-8]]
    assert not spec.learned_slopes
    spec, arrays = plain(alibi=[1.0, 2.0, 3.0, 4.0])
    assert arrays.slopes.tolist() == [[1, 2, 3, 4]]
    assert not spec.learned_slopes
    spec, arrays = plain(alibi=mx.ones((2, 4), dtype=mx.float16))
    assert (arrays.slopes.shape, arrays.slopes.dtype, spec.learned_slopes) == ((2, 4), mx.float32, True)


def test_segments_that_no_integer_type_holds_are_refused():
    ids = mx.zeros((2, 3), dtype=mx.int64), mx.zeros((2, 5), dtype=mx.uint64)
    with pytest.raises(ValueError, match="dtypes that one integer type holds; got int64 and uint64"):
        attend(Q, K, V, segments=ids)
