"""Changes to a call that a right implementation answers with the same (or a stated other) result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from ..call import Call


def repeat_kv(call: Call) -> Call:
    """Every query head gets a K/V head of its own: grouped attention becomes plain multi-head attention."""
    group = call.arrays["q"].shape[1] // call.arrays["k"].shape[1]
    return call.with_arrays(k=np.repeat(call.arrays["k"], group, axis=1), v=np.repeat(call.arrays["v"], group, axis=1))


def swap_keys(call: Call) -> Call:
    """The first and the last key change places, with their values."""
    order = np.arange(call.arrays["k"].shape[2])
    order[[0, -1]] = order[[-1, 0]]
    return reorder_keys(call, order)


def reverse_keys(call: Call) -> Call:
    """All keys in reverse order, with their values, masks and biases."""
    return reorder_keys(call, np.arange(call.arrays["k"].shape[2])[::-1])


def reorder_keys(call: Call, order: np.ndarray) -> Call:
    """Keys in another order, with everything that belongs to them."""
    T_kv = call.arrays["k"].shape[2]
    changed = {name: call.arrays[name][:, :, order] for name in ("k", "v")}
    for name in ("mask", "bias"):
        if name in call.arrays and call.arrays[name].shape[-1] == T_kv:
            changed[name] = call.arrays[name][..., order]
    if "kv_segments" in call.arrays:
        changed["kv_segments"] = call.arrays["kv_segments"][:, order]
    return call.with_arrays(**changed)


def shift_scores(call: Call) -> Call:
    """Every score of a row raised by the same amount (a power of two, so that it is exact in every dtype)."""
    T_q = call.arrays["q"].shape[2]
    shift = np.where(np.arange(T_q) % 2 == 0, 4.0, -2.0).reshape(1, 1, T_q, 1)
    return call.with_arrays(bias=shift.astype(call.arrays["q"].dtype))


def truncate_keys(call: Call) -> Call:
    """Keys beyond the length that all batch rows share are cut off instead of being hidden by ``kv_lengths``."""
    lengths = call.arrays["kv_lengths"]
    if len(set(lengths.tolist())) != 1:
        raise ValueError("truncate_keys needs one length for all batch rows")
    n = int(lengths[0])
    return call.with_arrays(k=call.arrays["k"][:, :, :n], v=call.arrays["v"][:, :, :n], kv_lengths=None)


def bool_to_additive(call: Call) -> Call:
    """A boolean mask written as an additive one: 0 where it allows, -inf where it does not."""
    mask = call.arrays["mask"]
    return call.with_arrays(mask=np.where(mask, 0.0, -np.inf).astype(call.arrays["q"].dtype))


def materialise_mask(call: Call) -> Call:
    """A mask that broadcasts, written out in full."""
    q, k = call.arrays["q"], call.arrays["k"]
    full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    written = {
        name: np.ascontiguousarray(np.broadcast_to(call.arrays[name], full))
        for name in ("mask", "bias")
        if name in call.arrays
    }
    return call.with_arrays(**written)


TRANSFORMS: Mapping[str, Callable[[Call], Call]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            repeat_kv,
            swap_keys,
            reverse_keys,
            shift_scores,
            truncate_keys,
            bool_to_additive,
            materialise_mask,
        )
    }
)
