"""The attention layers of the models: projections, QK-norm, rotation, cache, attention (ATT-1, MHA-1, GQA-1)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx import nn

from mlx_tx.attention import scaled_dot_product_attention
from mlx_tx.cache.base import Cache
from mlx_tx.cache.cross import CrossKVCache
from mlx_tx.cache.quantised import dequantised
from mlx_tx.cache.view import View, hide
from mlx_tx.config import AttentionConfig, NormConfig, PositionConfig
from mlx_tx.norms import Norm
from mlx_tx.recorder import note, wants_weights
from mlx_tx.rotary import rotate
from mlx_tx.step import Step


class _Attention(nn.Module):
    """What self- and cross-attention share: ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj``, ``q_norm``, ``sinks``."""

    def __init__(self, d_model: int, config: AttentionConfig, norm: NormConfig) -> None:
        super().__init__()
        self._config = config
        D, D_v = config.head_dim, config.value_dim
        N_q, N_kv = config.num_heads, config.num_kv_heads
        assert D is not None
        assert D_v is not None
        assert N_kv is not None
        self._head_dim, self._N_kv = D, N_kv
        self.q_proj = nn.Linear(d_model, N_q * D, bias=config.bias)
        self.k_proj = nn.Linear(d_model, N_kv * D, bias=config.bias)
        self.v_proj = nn.Linear(d_model, N_kv * D_v, bias=config.bias)
        self.o_proj = nn.Linear(N_q * D_v, d_model, bias=config.out_bias)
        if config.qk_norm:
            self.q_norm = Norm(D, norm, bias=False)
            self.k_norm = Norm(D, norm, bias=False)
        if config.sinks:
            self.sinks = mx.zeros((N_q,))

    def _project(self, x: mx.array, source: mx.array | None, at: str) -> tuple[mx.array, Any, Any]:
        """Queries of ``x``, keys and values of ``source`` (none: no keys and values), by heads and normalised."""
        q = note(f"{at}q", _split(self.q_proj(x), self._config.num_heads))
        k = None if source is None else note(f"{at}k", _split(self.k_proj(source), self._N_kv))
        v = None if source is None else note(f"{at}v", _split(self.v_proj(source), self._N_kv))
        if self._config.qk_norm:
            q = note(f"{at}q_norm", self.q_norm(q))
            k = None if k is None else note(f"{at}k_norm", self.k_norm(k))
        return q, k, v

    def _attend(self, q: mx.array, k: mx.array, v: mx.array, at: str, options: dict[str, Any]) -> mx.array:
        options = {"scale": self._config.scale, "softcap": self._config.softcap, **options}
        if self._config.sinks:
            options["sinks"] = self.sinks
        if wants_weights():
            # The weights are what attention makes of the unit vectors as values.
            unit = mx.broadcast_to(mx.eye(k.shape[2], dtype=q.dtype), (*k.shape[:3], k.shape[2]))
            note(f"{at}weights", scaled_dot_product_attention(q, k, unit, **options))
        out = note(f"{at}out", scaled_dot_product_attention(q, k, v, **options))
        return note(f"{at}proj", self.o_proj(out.swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)))


class SelfAttention(_Attention):
    """Attention of tokens to one another.

    Keys are rotated before they are cached; ALiBi and T5's bias take distances from the cache's view, so that every
    position encoding works with every cache.
    """

    def __init__(self, d_model: int, config: AttentionConfig, position: PositionConfig, norm: NormConfig) -> None:
        super().__init__(d_model, config, norm)
        self._position = position

    def __call__(self, x: mx.array, step: Step | None = None, cache: Any = None, at: str = "self_attn.") -> mx.array:
        """``x`` ``[B, T, d_model]``; same shape. ``cache`` is ours or one of mlx-lm's."""
        step = Step.plain(*x.shape[:2]) if step is None else step
        q, k, v = self._project(x, x, at)
        if self._position.kind == "rope":
            by = step.turns(self._position, self._head_dim)
            q = note(f"{at}q_rope", rotate(q, by, traditional=self._position.traditional))
            k = note(f"{at}k_rope", rotate(k, by, traditional=self._position.traditional))
        if cache is None:
            return self._attend(q, k, v, at, step.options(self._config, self._position, View.whole(step.T)))
        if isinstance(cache, Cache):
            options = step.options(self._config, self._position, cache.view(step.T))
            k, v = _fetched(cache, k, v, at)
        else:
            k, v, options = self._foreign(cache, k, v, step, at)
        return self._attend(q, k, v, at, options)

    def _foreign(
        self, cache: Any, k: mx.array, v: mx.array, step: Step, at: str
    ) -> tuple[mx.array, mx.array, dict[str, Any]]:
        """A cache that is not ours tells by ``make_mask`` what may be seen, of keys that it has not dropped too."""
        offset, window = cache.offset, self._config.window
        sized = window if isinstance(window, int) else None
        if window is not None and sized is None:
            raise ValueError(f"[SelfAttention] window must be an integer with a cache of another library; got {window}")
        make_mask = getattr(cache, "make_mask", None)
        mask = None if make_mask is None else make_mask(step.T, return_array=False, window_size=sized)
        ordered, size = isinstance(offset, int), getattr(cache, "max_size", None)
        if self._position.kind in ("alibi", "t5") and ordered and isinstance(size, int) and offset + step.T > size:
            raise self._unplaced(cache)
        k, v = _fetched(cache, k, v, at)
        T = k.shape[2]
        if isinstance(mask, mx.array):
            mask = mask[None] if mask.ndim == 1 else mask
            if mask.shape[-1] != T:
                raise ValueError(f"[SelfAttention] the mask of {type(cache).__name__} must be for T_kv={T} keys; "
                                 f"got shape {mask.shape}")  # fmt: skip
        if ordered and offset + step.T == T:
            # Every key is there, in order. An array may still forget some of them; nothing and "causal" add no rule.
            options = step.options(self._config, self._position, View(N=step.T, T=T, first=offset))
            if isinstance(mask, mx.array):
                options["mask"] = _both(options.get("mask"), mask)
            return k, v, options
        if self._position.kind in ("alibi", "t5"):
            raise self._unplaced(cache)
        if step.mask is not None:
            raise ValueError("[SelfAttention] mask must be absent with a cache of another library that forgets keys")
        if mask is None and step.T > 1:
            raise ValueError(f"[SelfAttention] a cache of another library that forgets keys must make masks for "
                             f"steps of several tokens; got none of {type(cache).__name__}")  # fmt: skip
        if isinstance(mask, str):
            mask = View(N=step.T, T=T, first=T - step.T).allowed(sized)
        return k, v, {"mask": mask}

    def _unplaced(self, cache: Any) -> ValueError:
        return ValueError(f"[SelfAttention] position {self._position.kind!r} needs a cache that knows where its "
                          f"keys stand; got {type(cache).__name__}: use mlx_tx.cache")  # fmt: skip


class CrossAttention(_Attention):
    """Attention of a decoder to the output of its encoder (DEC-1); no positions stand between the two."""

    def __call__(
        self,
        x: mx.array,
        memory: mx.array | None,
        cache: CrossKVCache | None = None,
        *,
        exists: mx.array | None = None,
        lengths: Any = None,
        at: str = "cross_attn.",
    ) -> mx.array:
        """``x`` ``[B, T, d_model]``, ``memory`` ``[B, S, d_model]``; the shape of ``x``.

        ``lengths`` ``[B]`` and ``exists`` ``[B, 1, 1, S]`` say which of the memory is no padding. A filled cache
        stands in for all three.
        """
        held = cache is not None and not cache.empty()
        if memory is None and not held:
            raise ValueError("[CrossAttention] memory must be given where no cache holds it; got None")
        q, k, v = self._project(x, None if held else memory, at)
        if cache is not None and memory is not None and not held:
            cache.fill(k, v, exists_of(exists, lengths, memory.shape[1]))
        if cache is not None:
            (k, v), exists, lengths = cache.fetch(), cache.exists, None
        given = {"mask": exists, "kv_lengths": lengths}
        return self._attend(q, k, v, at, {name: value for name, value in given.items() if value is not None})


def exists_of(exists: mx.array | None, lengths: Any, S: int) -> mx.array | None:
    """Lengths and padding of a memory as one boolean array ``[B, 1, 1, S]``."""
    if lengths is None:
        return exists
    within = (mx.arange(S) < mx.array(lengths)[:, None])[:, None, None, :]
    return within if exists is None else mx.logical_and(within, exists)


def _fetched(cache: Any, k: mx.array, v: mx.array, at: str) -> tuple[mx.array, mx.array]:
    k, v = cache.update_and_fetch(k, v)
    if not isinstance(k, tuple):
        return k, v
    packing = {"group_size": cache.group_size, "bits": cache.bits}
    return note(f"{at}k_cache", dequantised(k, **packing)), note(f"{at}v_cache", dequantised(v, **packing))


def _both(given: mx.array | None, of_cache: mx.array) -> mx.array:
    """The caller's mask and the cache's as one."""
    if given is not None and of_cache.dtype == mx.bool_:
        given, of_cache = of_cache, given
    both = hide(of_cache, given) if given is None or given.dtype == mx.bool_ else of_cache + given
    assert both is not None
    return both


def _split(x: mx.array, heads: int) -> mx.array:
    """[B, T, heads * D] to [B, heads, T, D]."""
    B, T, width = x.shape
    return x.reshape(B, T, heads, width // heads).swapaxes(1, 2)
