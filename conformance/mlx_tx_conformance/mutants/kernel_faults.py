"""Faults in the sources of the Metal attention kernels, run on the emulated device."""

from __future__ import annotations

from functools import partial

from .mutant import Mutant

_FOLDER = "mlx_tx/kernels/"
_COMMON = _FOLDER + "attention_common.metal"
_FORWARD = _FOLDER + "attention_forward.metal"
_DECODE = _FOLDER + "attention_decode.metal"
_MERGE = _FOLDER + "attention_merge.metal"
_kernel = partial(Mutant, target="mlx_tx:fused", device="emulated")
_BARRIER = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"

_SCORES = (
    _kernel(
        "kernel-least-number-hides",
        _COMMON,
        "constant float LOWEST = -3.402823466e38f;",
        "constant float LOWEST = -3.0e38f;",
        "SEM-1/least-number-is-not-minus-infinity",
        about="A row whose scores all lie below -3e38 counts as having seen nothing.",
    ),
    _kernel(
        "kernel-scale-missing",
        _COMMON,
        "const float s = product * rules.scale;",
        "const float s = product;",
        "ATT-2",
        about="The scores are not scaled.",
    ),
    _kernel(
        "kernel-scores-in-half",
        _COMMON,
        "const float s = product * rules.scale;",
        "const float s = float(half(product * rules.scale));",
        "PRC-1",
        about="Scores are rounded to half precision.",
    ),
    _kernel(
        "kernel-cap-unscaled",
        _COMMON,
        "rules.cap * precise::tanh(s / rules.cap)",
        "precise::tanh(s / rules.cap)",
        "CAP-1",
        about="The soft-cap forgets to multiply by the cap.",
    ),
    _kernel(
        "kernel-alibi-signed",
        _COMMON,
        "query.slope * float(abs(distance))",
        "query.slope * float(distance)",
        "POS-4",
        about="ALiBi favours keys ahead of the query.",
    ),
    _kernel(
        "kernel-window-one-short",
        _COMMON,
        "seen = seen && distance <= rules.left;",
        "seen = seen && distance < rules.left;",
        "SWA-1",
        about="The oldest key of the window is hidden.",
    ),
    _kernel(
        "kernel-causal-strict",
        _COMMON,
        "seen = seen && -distance <= rules.right;",
        "seen = seen && -distance < rules.right;",
        "MSK-1",
        about="A query does not see its own key.",
    ),
    _kernel(
        "kernel-segments-cumulative",
        _COMMON,
        "kv_segments[key] == segment",
        "kv_segments[key] <= segment",
        "SEG-1",
        about="A query sees the segments before its own.",
    ),
    _kernel(
        "kernel-mask-inverted",
        _COMMON,
        "seen = seen && mask_at[0];",
        "seen = seen && !mask_at[0];",
        "MSK-2",
        about="A boolean mask hides what it should show.",
    ),
    _kernel(
        "kernel-minus-infinity-is-added",
        _COMMON,
        "    seen = seen && added != -INFINITY;\n",
        "",
        "SEM-9/additive-minus-infinity",
        about="A key hidden by -inf still meets its NaN.",
    ),
)

_SOFTMAX = (
    _kernel(
        "kernel-infinite-start",
        _COMMON,
        "constant float LOWEST = -3.402823466e38f;",
        "constant float LOWEST = -INFINITY;",
        "SEM-1",
        about="-inf minus -inf where a block is hidden from a row.",
    ),
    _kernel(
        "kernel-maximum-of-two-lanes",
        _COMMON,
        "  return metal::max(x, simd_shuffle_xor(x, ushort(8)));",
        "  return x;",
        "ATT-3",
        about="The row maximum misses half of the lanes, which then disagree.",
    ),
    _kernel(
        "kernel-sum-of-two-lanes",
        _COMMON,
        "  return x + simd_shuffle_xor(x, ushort(8));",
        "  return x + simd_shuffle_xor(x, ushort(2));",
        "LSE-1",
        about="The row sum takes lanes of another row.",
    ),
    _kernel(
        "kernel-total-not-rescaled",
        _COMMON,
        "total = total * shrink + row_sum(sum);",
        "total = total + row_sum(sum);",
        "ATT-3",
        about="The running sum keeps the weight that it had under a lower maximum.",
    ),
    _kernel(
        "kernel-output-half-rescaled",
        _COMMON,
        "    O[d].thread_elements()[1] *= shrink;\n",
        "",
        "ATT-3",
        about="Every second column of the running output is not rescaled.",
    ),
    _kernel(
        "kernel-exponential-in-base-two",
        _COMMON,
        "fast::exp2((S[j].thread_elements()[e] - now) * M_LOG2E_F)",
        "fast::exp2(S[j].thread_elements()[e] - now)",
        "ATT-3",
        about="Weights are powers of two.",
    ),
    _kernel(
        "kernel-log-sum-exp-in-base-two",
        _FORWARD,
        "largest + precise::log(total)",
        "largest + precise::log2(total)",
        "LSE-1",
        about="The sum enters the log-sum-exp in base two.",
    ),
    _kernel(
        "kernel-empty-row-divides",
        _FORWARD,
        "total == 0.0f ? 0.0f : 1.0f / total",
        "1.0f / total",
        "SEM-1",
        about="0 / 0 in a row that sees nothing.",
    ),
    _kernel(
        "kernel-sink-not-in-the-sum",
        _FORWARD,
        "total = sink == -INFINITY ? 0.0f : 1.0f;",
        "total = 0.0f;",
        "SINK-1",
        about="The sink sets the maximum and adds no weight.",
    ),
)

_TILES = (
    _kernel(
        "kernel-rows-beyond-the-end",
        _COMMON,
        "const int count = row < rows ? width - column : 0;",
        "const int count = width - column;",
        "LEN-1/padding-never-shows",
        about="A tile is filled with what lies after the last row.",
    ),
    _kernel(
        "kernel-columns-beyond-the-end",
        _COMMON,
        "      for (short e = 0; e < 4; e++) {\n        to[e] = e < count ? from[e * column_stride] : T(0);",
        "      for (short e = 0; e < 4; e++) {\n        to[e] = count > 0 ? from[e * column_stride] : T(0);",
        "ATT-3",
        about="A head size that is no multiple of four takes in the next row.",
    ),
    _kernel(
        "kernel-hidden-values-unguarded",
        _COMMON,
        "const bool counts = !GUARDED || (seen >> (j * 8 + row) & 1u) != 0u;",
        "const bool counts = true;",
        "SEM-9/hidden-from-every-query",
        about="Zero weight times NaN.",
    ),
    _kernel(
        "kernel-seen-columns-of-four-rows",
        _COMMON,
        "  return seen | simd_shuffle_xor(seen, ushort(16));",
        "  return seen;",
        "MSK-2",
        about="A value that only the other four rows see counts as zero.",
    ),
    _kernel(
        "kernel-tail-block-dropped",
        _FORWARD,
        "for (int start = first; start < rules.key_end; start += COLUMNS)",
        "for (int start = first; start + COLUMNS <= rules.key_end; start += COLUMNS)",
        "ATT-3",
        about="The keys of a last block that is not full are lost.",
    ),
    _kernel(
        "kernel-tail-fragment-dropped",
        _FORWARD,
        "short((count + 7) / 8)",
        "short(count / 8)",
        "ATT-3",
        about="The keys of a last fragment that is not full are lost.",
    ),
    _kernel(
        "kernel-causal-end-too-early",
        _FORWARD,
        "bounded(int64_t(q0 + rows) + offset + rules.right, 0, rules.key_end)",
        "bounded(int64_t(q0 + rows) - 1 + offset + rules.right, 0, rules.key_end)",
        "MSK-1",
        about="The last key that the last query of a tile sees is not walked.",
    ),
    _kernel(
        "kernel-window-starts-late",
        _FORWARD,
        "first = bounded(int64_t(q0) + offset - rules.left, 0, rules.key_end);",
        "first = bounded(int64_t(q0) + 1 + offset - rules.left, 0, rules.key_end);",
        "SWA-1",
        about="The oldest key that the first query of a tile sees is not walked.",
    ),
    _kernel(
        "kernel-fragment-skipped-too-early",
        _FORWARD,
        "bounded(int64_t(highest) + rules.right + 1 - start, 0, COLUMNS) + 7) / 8",
        "bounded(int64_t(lowest) + rules.right + 1 - start, 0, COLUMNS) + 7) / 8",
        "MSK-1",
        about="Fragments that only the later rows of a simdgroup see are skipped.",
    ),
    _kernel(
        "kernel-segment-reach-of-one-simdgroup",
        _FORWARD,
        "      narrowed = max(narrowed, ends[2 * s + 1]);",
        "      narrowed = ends[2 * s + 1];",
        "SEG-1",
        about="The keys end where the last simdgroup found the last one.",
    ),
    _kernel(
        "kernel-keys-not-awaited",
        _FORWARD,
        "k_row, k_column, index);\n" + _BARRIER,
        "k_row, k_column, index);\n",
        "ATT-3",
        about="Scores are computed before the keys are staged.",
    ),
    _kernel(
        "kernel-values-over-keys",
        _FORWARD,
        _BARRIER + "    stage<T, COLUMNS, D_V, LD_KV, THREADS>",
        "    stage<T, COLUMNS, D_V, LD_KV, THREADS>",
        "ATT-3",
        about="Values are staged while other simdgroups still read the keys.",
    ),
)

_ADDRESSES = (
    _kernel(
        "kernel-heads-dealt-out",
        _FORWARD,
        "const int kv_head = head / group;",
        "const int kv_head = head % (heads / group);",
        "GQA-1",
        about="Query heads are dealt out to key/value heads in turn.",
    ),
    _kernel(
        "kernel-offset-of-the-first-row",
        _FORWARD,
        "q_offset[batch]",
        "q_offset[0]",
        "SEM-2/offset-of-each-batch-row",
        about="Every batch row gets the offset of the first.",
    ),
    _kernel(
        "kernel-length-of-the-first-row",
        _FORWARD,
        "kv_lengths[batch]",
        "kv_lengths[0]",
        "LEN-1",
        about="Every batch row gets the length of the first.",
    ),
    _kernel(
        "kernel-mask-of-the-key-head",
        _FORWARD,
        "head * mask_strides[1]",
        "kv_head * mask_strides[1]",
        "MSK-2",
        about="The mask is taken by key/value head.",
    ),
    _kernel(
        "kernel-bias-of-the-first-row",
        _FORWARD,
        "q_read * bias_strides[2]",
        "q0 * bias_strides[2]",
        "BIAS-1",
        about="Every query of a tile gets the bias of the first.",
    ),
    _kernel(
        "kernel-keys-taken-as-contiguous",
        _FORWARD,
        "const int64_t k_row = k_strides[2];",
        "const int64_t k_row = d_true;",
        "LAYOUT-1",
        about="Keys are read as if their rows lay one after another.",
    ),
)

_SPLITS = (
    _kernel(
        "kernel-tail-of-a-split-dropped",
        _DECODE,
        "const int share = (steps + splits - 1) / splits * KEYS;",
        "const int share = steps / splits * KEYS;",
        "FEW-1",
        about="Keys beyond whole shares are lost.",
    ),
    _kernel(
        "kernel-query-of-another-head",
        _DECODE,
        "const int head = kv_head * group + r_read / T_q;",
        "const int head = kv_head * group + r_read % group;",
        "FEW-1",
        about="Rows are taken for other heads than they are.",
    ),
    _kernel(
        "kernel-way-forgotten",
        _DECODE,
        "for (int other = 1; other < WAYS; other++)",
        "for (int other = 1; other < WAYS - 1; other++)",
        "FEW-1",
        about="What the last simdgroup summed up is not added.",
    ),
    _kernel(
        "kernel-way-not-rescaled",
        _DECODE,
        "total = total * shrink + sums[D_V + 1] * other_shrink;",
        "total = total * shrink + sums[D_V + 1];",
        "FEW-1",
        about="Another simdgroup's sum keeps its own maximum.",
    ),
    _kernel(
        "kernel-partial-not-rescaled",
        _MERGE,
        "total += row_stats[s * 2 + 1] * fast::exp2((row_stats[s * 2] - largest) * M_LOG2E_F);",
        "total += row_stats[s * 2 + 1];",
        "FEW-1",
        about="Partial sums are added under different maxima.",
    ),
    _kernel(
        "kernel-sink-missing-in-the-merge",
        _MERGE,
        "    total = fast::exp2((sink - largest) * M_LOG2E_F);\n",
        "",
        "FEW-1",
        about="The sink sets the maximum of the merge and adds no weight.",
    ),
)

MUTANTS = _SCORES + _SOFTMAX + _TILES + _ADDRESSES + _SPLITS
