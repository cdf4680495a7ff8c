"""The adapters of mx.fast and mlx_tx: what they declare, which path they report, how they derive other ops."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.call import Call
from mlx_tx_conformance.targets import TargetError, open_target

RNG = np.random.default_rng(3)


def normal(*shape) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def arrays(**more) -> dict[str, np.ndarray]:
    return {n: normal(2, 2, 5, 8) for n in ("q", "k", "v")} | more


@pytest.mark.parametrize(
    ("options", "more", "reason"),
    [
        ({"causal": True}, {}, None),
        ({"mask": "causal"}, {}, None),
        ({"causal": True}, {"mask": np.ones((5, 5), bool)}, None),
        ({}, {"bias": normal(2, 2, 5, 5)}, None),
        ({}, {"sinks": normal(2)}, None),
        ({"window": 3}, {}, "no argument window"),
        ({"softcap": 3.0, "alibi": True}, {}, "no argument alibi, softcap"),
        ({}, {"kv_lengths": np.ones(2, np.int32)}, "no argument kv_lengths"),
        ({}, {"q_segments": np.ones((2, 5)), "kv_segments": np.ones((2, 5))}, "no argument segments"),
        ({"path": "composed"}, {}, "no argument path"),
    ],
)
def test_what_mx_fast_supports(options, more, reason):
    assert open_target("mx.fast").supports(Call("attention", arrays(**more), options)) == reason


def test_mx_fast_takes_no_mask_that_is_wider_than_its_inputs():
    half = {name: array.astype(np.float16) for name, array in arrays().items()}
    wide = np.zeros((5, 5), np.float32)
    assert open_target("mx.fast").supports(Call("attention", {**half, "mask": wide})) == (
        "no float32 mask with float16 inputs"
    )
    for mask in (wide.astype(np.float16), np.ones((5, 5), bool), np.ones((5, 5), np.int32)):
        assert open_target("mx.fast").supports(Call("attention", {**half, "mask": mask})) is None
    narrow = {**arrays(), "mask": wide.astype(np.float16)}
    assert open_target("mx.fast").supports(Call("attention", narrow)) is None
    open_target("mx.fast").run(Call("attention", narrow))


def test_mx_fast_poses_causal_beside_a_mask():
    given = arrays(mask=np.ones((5, 5), bool))
    given["mask"][:, 1] = False
    narrowed = np.tri(5, dtype=bool) & given["mask"]
    both = open_target("mx.fast").run(Call("attention", given, {"causal": True})).outputs["out"]
    alone = open_target("mx.fast").run(Call("attention", {**given, "mask": narrowed})).outputs["out"]
    assert np.allclose(both, alone, atol=1e-6)
    assert not np.allclose(both, open_target("mx.fast").run(Call("attention", given)).outputs["out"], atol=1e-3)


@pytest.mark.parametrize("path", ["composed", "blockwise"])
def test_mlx_tx_reports_the_path_that_ran(path):
    result = open_target(f"mlx_tx:{path}").run(Call("attention", arrays(), outputs=("out", "lse")))
    assert result.path == path
    assert set(result.outputs) == {"out", "lse"}


def test_an_option_path_goes_before_the_target_s():
    result = open_target("mlx_tx:composed").run(Call("attention", arrays(), {"path": "blockwise"}))
    assert result.path == "blockwise"


def test_a_case_of_another_path_is_not_for_a_target():
    assert open_target("mlx_tx:composed").path_refusal("composed") is None
    assert open_target("mlx_tx").path_refusal("fused") is None
    assert open_target("mlx_tx:composed").path_refusal("fused") == "asks for path fused, not composed"
    assert open_target("mx.fast").path_refusal("fused") == "no path fused"


def test_the_mlx_path_says_what_it_does_not_take():
    target = open_target("mlx_tx:mlx")
    assert "window" in target.supports(Call("attention", arrays(), {"window": 3}))
    assert target.supports(Call("attention", arrays(), {"window": 0})) is None, "a bad call is run, to be refused"


def test_an_unknown_path_is_refused():
    with pytest.raises(TargetError, match="'sideways'"):
        open_target("mlx_tx:sideways")


def derivative(target, call: Call, name: str) -> np.ndarray:
    return target.run(call).outputs[name].astype(np.float64)


@pytest.mark.parametrize("name", ["mx.fast", "mlx_tx:composed"])
def test_forward_mode_is_the_transpose_of_the_gradient(name):
    target = open_target(name)
    given = arrays()
    tangents = {f"t_{n}": normal(2, 2, 5, 8) for n in ("q", "k", "v")}
    d_out = normal(2, 2, 5, 8)
    forward = derivative(target, Call("attention_jvp", {**given, **tangents}), "out")
    back = target.run(Call("attention_gradients", {**given, "d_out": d_out}, outputs=("q", "k", "v"))).outputs
    one = float((forward * d_out).sum())
    other = sum(float((back[n].astype(np.float64) * tangents[f"t_{n}"]).sum()) for n in ("q", "k", "v"))
    assert one == pytest.approx(other, rel=1e-4)


def test_the_second_derivative_is_that_of_the_gradient():
    target = open_target("mlx_tx:composed")
    given = arrays()
    d_out = normal(2, 2, 5, 8)
    t_q = normal(2, 2, 5, 8)
    zero = np.zeros_like(t_q)
    call = Call("attention_hvp", {**given, "d_out": d_out, "t_q": t_q, "t_k": zero, "t_v": zero})
    step = 2.0**-6

    def gradient(shift):
        moved = {**given, "q": given["q"] + np.float32(shift) * t_q, "d_out": d_out}
        return derivative(target, Call("attention_gradients", moved, outputs=("q",)), "q")

    expected = (gradient(step) - gradient(-step)) / (2 * step)
    assert np.allclose(derivative(target, call, "out"), expected, atol=2e-2 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["mx.fast", "mlx_tx:composed", "mlx_tx:blockwise"])
def test_a_vectorised_call_is_the_batched_one(name):
    target = open_target(name)
    mask = np.random.default_rng(0).random((2, 1, 5, 5)) < 0.7
    mask[..., 0] = True
    given = arrays(mask=mask)
    plain = derivative(target, Call("attention", given), "out")
    assert np.allclose(derivative(target, Call("attention_vmap", given), "out"), plain, atol=1e-6)


@pytest.mark.parametrize("op", ["rope", "alibi_slopes"])
def test_position_encodings_are_ops_of_mlx_tx(op):
    arguments = {"rope": ({"x": normal(1, 2, 3, 8)}, {"offset": 4}), "alibi_slopes": ({}, {"n_heads": 6})}[op]
    result = open_target("mlx_tx").run(Call(op, *arguments))
    assert result.outputs["out"].shape == {"rope": (1, 2, 3, 8), "alibi_slopes": (6,)}[op]


def layer_arrays(D_v: int = 4) -> dict[str, np.ndarray]:
    return {
        "x": normal(2, 5, 12), "w_q": normal(12, 8), "w_k": normal(12, 4), "w_v": normal(12, D_v),
        "w_o": normal(2 * D_v, 12), "b_q": normal(8),
    }  # fmt: skip


def test_the_layer_holds_the_weights_of_the_call():
    given = layer_arrays()
    options = {"N_q": 2, "N_kv": 1, "causal": True}
    actual = open_target("mlx_tx").run(Call("attention_layer", given, options)).outputs["out"]
    x = given["x"].astype(np.float64)
    q = (x @ given["w_q"] + given["b_q"]).reshape(2, 5, 2, 4).swapaxes(1, 2)
    k, v = ((x @ given[n])[:, None] for n in ("w_k", "w_v"))
    s = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(-1, -2) / 2, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    heads = (p / p.sum(-1, keepdims=True)) @ v
    assert np.allclose(actual, heads.swapaxes(1, 2).reshape(2, 5, 8) @ given["w_o"], atol=1e-3)


def test_a_layer_that_the_module_cannot_be_is_unsupported():
    call = Call("attention_layer", layer_arrays(D_v=6), {"N_q": 2, "N_kv": 1})
    assert "value heads of another size" in open_target("mlx_tx").supports(call)
    scaled = Call("attention_layer", layer_arrays(), {"N_q": 2, "N_kv": 1, "rope": {"scale": 0.5}})
    assert "rope scale" in open_target("mlx_tx").supports(scaled)
