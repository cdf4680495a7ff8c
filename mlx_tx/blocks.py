"""One layer of a Transformer: attention and MLP with residual connections and norms (RES-1, NRM-2, BLK-1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx import nn

from mlx_tx.attention_layers import CrossAttention, SelfAttention
from mlx_tx.cache.cross import CacheList
from mlx_tx.config import LayerConfig, ModelConfig
from mlx_tx.mlp import make_mlp
from mlx_tx.norms import Norm
from mlx_tx.recorder import note
from mlx_tx.step import Step


class Block(nn.Module):
    """Self-attention, with ``cross`` attention to a memory, and an MLP.

    .. code-block:: text

        pre        x = x + f(norm(x))
        post       x = norm(x + f(x))
        sandwich   x = x + norm'(f(norm(x)))

    ``input_layernorm`` belongs to self-attention, ``cross_attn_layernorm`` to cross-attention and
    ``post_attention_layernorm`` to the MLP, whatever the placement; a sandwich adds ``post_self_attn_norm``,
    ``post_cross_attn_norm`` and ``post_mlp_norm``.

    Sources: post: Vaswani et al. 2017, section 3.1; pre: Xiong et al. 2020; sandwich: Ding et al. 2021, section 2.4.
    """

    def __init__(self, config: ModelConfig, layer: LayerConfig, *, cross: bool = False) -> None:
        super().__init__()
        d_model, norm = config.d_model, config.norm
        self._placement = config.block.placement
        self.input_layernorm = Norm(d_model, norm)
        self.self_attn = SelfAttention(d_model, layer.attention, layer.position, norm)
        if cross:
            self.cross_attn_layernorm = Norm(d_model, norm)
            self.cross_attn = CrossAttention(d_model, layer.attention, norm)
        self.post_attention_layernorm = Norm(d_model, norm)
        self.mlp = make_mlp(d_model, layer.mlp)
        if self._placement == "sandwich":
            self.post_self_attn_norm = Norm(d_model, norm)
            if cross:
                self.post_cross_attn_norm = Norm(d_model, norm)
            self.post_mlp_norm = Norm(d_model, norm)
        self.dropout = nn.Dropout(config.block.dropout)

    def __call__(
        self, x: mx.array, step: Step | None = None, cache: Any = None, *, memory: dict[str, Any] | None = None,
        at: str = "",
    ) -> mx.array:  # fmt: skip
        """``x`` ``[B, T, d_model]``; same shape.

        ``memory`` holds the arguments ``memory``, ``exists`` and ``lengths`` of cross-attention; ``at`` stands before
        the names of recorded stages.
        """
        own: Any = cache
        other: Any = None
        if isinstance(cache, CacheList):
            own, other = cache
        x = self._sublayer(
            x,
            lambda h: self.self_attn(h, step, own, at=f"{at}self_attn."),
            self.input_layernorm,
            f"{at}input_norm",
            "self_attn",
            at,
        )
        if "cross_attn" in self:
            x = self._sublayer(
                x,
                lambda h: self.cross_attn(h, cache=other, at=f"{at}cross_attn.", **(memory or {"memory": None})),
                self.cross_attn_layernorm,
                f"{at}cross_attn_norm",
                "cross_attn",
                at,
            )
        return self._sublayer(
            x, lambda h: self.mlp(h, at=f"{at}mlp."), self.post_attention_layernorm, f"{at}mlp_norm", "mlp", at
        )

    def _sublayer(
        self, x: mx.array, f: Callable[[mx.array], mx.array], norm: Norm, stage: str, name: str, at: str
    ) -> mx.array:
        y = f(x if self._placement == "post" else note(stage, norm(x)))
        if self._placement == "sandwich":
            y = note(f"{at}post_{name}_norm", self[f"post_{name}_norm"](y))
        x = note(f"{at}{name}.residual", x + self.dropout(y))
        return note(stage, norm(x)) if self._placement == "post" else x
