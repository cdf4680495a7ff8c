"""Faults that leave every result right and make the Metal kernels read or compute more than they should."""

from __future__ import annotations

from functools import partial

from .mutant import Mutant

_FOLDER = "mlx_tx/kernels/"
_COMMON = _FOLDER + "attention_common.metal"
_FORWARD = _FOLDER + "attention_forward.metal"
_DECODE = _FOLDER + "attention_decode.metal"
_kernel = partial(Mutant, target="mlx_tx:fused", device="emulated")

MUTANTS = (
    _kernel(
        "count-causal-blocks-not-skipped",
        _FORWARD,
        "rules.key_end = bounded(int64_t(q0 + rows) + offset + rules.right, 0, rules.key_end);",
        "",
        "CPX-4/causal-counts-are-the-closed-form",
        about="Key blocks after the last visible key are read and masked.",
    ),
    _kernel(
        "count-window-starts-at-the-first-key",
        _FORWARD,
        "first = bounded(int64_t(q0) + offset - rules.left, 0, rules.key_end);",
        "first = 0;",
        "SWA-1/cost-is-the-closed-form",
        about="Key blocks before the window are read and masked.",
    ),
    _kernel(
        "count-band-reads-grow-with-the-square",
        _FORWARD,
        "first = bounded(int64_t(q0) + offset - rules.left, 0, rules.key_end);",
        "first = 0;",
        "SWA-1/bytes-grow-with-the-length",
        about="The same, seen by the law.",
    ),
    _kernel(
        "count-causal-fragments-not-skipped",
        _FORWARD,
        "to = min(to, short((bounded(int64_t(highest) + rules.right + 1 - start, 0, COLUMNS) + 7) / 8));",
        "",
        "CPX-1/products-of-the-kernels-are-those-of-the-formula",
        about="Fragments that none of eight rows sees are multiplied and masked.",
    ),
    _kernel(
        "count-keys-read-for-every-head",
        _DECODE,
        "stage<T, KEYS, D, LD_KV, THREADS>(staged,",
        "for (int again = 0; again < group; again++) stage<T, KEYS, D, LD_KV, THREADS>(staged,",
        "GQA-1/decoding-reads-each-key-once",
        about="Keys are loaded once for each query head of a group.",
    ),
    _kernel(
        "count-values-read-twice",
        _FORWARD,
        "stage<T, COLUMNS, D_V, LD_KV, THREADS>(staged,",
        "for (int again = 0; again < 2; again++) stage<T, COLUMNS, D_V, LD_KV, THREADS>(staged,",
        "CPX-4/counts-are-the-closed-form",
        about="Values are loaded twice a block.",
    ),
    _kernel(
        "count-mask-of-hidden-keys",
        _COMMON,
        "seen = seen && mask_at[0];",
        "seen = mask_at[0] && seen;",
        "CPX-4/an-array-mask-is-read-once",
        about="The mask is looked up for keys that causality hides already.",
    ),
    _kernel(
        "count-tiles-of-eight-queries",
        "mlx_tx.kernels.tiles",
        "sizes = ((32, 32), (32, 16), (16, 16), (16, 8))",
        "sizes = ((8, 32), (8, 16), (16, 16), (16, 8))",
        "CPX-4/traffic-times-memory",
        about="Few queries a block: the memory on the chip is not used, and keys are read four times as often.",
    ),
)
