"""The oracle against PyTorch in float64: its attention functions, and its autograd on the formula in torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from mlx_tx_conformance.oracle.attention import attention
from mlx_tx_conformance.oracle.gradients import attention_gradients
from tests.conformance.oracle.cases import CASES, Case, Dims

# Of a size at which blocks, groups and alignments differ, beside the tiny ones.
LARGER = Dims(B=2, N_q=6, N_kv=2, T_q=37, T_kv=53, D=24, D_v=16)

TOLERANCE = {"rtol": 1e-11, "atol": 1e-12}


def tensors(arrays: dict[str, np.ndarray], *names: str) -> list[torch.Tensor]:
    return [torch.tensor(arrays[name], requires_grad=True) for name in names]


def assert_close(got: np.ndarray, expected: torch.Tensor, name: str) -> None:
    np.testing.assert_allclose(got, expected.detach().numpy(), err_msg=name, **TOLERANCE)


def larger(name: str, seed_options: Any = None, **dims: int) -> Case:
    return Case(name, Dims(**{**vars(LARGER), **dims}), seed_options or (lambda rng, d: {}))


SDPA = {
    "plain": (larger("plain"), {}, {}),
    "mha": (larger("mha", N_kv=6), {}, {}),
    "mqa": (larger("mqa", N_kv=1), {}, {}),
    "scale": (larger("scale"), {"scale": 0.5}, {}),
    "causal-square": (larger("square", T_kv=37), {"causal": True}, {"is_causal": True}),
    # torch's is_causal stands at the upper left: our offset 0.
    "causal-upper-left": (larger("upper-left", N_kv=6), {"causal": True, "q_offset": 0}, {"is_causal": True}),
    "boolean-mask": (larger("boolean"), {"mask": np.tri(37, 53, 11, dtype=bool)}, {}),
    "boolean-mask-of-keys": (larger("keys"), {"mask": (np.arange(106).reshape(2, 1, 1, 53) % 3 > 0)}, {}),
    "boolean-mask-with-empty-rows": (larger("empty"), {"mask": np.tri(37, 53, -5, dtype=bool)}, {}),
    "additive-mask": (larger("additive"), {"mask": np.sin(np.arange(6 * 37 * 53.0)).reshape(1, 6, 37, 53)}, {}),
    "additive-mask-with-inf": (larger("inf"), {"mask": np.where(np.tri(37, 53, 3) > 0, 0.25, -np.inf)}, {}),
}


@pytest.mark.parametrize(("case", "ours", "theirs"), SDPA.values(), ids=SDPA)
def test_scaled_dot_product_attention_and_its_gradients(case, ours, theirs):
    a = case.arrays()
    q, k, v = tensors(a, "q", "k", "v")
    mask = torch.tensor(ours["mask"]) if "mask" in ours else None
    scale = float(np.float32(ours.get("scale", LARGER.D**-0.5)))
    shared = case.dims.N_q != case.dims.N_kv
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=shared, **theirs)
    out.backward(torch.tensor(a["d_out"]))
    result = attention_gradients(a["q"], a["k"], a["v"], a["d_out"], **ours)
    assert_close(result["stages"].out, out, "out")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        assert_close(result[name], tensor.grad, name)


@pytest.mark.parametrize(("T_q", "T_kv"), [(37, 53), (1, 53), (37, 37)], ids=str)
def test_lower_right_is_torch_causal_lower_right(T_q, T_kv):
    a = larger("lower-right", N_kv=6, D_v=24, T_q=T_q, T_kv=T_kv).arrays()
    q, k, v = (tensor.detach() for tensor in tensors(a, "q", "k", "v"))
    scale = float(np.float32(LARGER.D**-0.5))
    out = scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(T_q, T_kv), scale=scale)
    assert_close(attention(a["q"], a["k"], a["v"], causal=True).out, out, "out")


def torch_attention(q, k, v, *, bias=None, mask=None, sinks=None, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of the formula in differentiable torch ops, float64."""
    B, N_q, T_q, _ = q.shape
    T_kv = k.shape[2]
    k, v = (x.repeat_interleave(N_q // x.shape[1], dim=1) for x in (k, v))
    s = torch.einsum("bhid,bhjd->bhij", q, k) * options["scale"]
    if "softcap" in options:
        s = options["softcap"] * torch.tanh(s / options["softcap"])
    offset = torch.as_tensor(options.get("q_offset", T_kv - T_q)).reshape(-1, 1, 1, 1)
    behind = torch.arange(T_q).reshape(1, 1, -1, 1) + offset - torch.arange(T_kv)
    if "alibi" in options:
        s = s - torch.as_tensor(options["alibi"]).reshape(-1, N_q, 1, 1) * behind.abs()
    hidden = torch.zeros(B, 1, T_q, T_kv, dtype=torch.bool)
    for term in (bias, mask):
        if term is not None and term.dtype == torch.bool:
            hidden = hidden | ~term
        elif term is not None:
            hidden = hidden | torch.isneginf(term)
            s = s + term
    if options.get("causal"):
        hidden = hidden | (behind < 0)
    if "window" in options:
        window = options["window"]
        left, right = window if isinstance(window, tuple) else (window - 1, 0)
        if left is not None:
            hidden = hidden | (behind > left)
        if right is not None:
            hidden = hidden | (behind < -right)
    if "kv_lengths" in options:
        hidden = hidden | (torch.arange(T_kv) >= torch.as_tensor(options["kv_lengths"]).reshape(-1, 1, 1, 1))
    if "segments" in options:
        pair = options["segments"]
        of_q, of_k = (torch.as_tensor(x) for x in (pair if isinstance(pair, tuple) else (pair, pair)))
        hidden = hidden | (of_q[:, None, :, None] != of_k[:, None, None, :])
    hidden = hidden.expand(s.shape)
    s = s.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        s = torch.cat([s, sinks.reshape(1, -1, 1, 1).expand(B, N_q, T_q, 1)], dim=-1)
    # A row of -inf alone would send NaN back through the softmax: it is made finite here and replaced afterwards.
    empty = torch.isneginf(s).all(dim=-1, keepdim=True)
    safe = s.masked_fill(empty, 0.0)
    lse = torch.logsumexp(safe, dim=-1).masked_fill(empty[..., 0], -torch.inf)
    weights = torch.softmax(safe, dim=-1)[..., :T_kv].masked_fill(hidden, 0.0)
    return weights @ v, lse


def larger_everything(rng: np.random.Generator, d: Dims) -> dict[str, Any]:
    return {
        "softcap": 1.5,
        "mask": np.where(rng.random((d.B, 1, d.T_q, d.T_kv)) < 0.2, -np.inf, rng.normal(size=(d.B, 1, d.T_q, d.T_kv))),
        "bias": rng.normal(size=(d.N_q, 1, d.T_kv)),
        "sinks": rng.normal(size=d.N_q),
        "alibi": rng.random((d.B, d.N_q)) / 8,
        "causal": True,
        "window": (30, 2),
        "kv_lengths": np.array([d.T_kv - 9, d.T_kv]),
        "segments": (np.arange(d.B * d.T_q).reshape(d.B, -1) // 25, np.arange(d.B * d.T_kv).reshape(d.B, -1) // 35),
        "q_offset": np.array([4, 16]),
    }


# A sink of -inf has no derivative.
FORMULA = [*(case for case in CASES if case.name != "sink-of-minus-infinity"), larger("larger", larger_everything)]


@pytest.mark.parametrize("case", FORMULA, ids=[case.name for case in FORMULA])
def test_autograd_of_the_formula(case):
    a, options = case.arrays(), case.options()
    leaves = dict(zip("qkv", tensors(a, "q", "k", "v"), strict=True))
    for name in ("bias", "mask", "sinks"):
        if name in options:
            leaves[name] = torch.tensor(options[name], requires_grad=options[name].dtype != bool)
    rest = {name: value for name, value in options.items() if name not in leaves}
    out, lse = torch_attention(**leaves, **rest)
    finite = ~torch.isneginf(lse)
    total = (out * torch.tensor(a["d_out"])).sum() + (lse[finite] * torch.tensor(a["d_lse"])[finite]).sum()
    total.backward()

    result = attention_gradients(a["q"], a["k"], a["v"], a["d_out"], d_lse=a["d_lse"], **options)
    assert_close(result["stages"].out, out, "out")
    assert_close(result["stages"].lse, lse, "lse")
    for name, tensor in leaves.items():
        if tensor.requires_grad:
            assert_close(result[name], tensor.grad, name)


def test_flex_attention():
    """PyTorch's attention with score and mask functions knows soft-cap, ALiBi, window, segments and log-sum-exp."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    case = larger("flex", T_q=53)
    a = case.arrays()
    q, k, v = (tensor.detach() for tensor in tensors(a, "q", "k", "v"))
    slopes = torch.linspace(0.01, 0.3, 6, dtype=torch.float64)
    ids = torch.arange(53) // 20

    def score_mod(score, b, h, i, j):
        return 1.25 * torch.tanh(score / 1.25) - slopes[h] * (i - j).abs()

    def mask_mod(b, h, i, j):
        # The first five queries see nothing; document segments, a window of nine keys, and 50 keys in all.
        return (i >= 5) & (i - j < 9) & (i >= j) & (ids[i] == ids[j]) & (j < 50)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is slow without compilation
        block_mask = create_block_mask(mask_mod, None, None, 53, 53, device="cpu")
        out, lse = flex_attention(
            q, k, v, score_mod, block_mask, scale=float(np.float32(24**-0.5)), enable_gqa=True, return_lse=True
        )
    stages = attention(
        a["q"],
        a["k"],
        a["v"],
        softcap=1.25,
        alibi=slopes.numpy(),
        window=9,
        causal=True,
        segments=np.tile(ids.numpy(), (2, 1)),
        kv_lengths=[50, 50],
        q_offset=0,
        mask=(np.arange(53) >= 5)[:, None],
    )
    assert_close(stages.out, out, "out")
    assert_close(stages.lse, lse, "lse")
    assert np.isneginf(stages.lse[:, :, :5]).all()
