"""A plain tiled attention kernel in the manner of FlashAttention-2, to plant faults in. Layout [B, N, T, D], causal.

Each simdgroup of a group of 64 threads owns 8 queries. K and then V pass through one threadgroup tile, 16 keys at a
time.
"""

from __future__ import annotations

import numpy as np

from mlx_tx_conformance.emulator import Counts, Options
from mlx_tx_conformance.oracle.attention import attention
from tests.conformance.emulator.run_kernel import launch

SOURCE = """
    constexpr int BQ = 16, BK = 16, LD = D + 4;
    threadgroup T tile[BK * LD];
    const int T_q = q_shape[2], T_kv = k_shape[2];
    const int block = threadgroup_position_in_grid.x, head = threadgroup_position_in_grid.y;
    const device T* Q = q + size_t(head) * T_q * D;
    const device T* K = k + size_t(head) * T_kv * D;
    const device T* V = v + size_t(head) * T_kv * D;
    device T* O = out + size_t(head) * T_q * D;
    const short lane = thread_index_in_simdgroup;
    const short simdgroup = simdgroup_index_in_threadgroup;
    const short tid = thread_index_in_threadgroup;
    const short fm = (lane / 4 & 4) + lane / 2 % 4;
    const short fn = (lane / 4 & 2) * 2 + lane % 2 * 2;
    const int row = block * BQ + simdgroup * 8 + fm;
    const float factor = scale * M_LOG2E_F;

    simdgroup_matrix<float, 8, 8> Qf[D / 8], Of[D / 8];
    for (short d = 0; d < D / 8; d++) {
      for (short e = 0; e < 2; e++)
        Qf[d].thread_elements()[e] = row < T_q ? float(Q[row * D + d * 8 + fn + e]) : 0.0f;
      Of[d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    }
    float largest = -1e30f, sum = 0.0f;
    const int blocks = (T_kv + BK - 1) / BK;

    for (int kb = 0; kb < blocks; kb++) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int i = tid; i < BK * D; i += 64) {
        const int r = i / D, c = i % D;
        tile[r * LD + c] = kb * BK + r < T_kv ? K[(kb * BK + r) * D + c] : T(0);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      simdgroup_matrix<float, 8, 8> S[BK / 8], Kf;
      for (short j = 0; j < BK / 8; j++) {
        S[j] = make_filled_simdgroup_matrix<float, 8>(0.0f);
        for (short d = 0; d < D / 8; d++) {
          for (short e = 0; e < 2; e++)
            Kf.thread_elements()[e] = float(tile[(j * 8 + fn + e) * LD + d * 8 + fm]);
          simdgroup_multiply_accumulate(S[j], Qf[d], Kf, S[j]);
        }
      }
      float now = largest;
      for (short j = 0; j < BK / 8; j++)
        for (short e = 0; e < 2; e++) {
          const int col = kb * BK + j * 8 + fn + e;
          float s = S[j].thread_elements()[e] * factor;
          s = col < T_kv && col <= row + T_kv - T_q ? s : -1e30f;
          S[j].thread_elements()[e] = s;
          now = max(now, s);
        }
      now = max(now, simd_shuffle_xor(now, ushort(1)));
      now = max(now, simd_shuffle_xor(now, ushort(8)));
      const float shrink = fast::exp2(largest - now);
      float more = 0.0f;
      for (short j = 0; j < BK / 8; j++)
        for (short e = 0; e < 2; e++) {
          const float s = S[j].thread_elements()[e];
          const float p = s > -1e29f ? fast::exp2(s - now) : 0.0f;
          S[j].thread_elements()[e] = p;
          more += p;
        }
      more += simd_shuffle_xor(more, ushort(1));
      more += simd_shuffle_xor(more, ushort(8));
      sum = sum * shrink + more;
      largest = now;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int i = tid; i < BK * D; i += 64) {
        const int r = i / D, c = i % D;
        tile[r * LD + c] = kb * BK + r < T_kv ? V[(kb * BK + r) * D + c] : T(0);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (short d = 0; d < D / 8; d++) {
        Of[d].thread_elements()[0] *= shrink;
        Of[d].thread_elements()[1] *= shrink;
        for (short j = 0; j < BK / 8; j++) {
          simdgroup_matrix<float, 8, 8> Vf;
          for (short e = 0; e < 2; e++)
            Vf.thread_elements()[e] = float(tile[(j * 8 + fm) * LD + d * 8 + fn + e]);
          simdgroup_multiply_accumulate(Of[d], S[j], Vf, Of[d]);
        }
      }
    }
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    if (row < T_q)
      for (short d = 0; d < D / 8; d++)
        for (short e = 0; e < 2; e++)
          O[row * D + d * 8 + fn + e] = static_cast<T>(Of[d].thread_elements()[e] * inverse);
"""
HEADER = "#include <metal_simdgroup>\n#include <metal_simdgroup_matrix>\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def inputs(T_q: int = 29, T_kv: int = 45, D: int = 32, heads: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    q, k, v = (rng.standard_normal((1, heads, t, D)).astype(np.float32) for t in (T_q, T_kv, T_kv))
    return {"q": q, "k": k, "v": v, "scale": np.array(0.21, np.float32)}


def flash(source: str, arrays: dict[str, np.ndarray], options: Options) -> tuple[np.ndarray, Counts]:
    _, heads, T_q, D = arrays["q"].shape
    (out,), counts = launch(
        source,
        arrays,
        {"out": (arrays["q"].shape, "float32")},
        (-(-T_q // 16) * 64, heads, 1),
        (64, 1, 1),
        HEADER,
        options,
        [("T", "float32"), ("D", D)],
        name="flash",
    )
    return out, counts


def expected(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return attention(arrays["q"], arrays["k"], arrays["v"], scale=0.21, causal=True).out


def replace_nth(text: str, old: str, new: str, n: int = 1) -> str:
    """Replaces the n-th occurrence, counted from 1. ValueError if there are fewer."""
    at = -1
    for _ in range(n):
        at = text.index(old, at + 1)
    return text[:at] + new + text[at + len(old) :]
