"""The ops ``model`` and ``model_gradients`` on mlx_tx's models, with the weights of the call in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from .derive import Arrays

# Arrays of a call that are no weights.
INPUTS = ("tokens", "source", "lengths", "left_padding", "source_lengths", "segments", "d_logits")
# Stages of the whole text so far, rather than of a step's own tokens, and stages of what is fed once.
WHOLE = (".k_cache", ".v_cache")
ONCE = ("cross_attn.k", "cross_attn.v", "cross_attn.k_norm")


def build(arrays: Arrays, options: Mapping[str, Any]) -> Any:
    """The model of the call's configuration, or of the preset that it asks for, with the call's weights.

    It is in evaluation: a preset may have dropout, which training alone uses.
    """
    import mlx_tx

    preset = options.get("preset")
    if preset is not None:
        given = dict(preset)
        config = getattr(mlx_tx.ModelConfig, given.pop("name"))(**given)
    else:
        config = mlx_tx.ModelConfig.from_dict(dict(options["config"]))
    weights = {name: array for name, array in arrays.items() if name not in INPUTS}
    return mlx_tx.with_weights(mlx_tx.make_model(config), weights).eval()


def model(arrays: Arrays, options: Mapping[str, Any], path: str) -> Arrays:
    """``logits``, or every stage with option ``stages``; fed in ``chunks`` through ``cache`` where given."""
    module = build(arrays, options)
    with attention_on(path):
        steps = list(_steps(module, arrays, options))
    stages = joined(steps)
    logits = "decoder.logits" if "decoder.logits" in stages else "logits"
    if options.get("stages"):
        return {**stages, "logits": stages[logits]}
    return {"logits": stages[logits]}


def _steps(module: Any, arrays: Arrays, options: Mapping[str, Any]) -> Iterator[Arrays]:
    """The stages of every step that the tokens are fed in."""
    import mlx_tx

    tokens, cache = arrays["tokens"], make_cache(module, arrays, options.get("cache"))
    # A batched cache was told of the padding when it was made.
    names = ("lengths",) if cache is not None else ("lengths", "left_padding", "segments")
    given: dict[str, Any] = {name: arrays[name] for name in names if name in arrays}
    if options.get("rope_length") is not None:
        given["rope_length"] = options["rope_length"]
    wants = bool(options.get("attention_weights"))
    start, memory = 0, None
    for n, size in enumerate(options.get("chunks") or [tokens.shape[1]]):
        chunk = tokens[:, start : start + size]
        if n > 0:
            given.pop("lengths", None)  # rows end before the first step does; later tokens are for all of them
        start += size
        with mlx_tx.record_stages(weights=wants) as stages:
            if "source" not in arrays:
                module(chunk, cache, **given)
            else:
                if n == 0:
                    memory = module.encode(arrays["source"], lengths=arrays.get("source_lengths"))
                first = memory if n == 0 or cache is None else None
                module.decode(chunk, first, cache, memory_lengths=arrays.get("source_lengths"), **given)
        yield dict(stages)


def make_cache(module: Any, arrays: Arrays, cache: Mapping[str, Any] | None) -> Any:
    """The caches of a model, one for each layer, as the option ``cache`` describes them."""
    if cache is None:
        return None
    given = {name: value for name, value in cache.items() if name != "kind"}
    if str(cache["kind"]).startswith("batched"):
        padding = arrays.get("left_padding")
        given["left_padding"] = [0] * arrays["tokens"].shape[0] if padding is None else padding
    return module.make_cache(**given)


def joined(steps: Sequence[Arrays]) -> Arrays:
    """The stages of several steps as those of one: tokens in a row along the second axis from the end."""
    import mlx.core as mx

    if len(steps) == 1:
        return dict(steps[0])
    stages = {}
    for name in {name: None for step in steps for name in step}:
        parts = [step[name] for step in steps if name in step]
        if name.endswith(WHOLE):
            stages[name] = parts[-1]
        elif name.startswith("encoder.") or name.endswith(ONCE) or name.endswith(".weights"):
            stages[name] = parts[0]
        else:
            stages[name] = mx.concatenate(parts, axis=-2)
    return stages


def gradients(arrays: Arrays, options: Mapping[str, Any], path: str) -> Arrays:
    """Gradients of sum(logits * d_logits) by every trainable parameter, and by the embedded tokens as ``embedded``."""
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten

    module = build(arrays, options)
    given = {n: arrays[n] for n in ("lengths", "left_padding", "segments") if n in arrays}
    tokens, wanted = arrays["tokens"], arrays["d_logits"].astype(mx.float32)

    def loss(rows: Any) -> Any:
        if "source" in arrays:
            logits = module(arrays["source"], tokens, **given)
        else:
            logits = module(tokens, input_embeddings=rows, **given)
        return mx.sum(logits.astype(mx.float32) * wanted)

    with attention_on(path):
        of_weights = tree_flatten(nn.value_and_grad(module, lambda: loss(None))()[1])
        found = dict(of_weights)
        if "source" in arrays:
            found["embedded"] = mx.zeros(())
        else:
            found["embedded"] = mx.grad(loss)(module.embed_tokens(tokens))
    return found


@contextmanager
def attention_on(path: str) -> Iterator[None]:
    """While a model runs: its attention layers ask for a path. The models themselves leave the choice to ``auto``."""
    from mlx_tx import attention_layers

    plain = attention_layers.scaled_dot_product_attention
    attention_layers.scaled_dot_product_attention = partial(plain, path=path)  # type: ignore[assignment]
    try:
        yield
    finally:
        attention_layers.scaled_dot_product_attention = plain
