"""The attention layer: projections around :func:`mlx_tx.scaled_dot_product_attention` (ATT-1, MHA-1)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx import nn

from mlx_tx.attention import scaled_dot_product_attention
from mlx_tx.positions import rope


class MultiHeadAttention(nn.Module):
    """Multi-head attention over ``x``, or over ``memory`` (cross-attention).

    .. code-block:: text

        Q = x W_q,  K = m W_k,  V = m W_v   (m is memory, or x where there is none)
        y = concat_h(softmax(scale * Q_h K_g^T + mask) V_g) W_o,   g = h // (num_heads / num_kv_heads)

    Channels of Q are laid out head by head: head h owns ``h * head_dim .. (h + 1) * head_dim - 1`` (MHA-1). The
    parameters are ``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj``, named as in Hugging Face checkpoints.

    Args:
        d_model (int): Width of ``x`` and of the result.
        num_heads (int): Query heads, N_q.
        num_kv_heads (int, optional): Key/value heads, N_kv; divides ``num_heads``. Default: ``num_heads``.
        head_dim (int, optional): D. Default: ``d_model // num_heads``, which must then divide evenly.
        memory_dim (int, optional): Width of ``memory``. Default: ``d_model``.
        bias (bool): Whether the four projections have a bias. Default: ``False``.
        rope_base (float, optional): Rotates queries and keys with this base (POS-3). Default: ``None``, no rotation.
        rope_traditional (bool): Rotate neighbouring channels instead of halves.

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for grouped heads.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = False,
        rope_base: float | None = None,
        rope_traditional: bool = False,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"[MultiHeadAttention] num_heads must be a multiple of num_kv_heads; got {num_heads} and {num_kv_heads}"
            )
        if head_dim is None:
            if d_model % num_heads:
                raise ValueError(
                    f"[MultiHeadAttention] d_model must be a multiple of num_heads where head_dim is not given; "
                    f"got {d_model} and {num_heads}"
                )
            head_dim = d_model // num_heads
        memory_dim = d_model if memory_dim is None else memory_dim
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.rope_base = rope_base
        self.rope_traditional = rope_traditional
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=bias)
        self.k_proj = nn.Linear(memory_dim, num_kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(memory_dim, num_kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias=bias)

    def __call__(self, x: mx.array, memory: mx.array | None = None, *, offset: Any = 0, **options: Any) -> mx.array:
        """The result for ``x`` ``[B, T_q, d_model]``, same shape and dtype.

        ``memory`` is ``[B, T_kv, memory_dim]``; queries are not rotated against it. ``offset`` is the position of
        the first token for RoPE. ``options`` go to the attention function (``mask``, ``causal``, ``window``, ...).
        """
        source = x if memory is None else memory
        q = self._split(self.q_proj(x), self.num_heads)
        k = self._split(self.k_proj(source), self.num_kv_heads)
        v = self._split(self.v_proj(source), self.num_kv_heads)
        if self.rope_base is not None and memory is None:
            q = rope(q, offset=offset, base=self.rope_base, traditional=self.rope_traditional)
            k = rope(k, offset=offset, base=self.rope_base, traditional=self.rope_traditional)
        out = scaled_dot_product_attention(q, k, v, **options)
        B, T_q = x.shape[:2]
        return self.o_proj(out.swapaxes(1, 2).reshape(B, T_q, -1))

    @staticmethod
    def _split(x: mx.array, heads: int) -> mx.array:
        """[B, T, heads * D] to [B, heads, T, D]."""
        B, T, width = x.shape
        return x.reshape(B, T, heads, width // heads).swapaxes(1, 2)
