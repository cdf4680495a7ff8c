"""Attention out of MLX's separate kernels, as where MLX has no fused one: scale q, q k^T, mask, softmax, p v.

Every step stores its result in device memory, scores and weights among them; that is what fused kernels avoid. Products
use the steel matrix kernel with 64x64x16 tiles, grouped heads by strides (K and V are not repeated in memory).
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from .mlx_attention import Attention
from .mlx_library import Buffers, LibraryKernel, Output, launch, metal_type, scalar
from .options import Counts, Options

_TILE, _DEPTH = 64, 16
_PARAMETERS = np.dtype([("ints", np.int32, 8), ("strides", np.int64, 3), ("more", np.int32, 3), ("padding", np.int32)])


def _dtype(array: np.ndarray) -> str:
    return {"float": "float32", "float16_t": "float16", "bfloat16_t": "bfloat16"}[metal_type(array)]


def _scaled(q: np.ndarray, scale: float, options: Options) -> tuple[np.ndarray, Counts]:
    kind = metal_type(q)
    kernel = LibraryKernel("binary.h", "binary_sv", (kind, kind, "Multiply"), ("binary_ops.h",))
    buffers: Buffers = {
        0: ("scale", np.full(1, scale, q.dtype)),
        1: ("q", q),
        2: Output("scaled", q.shape, _dtype(q)),
        3: ("size", scalar(q.size, "uint32")),
    }
    per_thread = 8 // q.itemsize
    (out,), counts = launch(kernel, buffers, (-(-q.size // (per_thread * 256)), 1, 1), (256, 1, 1), options)
    return out, counts


def _product(
    a: np.ndarray, b: np.ndarray, transpose_b: bool, names: tuple[str, str, str], options: Options
) -> tuple[np.ndarray, Counts]:
    """a [B, N_q, M, K] times b [B, N_kv, K, N], or b [B, N_kv, N, K] transposed: [B, N_q, M, N]."""
    B, N_q, M, K = a.shape
    N_kv = b.shape[1]
    N = b.shape[2] if transpose_b else b.shape[3]
    group = N_q // N_kv
    columns, rows = -(-N // _TILE), -(-M // _TILE)
    parameters = np.zeros(1, _PARAMETERS)
    parameters["ints"] = (M, N, K, K, K if transpose_b else N, N, columns, rows)
    parameters["strides"] = (0, 0, M * N)
    parameters["more"] = (0, K // _DEPTH, 3)
    strides_a = (N_q * M * K, group * M * K, M * K)
    strides_b = (N_kv * N * K, N * K, 0)
    buffers: Buffers = {
        0: (names[0], a),
        1: (names[1], b),
        3: Output(names[2], (B, N_q, M, N), _dtype(a)),
        4: ("params", parameters.view(np.uint8)),
        5: ("addmm_params", np.zeros(24, np.uint8)),  # the kernel reads alpha and beta even when it has no use for them
        6: ("batch_shape", np.array([B, N_kv, group], np.int32)),
        7: ("batch_strides", np.array([*strides_a, *strides_b], np.int64)),
    }
    template = (metal_type(a), str(_TILE), str(_TILE), str(_DEPTH), "2", "2", "false", str(transpose_b).lower())
    kernel = LibraryKernel("steel/gemm/kernels/steel_gemm_fused.h", "gemm", template, ("steel/gemm/gemm.h",))
    constants = {"has_batch": True, "align_M": M % _TILE == 0, "align_N": N % _TILE == 0, "align_K": K % _DEPTH == 0}
    (out,), counts = launch(kernel, buffers, (columns, rows, B * N_q), (32, 2, 2), options, constants)
    return out, counts


def _masked(scores: np.ndarray, allowed: np.ndarray, options: Options) -> tuple[np.ndarray, Counts]:
    kind = metal_type(scores)
    kernel = LibraryKernel("ternary.h", "ternary_v", (kind, "Select", "false", "true"), ("ternary_ops.h",))
    lowest = np.full(1, np.finfo(np.float32).min if scores.dtype == np.float32 else -3e4, scores.dtype)
    buffers: Buffers = {
        0: ("mask", np.ascontiguousarray(np.broadcast_to(allowed, scores.shape))),
        1: ("scores", scores),
        2: ("lowest", lowest),
        3: Output("masked", scores.shape, _dtype(scores)),
        4: ("size", scalar(scores.size, "uint32")),
    }
    per_thread = 8 // scores.itemsize
    (out,), counts = launch(kernel, buffers, (-(-scores.size // (per_thread * 256)), 1, 1), (256, 1, 1), options)
    return out, counts


def _softmax(scores: np.ndarray, options: Options) -> tuple[np.ndarray, Counts]:
    """In float inside, as MLX's precise softmax: in one go up to 4096 columns, in a loop above."""
    columns = scores.shape[-1]
    looped = columns > 4096
    threads = 1024 if looped else -(-columns // (4 * 32)) * 32
    name = "softmax_looped" if looped else "softmax_single_row"
    kernel = LibraryKernel("softmax.h", name, (metal_type(scores), "float"))
    buffers: Buffers = {
        0: ("scores", scores),
        1: Output("weights", scores.shape, _dtype(scores)),
        2: ("axis_size", scalar(columns, "int32")),
    }
    (out,), counts = launch(kernel, buffers, (scores.size // columns, 1, 1), (threads, 1, 1), options)
    return out, counts


def unfused(call: Attention, options: Options | None = None) -> tuple[np.ndarray, Counts]:
    """Attention step by step; causal only, no other mask and no sinks. The counts are the sum of all steps'."""
    options = options or Options()
    T_q, T_kv = call.q.shape[2], call.k.shape[2]
    counts = []
    q, used = _scaled(call.q, call.scale, options)
    counts.append(used)
    scores, used = _product(q, call.k, True, ("scaled", "k", "scores"), options)
    counts.append(used)
    if call.causal:
        rows, columns = np.ogrid[:T_q, :T_kv]
        scores, used = _masked(scores, columns <= rows + T_kv - T_q, options)
        counts.append(used)
    weights, used = _softmax(scores, options)
    counts.append(used)
    out, used = _product(weights, call.v, False, ("weights", "v", "out"), options)
    counts.append(used)
    return out, reduce(add, counts)
