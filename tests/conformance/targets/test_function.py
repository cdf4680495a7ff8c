"""A user's function as a target: what it supports, what reaches it, what comes back."""

from __future__ import annotations

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from mlx_tx_conformance.call import Call, Target, Unsupported
from mlx_tx_conformance.targets import function_target
from mlx_tx_conformance.targets.function import library_of


def weights(q, k, scale, mask):
    scores = (q @ k.swapaxes(-1, -2)) * scale
    if mask is not None:
        scores = mx.where(mask, scores, -mx.inf) if mask.dtype == mx.bool_ else scores + mask
    return mx.softmax(scores, axis=-1, precise=True)


def ten_lines(q, k, v, scale, mask=None):
    return weights(q, k, scale, mask) @ v


def in_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    scores = np.einsum("bhid,bhjd->bhij", q, k) * scale
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v).astype(q.dtype)


def arrays(dtype=np.float32, **more) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {n: rng.standard_normal((2, 2, 5, 4)).astype(dtype) for n in ("q", "k", "v")} | more


def reference(given, scale=0.5, allowed=None) -> np.ndarray:
    q, k, v = (given[n].astype(np.float64) for n in ("q", "k", "v"))
    scores = scale * np.einsum("bhid,bhjd->bhij", q, k)
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", p / p.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("function", [ten_lines, in_numpy])
def test_the_function_gets_its_arrays_and_the_default_scale(function):
    target = function_target(function)
    assert isinstance(target, Target)
    given = arrays()
    result = target.run(Call("attention", given))
    assert np.allclose(result.outputs["out"], reference(given), atol=1e-5)
    assert result.mutated == ()


def test_bfloat16_stays_bfloat16():
    result = function_target(ten_lines).run(Call("attention", arrays(ml_dtypes.bfloat16)))
    assert result.outputs["out"].dtype == ml_dtypes.bfloat16


def test_causal_reaches_a_function_with_a_mask_alone_as_a_mask():
    given = arrays()
    result = function_target(ten_lines).run(Call("attention", given, {"causal": True}))
    assert np.allclose(result.outputs["out"], reference(given, allowed=np.tri(5, dtype=bool)), atol=1e-5)


def test_a_function_that_takes_causal_is_given_causal():
    seen = []

    def attention(q, k, v, scale, mask=None, causal=False):
        seen.append((mask, causal))
        return v

    function_target(attention).run(Call("attention", arrays(), {"causal": True}))
    function_target(attention).run(Call("attention", arrays(), {"mask": "causal"}))
    assert seen == [(None, True), (None, True)]


def test_a_flag_that_is_off_does_not_reach_a_function_that_does_not_know_it():
    call = Call("attention", arrays(), {"causal": False, "check": False})
    target = function_target(ten_lines)
    assert target.supports(call) is None
    assert np.allclose(target.run(call).outputs["out"], reference(call.arrays), atol=1e-5)


def test_arguments_without_a_default_that_the_call_lacks_are_none_or_false():
    seen = []

    def attention(q, k, v, scale, mask, causal, window):
        seen.append((scale, mask, causal, window))
        return v

    function_target(attention).run(Call("attention", arrays()))
    assert seen == [(0.5, None, False, None)]


@pytest.mark.parametrize(
    ("options", "more", "reason"),
    [
        ({}, {}, None),
        ({"scale": 0.3}, {}, None),
        ({"causal": True, "window": 2}, {}, None),
        ({"causal": False}, {}, None),
        ({"q_offset": 1, "causal": True}, {}, None),
        ({}, {"segments": np.zeros((2, 5), np.int32)}, None),
        ({"softcap": 2.0}, {}, "no argument softcap"),
        ({"alibi": True}, {}, "no argument alibi"),
        ({}, {"sinks": np.zeros(2, np.float32)}, "no argument sinks"),
        ({}, {"kv_lengths": np.ones(2, np.int32)}, "no argument kv_lengths"),
        ({}, {"bias": np.zeros((5, 5), np.float32)}, "no argument bias"),
        ({"window": 0}, {}, "no argument window (this value cannot be posed through mask)"),
    ],
)
def test_what_a_function_with_a_mask_supports(options, more, reason):
    assert function_target(ten_lines).supports(Call("attention", arrays(**more), options)) == reason


def test_what_the_signature_rules_out():
    target = function_target(in_numpy)
    assert target.supports(Call("attention", arrays(), {"causal": True})) == "no argument causal"
    assert target.supports(Call("attention", arrays(mask=np.ones((5, 5), bool)))) == "no argument mask"
    assert target.supports(Call("attention", arrays(), outputs=("out", "lse"))) == "no log-sum-exp output"
    assert "no gradients" in target.supports(Call("attention_gradients", arrays(d_out=arrays()["q"]), outputs=("q",)))
    assert target.supports(Call("rope", {"x": arrays()["q"]})) == "no op rope"
    assert "mx.compile" in target.supports(Call("attention", arrays(), {"compiled": True}))


def test_an_own_causal_is_not_combined_with_an_offset_it_does_not_know():
    def attention(q, k, v, mask=None, causal=False):
        return v

    call = Call("attention", arrays(), {"causal": True, "q_offset": 3})
    assert function_target(attention).supports(call) == "no argument q_offset"


def of_integers(q, k, v, scale, window: int | None = None):
    assert window is None or window >= 1  # a pair cannot be compared
    return v


def of_integers_with_a_mask(q, k, v, scale, mask=None, window: int | None = None):
    assert window is None or window >= 1
    return weights(q, k, scale, mask) @ v


def of_pairs(q, k, v, scale, window: tuple[int | None, int | None] | None = None):
    return v


def of_both(q, k, v, scale, window: int | list[int] | None = None):
    return v


def without_a_word(q, k, v, scale, window=None):
    assert window is None or window >= 1
    return v


@pytest.mark.parametrize(
    ("function", "integer", "pair"),
    [
        (of_integers, None, "window takes an integer alone, as it is annotated"),
        (of_integers_with_a_mask, None, None),
        (of_pairs, "window takes a pair (left, right) alone, as it is annotated", None),
        (of_both, None, None),
        (without_a_word, None, None),
    ],
)
def test_the_annotation_of_window_says_which_forms_are_supported(function, integer, pair):
    target = function_target(function)
    assert target.supports(Call("attention", arrays(), {"window": 2})) == integer
    assert target.supports(Call("attention", arrays(), {"window": [1, 0]})) == pair


def test_a_form_that_window_does_not_take_goes_through_mask():
    given = arrays()
    i, j = np.arange(5)[:, None], np.arange(5)
    target = function_target(of_integers_with_a_mask)
    result = target.run(Call("attention", given, {"window": [1, 1], "q_offset": 1}))
    assert np.allclose(result.outputs["out"], reference(given, allowed=np.abs(i + 1 - j) <= 1), atol=1e-5)


def test_a_pair_to_a_function_that_does_not_say_is_an_error_with_the_way_out():
    target = function_target(without_a_word)
    with pytest.raises(TypeError, match=r"the pair \(1, 0\); .* annotation window: int \| None"):
        target.run(Call("attention", arrays(), {"window": [1, 0]}))
    # Where the pair is wrong by itself the function's own message is what is judged.
    with pytest.raises(TypeError) as caught:
        target.run(Call("attention", arrays(), {"window": [-1, 0]}))
    assert "annotation" not in str(caught.value)


def test_keyword_arguments_take_everything():
    def attention(q, k, v, **options):
        return v

    target = function_target(attention)
    assert target.supports(Call("attention", arrays(), {"softcap": 2.0}, outputs=("out", "lse"))) is None


def test_declared_dtypes_are_capabilities():
    target = function_target(in_numpy, dtypes=("float32",))
    assert target.supports(Call("attention", arrays(np.float16))) == "no dtype float16"


def test_gradients_and_compile_come_with_mlx():
    given = arrays()
    d_out = np.ones_like(given["q"])
    target = function_target(ten_lines)
    call = Call("attention_gradients", {**given, "d_out": d_out}, outputs=("q", "k", "v"))
    plain = target.run(call).outputs
    assert set(plain) == {"q", "k", "v"}
    # With d_out = 1, dv_j is the sum over i of the weights of key j, in every channel.
    p = np.array(weights(mx.array(given["q"]), mx.array(given["k"]), 0.5, None))
    assert np.allclose(plain["v"], p.sum(2)[..., None], atol=1e-5)
    compiled = target.run(call.with_options(compiled=True)).outputs
    assert all(np.allclose(plain[n], compiled[n], atol=1e-6) for n in plain)


def test_a_changed_input_is_reported():
    def in_place(q, k, v):
        q *= 2
        return v

    assert function_target(in_place).run(Call("attention", arrays())).mutated == ("q",)
    assert function_target(in_place, array_library="numpy").run(Call("attention", arrays())).mutated == ("q",)


def test_the_lse_of_a_function_that_returns_it():
    def attention(q, k, v, return_lse=False):
        return (v, v[..., 0]) if return_lse else v

    result = function_target(attention).run(Call("attention", arrays(), outputs=("out", "lse")))
    assert set(result.outputs) == {"out", "lse"}


@pytest.mark.parametrize("function", [lambda: None, lambda q, k: q])
def test_a_function_that_cannot_be_an_attention_is_refused(function):
    with pytest.raises(TypeError, match="takes q, k and v first"):
        function_target(function)


def test_an_unknown_library_is_refused():
    with pytest.raises(ValueError, match="got 'torch'"):
        function_target(ten_lines, array_library="torch")


def test_the_library_is_read_off_the_function():
    def noted(q: mx.array, k, v):
        return v

    plain = {"np": np}
    exec("def only_numpy(q, k, v): return v", plain)
    assert library_of(plain["only_numpy"]) == "numpy"
    assert library_of(in_numpy) == "numpy"
    assert library_of(noted) == "mlx"
    assert library_of(ten_lines) == "mlx"
    declared = {"array_library": "numpy"}
    exec("def said(q, k, v): return v", declared)
    assert library_of(declared["said"]) == "numpy"


def test_figures():
    target = function_target(ten_lines)
    call = Call("attention", arrays())
    assert target.figure(call, "matmul_flops") == 2 * (2 * 2 * 2 * 5 * 5 * 4)
    assert target.figure(call, "depth") >= 4
    assert target.figure(call, "seconds") > 0
    with pytest.raises(Unsupported, match="no figure taste"):
        target.figure(call, "taste")


@pytest.mark.parametrize("function", [ten_lines, in_numpy])
def test_peak_memory_sees_the_scores(function):
    rng = np.random.default_rng(0)
    T = 512
    given = {n: rng.standard_normal((1, 1, T, 8)).astype(np.float32) for n in ("q", "k", "v")}
    peak = function_target(function).figure(Call("attention", given), "peak_bytes")
    assert T * T * 4 <= peak <= 6 * T * T * 4
