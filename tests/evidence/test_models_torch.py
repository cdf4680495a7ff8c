"""The oracle's layers, models and gradients against PyTorch's modules and autograd in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mlx_tx_conformance.oracle import mlp, norms, rnn
from mlx_tx_conformance.oracle.embeddings import embed
from mlx_tx_conformance.oracle.model_gradients import cross_entropy, input_gradient, weight_gradient
from mlx_tx_conformance.oracle.models import decoder, encoder, encoder_decoder
from mlx_tx_conformance.oracle.record import Recorder

CLOSE = {"rtol": 1e-11, "atol": 1e-12}

# Four channels a head: 1 / sqrt(4) is a float32, so that both sides scale by the same number.
D_MODEL, HEADS, D_FF, VOCAB = 16, 4, 24, 11

NORMS = ("input_layernorm", "post_attention_layernorm")


def setup_module() -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)


def teardown_module() -> None:
    torch.set_default_dtype(torch.float32)


def assert_close(got: np.ndarray, expected: torch.Tensor) -> None:
    np.testing.assert_allclose(got, expected.detach().numpy(), **CLOSE)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def unsettled(module: nn.Module) -> nn.Module:
    """All parameters random: torch starts norms at 1 and biases at 0, which would hide where they go."""
    with torch.no_grad():
        for n, parameter in enumerate(module.parameters()):
            noise = torch.tensor(normal(*parameter.shape, seed=n))
            parameter.copy_(1 + noise / 5 if parameter.ndim == 1 else noise / parameter.shape[-1] ** 0.5)
    return module.train()  # evaluation has a fused path of its own; dropout is 0 everywhere


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_layer_norm(eps):
    x, module = normal(3, 4, 7) * 3 + 2, unsettled(nn.LayerNorm(7, eps=eps))
    got = norms.layer_norm(x, module.weight.detach().numpy(), module.bias.detach().numpy(), eps=eps)
    assert_close(got, module(torch.tensor(x)))
    assert_close(norms.layer_norm(x, eps=eps), nn.functional.layer_norm(torch.tensor(x), (7,), eps=eps))


@pytest.mark.parametrize("eps", [1e-6, 0.3])
def test_rms_norm(eps):
    x, module = normal(3, 4, 7) * 3 + 2, unsettled(nn.RMSNorm(7, eps=eps))
    assert_close(norms.rms_norm(x, module.weight.detach().numpy(), eps=eps), module(torch.tensor(x)))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (mlp.relu, nn.functional.relu),
        (mlp.gelu, nn.functional.gelu),
        (mlp.gelu_tanh, lambda x: nn.functional.gelu(x, approximate="tanh")),
        (mlp.silu, nn.functional.silu),
    ],
    ids=["relu", "gelu", "gelu-tanh", "silu"],
)
def test_activations(ours, theirs):
    x = np.concatenate([np.linspace(-4, 40, 2001), normal(1000)])
    assert_close(ours(x), theirs(torch.tensor(x)))


def test_embedding():
    table, ids = normal(7, 3), np.array([[1, 6], [0, 1]])
    assert_close(embed(ids, table), nn.functional.embedding(torch.tensor(ids), torch.tensor(table)))


def test_routing_chooses_torch_topk():
    logits = normal(50, 8)
    values, indices = torch.topk(torch.softmax(torch.tensor(logits), dim=-1), 3, dim=-1)
    chosen, shares = mlp.route(logits, 3, norm_topk=False)
    np.testing.assert_array_equal(chosen, indices.numpy())
    assert_close(np.take_along_axis(shares, chosen, axis=-1), values)
    _, shares = mlp.route(logits, 3)
    assert_close(np.take_along_axis(shares, chosen, axis=-1), values / values.sum(dim=-1, keepdim=True))


def test_cross_entropy():
    logits, targets = normal(2, 5, 7), np.random.default_rng(1).integers(0, 7, size=(2, 5))
    flat = torch.tensor(logits).reshape(10, 7)
    expected = nn.functional.cross_entropy(flat, torch.tensor(targets).reshape(10))
    assert cross_entropy(logits, targets) == pytest.approx(expected.item(), rel=1e-13)
    ignored = torch.tensor(np.where(targets == 3, -100, targets)).reshape(10)
    expected = nn.functional.cross_entropy(flat, ignored)
    assert cross_entropy(logits, targets, targets != 3) == pytest.approx(expected.item(), rel=1e-13)


# --- whole layers and models ---


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()


def attention_weights(module: nn.MultiheadAttention, at: str) -> dict[str, np.ndarray]:
    found = {}
    for name, w, b in zip(
        "qkv",
        array(module.in_proj_weight).reshape(3, -1, D_MODEL),
        array(module.in_proj_bias).reshape(3, -1),
        strict=True,
    ):
        found |= {f"{at}{name}_proj.weight": w, f"{at}{name}_proj.bias": b}
    return found | linear_weights(module.out_proj, f"{at}o_proj")


def linear_weights(module: Any, name: str) -> dict[str, np.ndarray]:
    return {f"{name}.weight": array(module.weight), f"{name}.bias": array(module.bias)}


def layer_weights(layer: Any, at: str) -> dict[str, np.ndarray]:
    """The weights of a torch encoder or decoder layer by our names."""
    found = attention_weights(layer.self_attn, f"{at}self_attn.")
    modules = [layer.norm1, layer.norm2]
    names = list(NORMS)
    if hasattr(layer, "multihead_attn"):
        found |= attention_weights(layer.multihead_attn, f"{at}cross_attn.")
        modules, names = (
            [*modules, layer.norm3],
            ["input_layernorm", "cross_attn_layernorm", "post_attention_layernorm"],
        )
    for module, name in zip(modules, names, strict=True):
        found |= linear_weights(module, at + name)
    return (
        found | linear_weights(layer.linear1, f"{at}mlp.up_proj") | linear_weights(layer.linear2, f"{at}mlp.down_proj")
    )


def config(kind: str, layers: int, placement: str, act: str, **fields: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "vocab_size": VOCAB,
        "d_model": D_MODEL,
        "num_layers": layers,
        "attention": {"num_heads": HEADS, "bias": True, "out_bias": True},
        "norm": {"kind": "layer"},
        "mlp": {"kind": act, "d_ff": D_FF, "bias": True},
        "block": {"placement": placement},
        "final_norm": False,
        "tie_embeddings": True,
        **fields,
    }


def stack_weights(stack: Any, prefix: str) -> dict[str, np.ndarray]:
    found = {}
    for n, layer in enumerate(stack.layers):
        found |= layer_weights(layer, f"{prefix}layers.{n}.")
    return found | (linear_weights(stack.norm, f"{prefix}norm") if stack.norm is not None else {})


TABLE = {"embed_tokens.weight": normal(VOCAB, D_MODEL, seed=99)}

LAYER = {"d_model": D_MODEL, "nhead": HEADS, "dim_feedforward": D_FF, "dropout": 0.0, "batch_first": True}

STYLES = pytest.mark.parametrize(
    ("placement", "act"), [("post", "relu"), ("pre", "relu"), ("post", "gelu"), ("pre", "gelu")], ids=str
)


def torch_encoder(layers: int, placement: str, act: str, final_norm: bool = False) -> Any:
    layer = nn.TransformerEncoderLayer(**LAYER, activation=act, norm_first=placement == "pre")
    norm = nn.LayerNorm(D_MODEL) if final_norm else None
    return unsettled(nn.TransformerEncoder(layer, layers, norm=norm, enable_nested_tensor=False))


def last(stages: dict[str, np.ndarray], placement: str, prefix: str = "") -> np.ndarray:
    """The stream after the last layer."""
    end = ".mlp_norm" if placement == "post" else ".mlp.residual"
    return [array for name, array in stages.items() if name.startswith(prefix) and name.endswith(end)][-1]


@STYLES
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_encoder(placement, act, padded):
    module, x, lengths = torch_encoder(2, placement, act), normal(3, 6, D_MODEL), [6, 2, 5]
    pads = torch.tensor([[t >= length for t in range(6)] for length in lengths]) if padded else None
    expected = module(torch.tensor(x), src_key_padding_mask=pads)
    stages = encoder(
        config("encoder", 2, placement, act),
        stack_weights(module, "") | TABLE,
        np.zeros((3, 6), int),
        lengths=lengths if padded else None,
        record=Recorder({"embed": x}),
    )
    assert_close(last(stages, placement), expected)


@STYLES
def test_causal_stack(placement, act):
    """An encoder of torch with a causal mask is our decoder-only model."""
    module, x = torch_encoder(2, placement, act, final_norm=True), normal(2, 7, D_MODEL)
    expected = module(torch.tensor(x), mask=nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64))
    stages = decoder(
        config("decoder", 2, placement, act, final_norm=True),
        stack_weights(module, "") | TABLE,
        np.zeros((2, 7), int),
        record=Recorder({"embed": x}),
    )
    assert_close(stages["norm"], expected)


@STYLES
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_whole_transformer(placement, act, padded):
    """nn.Transformer: the original architecture, with a norm after each stack."""
    module = nn.Transformer(
        D_MODEL,
        HEADS,
        num_decoder_layers=3,
        dim_feedforward=D_FF,
        dropout=0.0,
        activation=act,
        batch_first=True,
        norm_first=placement == "pre",
        custom_encoder=torch_encoder(2, placement, act, final_norm=True),
    )
    unsettled(module)
    source, target = normal(2, 6, D_MODEL), normal(2, 4, D_MODEL, seed=1)
    pads = torch.tensor([[False] * 6, [False] * 4 + [True] * 2]) if padded else None
    expected = module(
        torch.tensor(source),
        torch.tensor(target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64),
        src_key_padding_mask=pads,
        memory_key_padding_mask=pads,
    )
    weights = stack_weights(module.encoder, "encoder.") | stack_weights(module.decoder, "decoder.") | TABLE
    stages = encoder_decoder(
        config("encoder_decoder", 3, placement, act, num_encoder_layers=2, final_norm=True),
        weights,
        np.zeros((2, 6), int),
        np.zeros((2, 4), int),
        source_lengths=[6, 4] if padded else None,
        record=Recorder({"encoder.embed": source, "decoder.embed": target}),
    )
    assert_close(stages["decoder.norm"], expected)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("layers", [1, 4])
def test_input_gradient(placement, layers):
    """With GELU: differences need a smooth function."""
    module, (x, cotangent) = torch_encoder(layers, placement, "gelu", final_norm=True), normal(2, 5, D_MODEL)
    start = torch.tensor(x[None], requires_grad=True)
    (module(start)[0] * torch.tensor(cotangent)).sum().backward()
    settings = config("encoder", layers, placement, "gelu", final_norm=True)
    got = input_gradient(settings, stack_weights(module, "") | TABLE, x, cotangent)
    expected = array(start.grad[0])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_weight_gradient():
    """Of the cross-entropy of a tied decoder, against autograd, over entries of every kind of weight."""
    module = torch_encoder(2, "pre", "gelu", final_norm=True)
    table = torch.tensor(TABLE["embed_tokens.weight"], requires_grad=True)
    tokens, targets = np.random.default_rng(5).integers(0, VOCAB, size=(2, 2, 5))
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    logits = module(table[torch.tensor(tokens)], mask=mask) @ table.T
    nn.functional.cross_entropy(logits.reshape(10, VOCAB), torch.tensor(targets).reshape(10)).backward()
    weights = stack_weights(module, "") | TABLE
    with torch.no_grad():  # the same names, for the gradients
        for parameter in module.parameters():
            parameter.copy_(parameter.grad)
    gradients = stack_weights(module, "") | {"embed_tokens.weight": array(table.grad)}
    rng = np.random.default_rng(6)
    entries = [(name, tuple(rng.integers(0, w.shape).tolist())) for name, w in gradients.items()]
    got = weight_gradient(config("decoder", 2, "pre", "gelu", final_norm=True), weights, tokens, targets, entries)
    expected = [gradients[name][index] for name, index in entries]
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
def test_rnn_and_its_gradient(bias):
    module = unsettled(nn.RNN(3, 5, batch_first=True, bias=bias))
    x = torch.tensor(normal(2, 7, 3), requires_grad=True)
    states, _ = module(x)
    cotangent = normal(2, 5, seed=3)
    (states[:, -1] * torch.tensor(cotangent)).sum().backward()
    b = array(module.bias_ih_l0 + module.bias_hh_l0) if bias else None
    w_x, w_h = array(module.weight_ih_l0), array(module.weight_hh_l0)
    assert_close(rnn.rnn(array(x), w_x, w_h, b), states)
    assert_close(rnn.rnn_input_gradient(array(x), w_x, w_h, cotangent, b), x.grad)
