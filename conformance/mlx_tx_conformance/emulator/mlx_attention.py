"""MLX's attention kernels with the launch parameters its host code gives them. Layout [B, N, T, D].

The vector kernels serve few queries (decoding), in one pass or split over blocks of keys; the steel kernel serves long
ones. Masks are boolean (True: may see) or additive of the dtype of q, and broadcast to [B, N_q, T_q, T_kv].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .mlx_library import Buffers, LibraryKernel, Output, launch, metal_type, scalar
from .options import Counts, Options

_STEEL = "steel/attn/kernels/steel_attention.h"
_STEEL_ATTN = "steel/attn/attn.h"


@dataclass(frozen=True)
class Attention:
    """One call: arrays and what is asked of them."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: float
    causal: bool = False
    mask: np.ndarray | None = None
    sinks: np.ndarray | None = None

    @property
    def dims(self) -> tuple[int, int, int, int, int, int]:
        """B, N_q, N_kv, T_q, T_kv, D."""
        B, N_q, T_q, D = self.q.shape
        return B, N_q, self.k.shape[1], T_q, self.k.shape[2], D

    def full_mask(self) -> np.ndarray:
        assert self.mask is not None
        B, N_q, _, T_q, T_kv, _ = self.dims
        return np.ascontiguousarray(np.broadcast_to(self.mask, (B, N_q, T_q, T_kv)))


def _dtype(array: np.ndarray) -> str:
    return {"float": "float32", "float16_t": "float16", "bfloat16_t": "bfloat16"}[metal_type(array)]


def _elements(array: np.ndarray, axis: int) -> int:
    return array.strides[axis] // array.itemsize


def _vector_inputs(call: Attention, first: int) -> Buffers:
    """The parameters both vector kernels share, from slot ``first`` on: N, strides, scale, mask, sinks."""
    k, v = call.k, call.v
    buffers: Buffers = {
        first: ("N", scalar(k.shape[2], "int32")),
        first + 1: ("k_head_stride", scalar(_elements(k, 1), "uint64")),
        first + 2: ("k_seq_stride", scalar(_elements(k, 2), "uint64")),
        first + 3: ("v_head_stride", scalar(_elements(v, 1), "uint64")),
        first + 4: ("v_seq_stride", scalar(_elements(v, 2), "uint64")),
        first + 5: ("scale", scalar(call.scale, "float32")),
    }
    if call.mask is not None:
        mask = call.full_mask()
        buffers[first + (6 if mask.dtype == np.bool_ else 7)] = ("mask", mask)
        buffers[first + 8] = ("mask_kv_seq_stride", scalar(1, "int32"))
        buffers[first + 9] = ("mask_q_seq_stride", scalar(mask.shape[3], "int32"))
        buffers[first + 10] = ("mask_head_stride", scalar(mask.shape[2] * mask.shape[3], "int32"))
    if call.sinks is not None:
        buffers[first + 11] = ("sinks", call.sinks)
    return buffers


def _vector_constants(call: Attention) -> dict[str, bool | int]:
    boolean = call.mask is not None and call.mask.dtype == np.bool_
    return {
        "has_mask": call.mask is not None,
        "bool_mask": boolean,
        "float_mask": call.mask is not None and not boolean,
        "do_causal": call.causal,
        "has_sinks": call.sinks is not None,
    }


def vector(call: Attention, options: Options | None = None, text: str | None = None) -> tuple[np.ndarray, Counts]:
    """`sdpa_vector`: one threadgroup of 1024 threads a query, 32 simdgroups over the keys. D a multiple of 32."""
    B, N_q, N_kv, T_q, _, D = call.dims
    kernel = LibraryKernel("sdpa_vector.h", "sdpa_vector", (metal_type(call.q), str(D)), text=text)
    buffers: Buffers = {
        0: ("q", call.q),
        1: ("k", call.k),
        2: ("v", call.v),
        3: Output("out", (B, N_q, T_q, D), _dtype(call.q)),
        4: ("gqa_factor", scalar(N_q // N_kv, "int32")),
        **_vector_inputs(call, 5),
    }
    if call.sinks is not None:
        buffers[17] = ("num_q_heads", scalar(N_q, "int32"))
    (out,), counts = launch(kernel, buffers, (B * N_q, T_q, 1), (1024, 1, 1), options, _vector_constants(call))
    return out, counts


def vector_two_pass(
    call: Attention, options: Options | None = None, blocks: int = 32, text: str | None = None
) -> tuple[np.ndarray, Counts]:
    """`sdpa_vector_2pass_1` and `_2`: keys dealt to ``blocks`` threadgroups (a multiple of 32), then merged."""
    B, N_q, N_kv, T_q, _, D = call.dims
    first = LibraryKernel("sdpa_vector.h", "sdpa_vector_2pass_1", (metal_type(call.q), str(D)), text=text)
    second = LibraryKernel("sdpa_vector.h", "sdpa_vector_2pass_2", (metal_type(call.q), str(D)), text=text)
    rows = (B * N_q * T_q, blocks)
    buffers: Buffers = {
        0: ("q", call.q),
        1: ("k", call.k),
        2: ("v", call.v),
        3: Output("partials", (*rows, D), _dtype(call.q)),
        4: Output("sums", rows, "float32"),
        5: Output("maxs", rows, "float32"),
        **_vector_inputs(call, 7),
    }
    constants = {**_vector_constants(call), "blocks": blocks}
    group = (32, N_q // N_kv, T_q)
    (partials, sums, maxs), counts = launch(first, buffers, (N_kv, B, blocks), group, options, constants)
    merge: Buffers = {
        0: ("partials", partials),
        1: ("sums", sums),
        2: ("maxs", maxs),
        3: Output("out", (B, N_q, T_q, D), _dtype(call.q)),
        4: ("blocks", scalar(blocks, "int32")),
    }
    (out,), merging = launch(second, merge, (B * N_q, T_q, 1), (1024, 1, 1), options, {"blocks": blocks})
    return out, counts + merging


def steel(
    call: Attention, options: Options | None = None, wn: int = 1, save_lse: bool = False, text: str | None = None
) -> tuple[list[np.ndarray], Counts]:
    """`attention` of the steel kernels: blocks of 32 queries, 32 keys (16 from D = 128 on), four simdgroups by ``wn``.

    Returns [out] or [out, lse].
    """
    B, N_q, N_kv, T_q, T_kv, D = call.dims
    bq, bk = 32, 32 if D < 128 else 16
    parameters = np.zeros(
        1, np.dtype([("ints", np.int32, 6), ("scale", np.float32), ("more", np.int32, 7), ("strides", np.int64, 12)])
    )
    parameters["ints"] = (B, N_q, D, T_q, T_kv, N_q // N_kv)
    parameters["scale"] = call.scale
    parameters["more"] = (-(-T_q // bq), -(-T_kv // bk), T_q // bq, T_kv // bk, T_q % bq, T_kv % bk, T_kv - T_q)
    out_strides = (N_q * T_q * D, T_q * D, D)
    parameters["strides"] = [*(_elements(a, axis) for a in (call.q, call.k, call.v) for axis in range(3)), *out_strides]
    buffers: Buffers = {
        0: ("q", call.q),
        1: ("k", call.k),
        2: ("v", call.v),
        3: Output("out", (B, N_q, T_q, D), _dtype(call.q)),
        4: ("params", parameters.view(np.uint8)),
    }
    mask_type = "float"
    if call.mask is not None:
        mask = call.full_mask()
        mask_type = metal_type(mask)
        buffers[5] = ("mask_params", np.array([_elements(mask, axis) for axis in range(3)], np.int64))
        buffers[6] = ("mask", mask)
    if call.sinks is not None:
        buffers[7] = ("sinks", call.sinks)
    if save_lse:
        buffers[8] = Output("lse", (B, N_q, T_q), "float32")
    constants = {
        "align_Q": T_q % bq == 0,
        "align_K": T_kv % bk == 0,
        "has_mask": call.mask is not None,
        "do_causal": call.causal,
        "has_sinks": call.sinks is not None,
        "save_lse": save_lse,
    }
    template = (metal_type(call.q), str(bq), str(bk), str(D), str(D), "4", str(wn), mask_type)
    kernel = LibraryKernel(_STEEL, "attention", template, (_STEEL_ATTN,), text=text)
    return launch(kernel, buffers, (-(-T_q // bq), N_q, B), (32, 4, wn), options, constants)
