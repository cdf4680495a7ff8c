"""Faults in what every path shares and in the composed path: masks, alignment, scale, softmax, heads, positions."""

from __future__ import annotations

from .mutant import Mutant

_MASKS = "mlx_tx.masks"
_SCORES = "mlx_tx.paths.scores"
_COMPOSED = "mlx_tx.paths.composed"
_ARGUMENTS = "mlx_tx.arguments"
_POSITIONS = "mlx_tx.positions"
_LAYERS = "mlx_tx.layers"

_MASK_FAULTS = (
    Mutant(
        "causal-sees-one-ahead",
        _MASKS,
        "rules.append(keys <= queries + spec.right)",
        "rules.append(keys <= queries + spec.right + 1)",
        "MSK-1",
        about="The causal mask and the right side of a window admit one key too many.",
    ),
    Mutant(
        "causal-hides-itself",
        _MASKS,
        "rules.append(keys <= queries + spec.right)",
        "rules.append(keys < queries + spec.right)",
        "MSK-1",
        about="A query does not see its own position.",
    ),
    Mutant(
        "upper-left-alignment",
        _ARGUMENTS,
        "offsets, offset_array = _offsets(q_offset, B, T_kv - T_q)",
        "offsets, offset_array = _offsets(q_offset, B, 0)",
        "MSK-1/lower-right",
        about="Without q_offset the first query stands at the first key, as in PyTorch.",
    ),
    Mutant(
        "band-assumed-to-hold",
        _MASKS,
        "right = spec.right is None or tile.k1 - 1 <= tile.q0 + min(spec.offsets) + spec.right",
        "right = spec.right is None or tile.k1 - 1 <= tile.q1 - 1 + min(spec.offsets) + spec.right",
        "MSK-1",
        about="A tile is taken for fully seen when its last query sees all of it.",
    ),
    Mutant(
        "window-one-wider",
        _ARGUMENTS,
        'return _side(integer("window", window, minimum=1) - 1), 0',
        'return _side(integer("window", window, minimum=1)), 0',
        "SWA-1",
        about="A window of W admits W + 1 keys.",
    ),
    Mutant(
        "window-one-narrower",
        _MASKS,
        "rules.append(keys >= queries - spec.left)",
        "rules.append(keys > queries - spec.left)",
        "SWA-1",
        about="The oldest key of the window is hidden.",
    ),
    Mutant(
        "window-zero-accepted",
        _ARGUMENTS,
        'return _side(integer("window", window, minimum=1) - 1), 0',
        'return _side(integer("window", window, minimum=0) - 1), 0',
        "SWA-1/below-one",
        about="A window of 0 is taken without a word.",
    ),
    Mutant(
        "length-one-more",
        _MASKS,
        "        rules.append(keys < arrays.kv_lengths[:, None, None, None])\n    if arrays.q_segments",
        "        rules.append(keys <= arrays.kv_lengths[:, None, None, None])\n    if arrays.q_segments",
        "LEN-1",
        about="The first key that does not exist is seen.",
    ),
    Mutant(
        "padding-not-cleared",
        _SCORES,
        "        if keep is not None:",
        "        if keep is not None and part is None:",
        "LEN-1/padding-never-shows",
        about="What lies beyond a length is left in V, so that NaN leaks through a weight of zero.",
    ),
    Mutant(
        "segments-ignored",
        _MASKS,
        "        rules.append(q_segments == arrays.kv_segments[:, None, None, tile.k0 : tile.k1])",
        "        rules.append(q_segments >= arrays.kv_segments[:, None, None, tile.k0 : tile.k1])",
        "SEG-1",
        about="A query sees the segments before its own.",
    ),
    Mutant(
        "mask-inverted",
        _MASKS,
        "rules.append(part if part.dtype == mx.bool_ else ~mx.isneginf(part))",
        "rules.append(~part if part.dtype == mx.bool_ else ~mx.isneginf(part))",
        "MSK-2",
        about="True means hidden.",
    ),
    Mutant(
        "minus-infinity-adds-zero",
        _MASKS,
        "rules.append(part if part.dtype == mx.bool_ else ~mx.isneginf(part))",
        "rules.append(part if part.dtype == mx.bool_ else mx.isneginf(part) | True)",
        "MSK-2/minus-infinity-is-false",
        about="-inf in an additive mask hides nothing.",
    ),
    Mutant(
        "integer-mask-accepted",
        _ARGUMENTS,
        "if x.dtype not in ANY_FLOATING and not (booleans and x.dtype == mx.bool_):",
        "if x.dtype not in ANY_FLOATING and not booleans:",
        "SEM-8",
        about="A mask of integers is added.",
    ),
    Mutant(
        "mask-added-twice",
        _SCORES,
        "        s = s + term\n",
        "        s = s + term + term\n",
        "MSK-2/additive",
        about="Biases and masks count double.",
    ),
    Mutant(
        "biases-dropped-beside-cap-and-sinks",
        _SCORES,
        "    for term in masks.added(arrays, tile):",
        "    for term in [] if spec.softcap and arrays.sinks is not None else masks.added(arrays, tile):",
        "MIX-1",
        about="ALiBi, bias and mask are lost where a soft-cap and sinks are given too.",
    ),
    Mutant(
        "empty-row-is-nan",
        _COMPOSED,
        "safe = mx.where(empty, mx.ones((), dtype=mx.float32), total)",
        "safe = total",
        "SEM-1",
        about="0 / 0 where a row sees nothing.",
    ),
    Mutant(
        "hidden-keys-finite",
        _SCORES,
        'NEVER = float("-inf")',
        "NEVER = -1e4",
        "SEM-1",
        about="Hidden keys get a large negative score instead of none: an empty row gives the mean of V.",
    ),
)

_SCORE_FAULTS = (
    Mutant(
        "scale-of-next-size",
        _ARGUMENTS,
        "1.0 / math.sqrt(D)",
        "1.0 / math.sqrt(D + 1)",
        "ATT-2",
        about="1/sqrt(D + 1).",
    ),
    Mutant(
        "scale-of-values",
        _ARGUMENTS,
        "1.0 / math.sqrt(D)",
        "1.0 / math.sqrt(D * N_q)",
        "ATT-2",
        about="1/sqrt(d_model).",
    ),
    Mutant(
        "scale-twice",
        _COMPOSED,
        "arrays.q.astype(spec.wide) * spec.scale",
        "arrays.q.astype(spec.wide) * spec.scale * spec.scale",
        "ATT-2",
        about="The scale is applied to q and again.",
    ),
    Mutant(
        "scale-slightly-off",
        _COMPOSED,
        "arrays.q.astype(spec.wide) * spec.scale",
        "arrays.q.astype(mx.float32) * (spec.scale * (1 + 2**-8))",
        "ATT-2/names-a-wrong-scale",
        about="The scale is off by 2^-8, less than bfloat16 shows element by element.",
    ),
    Mutant(
        "scale-nan-accepted",
        "mlx_tx.values",
        "if not math.isfinite(number) or abs(number)",
        "if math.isinf(number) or abs(number)",
        "ATT-2/scale-is-a-number",
        about="A scale of NaN is taken.",
    ),
    Mutant(
        "scores-in-input-dtype",
        _SCORES,
        "    s = capped\n",
        "    s = capped.astype(arrays.q.dtype).astype(mx.float32)\n",
        "PRC-1",
        about="Scores are rounded to the dtype of the inputs.",
    ),
    Mutant(
        "query-scaled-in-input-dtype",
        _COMPOSED,
        "arrays.q.astype(spec.wide) * spec.scale",
        "(arrays.q * mx.array(spec.scale, arrays.q.dtype)).astype(mx.float32)",
        "PRC-1",
        about="Scale times q is rounded to the dtype of the inputs.",
    ),
    Mutant(
        "half-accumulators",
        _COMPOSED,
        "total = weights.sum(axis=-1, keepdims=True)",
        "total = weights.astype(mx.float16).cumsum(axis=-1)[..., -1:].astype(mx.float32)",
        "PRC-1",
        about="The softmax's sum is kept in half precision.",
    ),
    Mutant(
        "softcap-after-mask",
        _SCORES,
        "    return s if seen is None else",
        "    s = s if spec.softcap is None else soft_capped(spec, s)[0]\n    return s if seen is None else",
        "CAP-1/then-masked",
        about="The cap acts on biased scores too.",
    ),
    Mutant(
        "softcap-ignored",
        _SCORES,
        "    if spec.softcap is None:\n        return raw, None",
        "    if spec.softcap is not None:\n        return raw, None",
        "CAP-1",
        about="softcap does nothing.",
    ),
    Mutant(
        "softcap-rational",
        _SCORES,
        "bent = mx.tanh(raw / spec.softcap)",
        "x = mx.clip(raw / spec.softcap, -3, 3)\n    bent = x * (27 + x * x) / (27 + 9 * x * x)",
        "CAP-1",
        about="tanh by a rational approximation.",
    ),
    Mutant(
        "softcap-negative-accepted",
        _ARGUMENTS,
        "    if value <= 0:\n",
        "    if value == 0:\n",
        "CAP-1/not-positive",
        about="A negative cap is taken.",
    ),
)

_SOFTMAX_FAULTS = (
    Mutant(
        "no-maximum-subtracted",
        _COMPOSED,
        "weights = mx.exp(s - top)",
        "top = mx.zeros_like(top)\n    weights = mx.exp(s)",
        "ATT-3/no-overflow",
        about="exp of raw scores overflows.",
    ),
    Mutant(
        "sink-not-in-sum",
        _COMPOSED,
        "total = total + mx.exp(sinks - top)",
        "total = total + 0 * mx.exp(sinks - top)",
        "SINK-1",
        about="Sinks change nothing.",
    ),
    Mutant(
        "sink-of-another-head",
        _COMPOSED,
        "sinks = None if arrays.sinks is None else arrays.sinks[:, :, None, None]",
        "sinks = None if arrays.sinks is None else arrays.sinks[:, ::-1, None, None]",
        "SINK-1",
        about="Sinks in reverse head order.",
    ),
    Mutant(
        "lse-in-base-two",
        _COMPOSED,
        "top + mx.log(safe))",
        "(top + mx.log(safe)) * 1.4426950408889634)",
        "LSE-1",
        about="The log-sum-exp in base 2.",
    ),
    Mutant(
        "lse-rounded",
        _COMPOSED,
        "return out, lse.squeeze(-1).astype(mx.float32)",
        "return out, lse.squeeze(-1).astype(mx.float16).astype(mx.float32)",
        "LSE-1",
        about="The log-sum-exp rounded to half precision.",
    ),
    Mutant(
        "last-key-dropped",
        _COMPOSED,
        "    weights = mx.exp(s - top)\n",
        "    weights = mx.exp(s - top) * (mx.arange(s.shape[-1]) < max(s.shape[-1] - 1, 1))\n",
        "ATT-3/long-rows",
        about="The last of many keys is lost.",
    ),
)

_HEAD_FAULTS = (
    Mutant(
        "heads-interleaved",
        _SCORES,
        "    B, N_q, T, d = x.shape\n    return x.reshape(B, heads, N_q // heads * T, d)",
        "    B, N_q, T, d = x.shape\n"
        "    return x.reshape(B, N_q // heads, heads, T, d).swapaxes(1, 2).reshape(B, heads, N_q // heads * T, d)",
        "GQA-1",
        about="Query head h reads K/V head h % N_kv on the way in.",
    ),
    Mutant(
        "keys-and-values-swapped-in-layer",
        _LAYERS,
        "k = self._split(self.k_proj(source), self.num_kv_heads)",
        "k = self._split(self.v_proj(source), self.num_kv_heads)",
        "ATT-1",
        about="Keys come from the projection of values.",
    ),
    Mutant(
        "heads-joined-in-wrong-order",
        _LAYERS,
        "return self.o_proj(out.swapaxes(1, 2).reshape(B, T_q, -1))",
        "return self.o_proj(out.reshape(B, T_q, -1))",
        "MHA-1/layer-equals-oracle",
        about="Heads are concatenated without moving them behind the positions.",
    ),
)

_POSITION_FAULTS = (
    Mutant(
        "alibi-not-absolute",
        _MASKS,
        "return mx.abs(query_positions(arrays, tile) - mx.arange(tile.k0, tile.k1)).astype(mx.float32)",
        "return (query_positions(arrays, tile) - mx.arange(tile.k0, tile.k1)).astype(mx.float32)",
        "POS-4",
        about="The bias of later keys has the wrong sign.",
    ),
    Mutant(
        "alibi-missing-for-a-head",
        _MASKS,
        "terms.append(-arrays.slopes[:, :, None, None] * distances(arrays, tile))",
        "heads = mx.arange(arrays.slopes.shape[1])[None, :, None, None]\n"
        "        terms.append(-arrays.slopes[:, :, None, None] * distances(arrays, tile) * (heads > 0))",
        "POS-4",
        about="The first head gets no bias.",
    ),
    Mutant(
        "alibi-slopes-of-powers-only",
        _POSITIONS,
        "slopes += [2.0 ** (-4.0 * (h + 1) / power) for h in range(0, 2 * (n_heads - power), 2)]",
        "slopes += [2.0 ** (-4.0 * (h + 1) / power) for h in range(n_heads - power)]",
        "POS-4/slopes",
        about="The slopes beyond a power of two are taken one after another instead of every second.",
    ),
    Mutant(
        "offset-ignored",
        _MASKS,
        "    return mx.arange(tile.q0, tile.q1)[:, None] + arrays.q_offset[:, None, None, None]",
        "    return mx.arange(tile.q0, tile.q1)[:, None] + arrays.q_offset[:1, None, None, None]",
        "SEM-2/offset-of-each-batch-row",
        about="Every batch row gets the offset of the first.",
    ),
)

MUTANTS = _MASK_FAULTS + _SCORE_FAULTS + _SOFTMAX_FAULTS + _HEAD_FAULTS + _POSITION_FAULTS
