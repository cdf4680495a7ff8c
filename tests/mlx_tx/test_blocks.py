"""One layer: residuals, placements of the norms, positions and tokens (RES-1, NRM-2)."""

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten

from mlx_tx.blocks import Block
from mlx_tx.step import Step
from tests.mlx_tx.small import config


def block(settings, seed=0, **options):
    mx.random.seed(seed)
    made = Block(settings, settings.layer(0), **options)
    made.eval()
    return made


def silenced(made):
    """The block with zeros for the output projections."""
    for linear in (
        made.self_attn.o_proj,
        made.mlp.down_proj,
        *([made.cross_attn.o_proj] if "cross_attn" in made else []),
    ):
        linear.weight = mx.zeros_like(linear.weight)
    return made


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("placement", ["pre", "sandwich"])
def test_silent_sub_layers_leave_the_stream_as_it_is(placement, cross):
    made = silenced(block(config(block={"placement": placement}), cross=cross))
    x = mx.random.normal((2, 5, 32))
    memory = {"memory": mx.random.normal((2, 3, 32))} if cross else None
    assert mx.array_equal(made(x, memory=memory), x).item()


def test_silent_sub_layers_of_post_norm_normalise_the_stream():
    made = silenced(block(config(block={"placement": "post"}, norm={"kind": "layer"})))
    y = np.array(made(3 + 5 * mx.random.normal((2, 5, 32))))
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(-1), 1, atol=1e-3)


def test_the_placements_differ():
    x = mx.random.normal((1, 4, 32))
    outs = [np.array(block(config(block={"placement": p}))(x)) for p in ("pre", "post", "sandwich")]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(outs[a] - outs[b]).max() > 0.1


def test_with_pre_norm_the_gradient_at_the_input_stays_bounded_with_depth():
    x, d_out = mx.random.normal((1, 6, 32)), mx.random.normal((1, 6, 32))
    norms = {}
    for depth in (1, 4, 16):
        layers = [block(config(), seed=n) for n in range(depth)]

        def run(x, layers=layers):
            for layer in layers:
                x = layer(x)
            return (x * d_out).sum()

        norms[depth] = mx.linalg.norm(mx.grad(run)(x).flatten()).item()
    assert 0.5 * norms[1] < norms[16] < 4 * norms[1]


@pytest.mark.parametrize("causal", [False, True])
def test_one_layer_lets_every_token_reach_every_allowed_one(causal):
    made = block(config(position={"kind": "none"}))
    x = mx.random.normal((1, 7, 32))
    step = Step.plain(1, 7, causal=causal)
    for i in range(7):
        gradient = mx.grad(lambda x, i=i: (made(x, step)[0, i] ** 2).sum())(x)
        reached = np.array(mx.abs(gradient).sum(-1))[0] > 0
        assert reached.tolist() == [not causal or j <= i for j in range(7)]


def test_dropout_is_no_parameter():
    names = [name for name, _ in tree_flatten(block(config(block={"dropout": 0.3})).parameters())]
    assert not any("dropout" in name for name in names)
