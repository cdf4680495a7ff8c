// What every attention kernel shares, so that forward, decode and backward cannot disagree: how a tile is staged, what
// the score of one query against one key is, and the online softmax.
//
// Fragments are 8x8 simdgroup matrices of float. Lane l holds two neighbouring elements of one row (the map that MLX's
// own kernels rely on): row fragment_row(l), columns fragment_column(l) and the next. The four lanes of a row are l,
// l^1, l^8 and l^9. An accumulator is fed to the next product as it is.
//
// Scores are natural (not in base 2): s - max is exact for neighbouring scores, and only the difference is multiplied
// by log2(e) before exp2. A hidden key has score -inf; the running maximum starts at a finite LOWEST, so that no
// infinity is subtracted from another.

#include <metal_simdgroup>
#include <metal_simdgroup_matrix>

typedef simdgroup_matrix<float, 8, 8> Fragment;

// The least float: a mask of that value is a score like any other.
constant float LOWEST = -3.402823466e38f;
// Offsets beyond it put every key on one side of the query all the same.
constant int FARTHEST = 1 << 30;

METAL_FUNC short fragment_row(short lane) {
  return short((lane / 4 & 4) + lane / 2 % 4);
}

METAL_FUNC short fragment_column(short lane) {
  return short((lane / 4 & 2) * 2 + lane % 2 * 2);
}

METAL_FUNC int bounded(int64_t x, int low, int high) {
  return x < int64_t(low) ? low : x > int64_t(high) ? high : int(x);
}

// Copies `rows` x `width` elements to a tile of ROWS x WIDTH with leading dimension LD; the rest becomes zero.
// Four elements a thread, threads along the width. Source is a pointer into `device` or, for tiny arrays, `constant`.
template <typename T, int ROWS, int WIDTH, int LD, int THREADS, typename Source>
METAL_FUNC void stage(
    threadgroup T* tile, Source source, int rows, int width, int64_t row_stride, int64_t column_stride, int index) {
  constexpr int QUADS = WIDTH / 4;
  for (int at = index; at < ROWS * QUADS; at += THREADS) {
    const int row = at / QUADS;
    const int column = at % QUADS * 4;
    threadgroup T* to = tile + row * LD + column;
    const int count = row < rows ? width - column : 0;
    Source from = source + (count > 0 ? row * row_stride + column * column_stride : 0);
    if (count >= 4 && column_stride == 1) {
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
      to[3] = from[3];
    } else {
      for (short e = 0; e < 4; e++) {
        to[e] = e < count ? from[e * column_stride] : T(0);
      }
    }
  }
}

// One query row as its lanes know it. `position` is i' = i + q_offset.
struct Query {
  bool there;
  int position;
  float slope;
};

// What holds for the whole call; distances i' - j outside -right..left are hidden.
struct Rules {
  float scale;
  float cap;
  int left;
  int right;
  int key_end;
};

// c * tanh(s / c) of the scaled product, or the scaled product itself.
template <bool SOFTCAP>
METAL_FUNC float capped_score(float product, const thread Rules& rules) {
  const float s = product * rules.scale;
  if constexpr (SOFTCAP) {
    return rules.cap * precise::tanh(s / rules.cap);
  } else {
    return s;
  }
}

// The score of a query against key `key`: softcap(scale * q.k) + ALiBi + bias + additive mask, or -inf where the key
// is hidden (-inf added hides it, whatever the product).
// MASK is 0 (none), 1 (boolean) or 2 (additive). `mask_at` and `bias_at` point to the element of this query
// and key, `kv_segments` to the batch row's ids; they are read only for keys that exist and are not hidden already.
template <
    bool LEFT,
    bool RIGHT,
    bool SEGMENTS,
    int MASK,
    bool BIAS,
    bool ALIBI,
    bool SOFTCAP,
    typename Mask,
    typename Bias,
    typename Segments,
    typename Id>
METAL_FUNC float score(
    float product,
    int key,
    const thread Query& query,
    const thread Rules& rules,
    Mask mask_at,
    Bias bias_at,
    Segments kv_segments,
    Id segment) {
  const int distance = query.position - key;
  bool seen = query.there && key < rules.key_end;
  if constexpr (LEFT) {
    seen = seen && distance <= rules.left;
  }
  if constexpr (RIGHT) {
    seen = seen && -distance <= rules.right;
  }
  if constexpr (SEGMENTS) {
    seen = seen && kv_segments[key] == segment;
  }
  if constexpr (MASK == 1) {
    seen = seen && mask_at[0];
  }
  float s = capped_score<SOFTCAP>(product, rules);
  if constexpr (ALIBI) {
    s -= query.slope * float(abs(distance));
  }
  if constexpr (BIAS) {
    const float bias = seen ? float(bias_at[0]) : 0.0f;
    seen = seen && bias != -INFINITY;
    s += bias;
  }
  if constexpr (MASK == 2) {
    const float added = seen ? float(mask_at[0]) : 0.0f;
    seen = seen && added != -INFINITY;
    s += added;
  }
  return seen ? s : -INFINITY;
}

METAL_FUNC float row_max(float x) {
  x = metal::max(x, simd_shuffle_xor(x, ushort(1)));
  return metal::max(x, simd_shuffle_xor(x, ushort(8)));
}

METAL_FUNC float row_sum(float x) {
  x += simd_shuffle_xor(x, ushort(1));
  return x + simd_shuffle_xor(x, ushort(8));
}

// Bit c of the result: one of the eight rows sees column c of the block. S holds scores; bits of fragments outside
// from..to-1 are 0.
template <int COLUMNS>
METAL_FUNC uint32_t seen_columns(thread Fragment* S, short from, short to, short column) {
  uint32_t seen = 0;
  MLX_MTL_PRAGMA_UNROLL
  for (short j = 0; j < COLUMNS / 8; j++) {
    if (j >= from && j < to) {
      MLX_MTL_PRAGMA_UNROLL
      for (short e = 0; e < 2; e++) {
        seen |= S[j].thread_elements()[e] == -INFINITY ? 0u : 1u << (j * 8 + column + e);
      }
    }
  }
  seen |= simd_shuffle_xor(seen, ushort(1));
  seen |= simd_shuffle_xor(seen, ushort(2));
  seen |= simd_shuffle_xor(seen, ushort(4));
  seen |= simd_shuffle_xor(seen, ushort(8));
  return seen | simd_shuffle_xor(seen, ushort(16));
}

// S[j] = Q K[j]^T for the fragments from..to-1: eight queries against eight keys each.
template <typename T, int D, int LD_Q, int LD_K, int COLUMNS>
METAL_FUNC void multiply_keys(
    thread Fragment* S,
    const threadgroup T* queries,
    const threadgroup T* keys,
    short from,
    short to,
    short row,
    short column) {
  MLX_MTL_PRAGMA_UNROLL
  for (short j = 0; j < COLUMNS / 8; j++) {
    S[j] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  }
  MLX_MTL_PRAGMA_UNROLL
  for (short d = 0; d < D; d += 8) {
    Fragment Q;
    Q.thread_elements()[0] = float(queries[row * LD_Q + d + column]);
    Q.thread_elements()[1] = float(queries[row * LD_Q + d + column + 1]);
    MLX_MTL_PRAGMA_UNROLL
    for (short j = 0; j < COLUMNS / 8; j++) {
      if (j >= from && j < to) {
        Fragment K;
        K.thread_elements()[0] = float(keys[(j * 8 + column) * LD_K + d + row]);
        K.thread_elements()[1] = float(keys[(j * 8 + column + 1) * LD_K + d + row]);
        simdgroup_multiply_accumulate(S[j], Q, K, S[j]);
      }
    }
  }
}

// Turns the scores of a block into weights relative to the new running maximum, and gives the factor by which what was
// summed up before shrinks (Milakov and Gimelshein 2018).
template <int COLUMNS>
METAL_FUNC float
online_softmax(thread Fragment* S, short from, short to, thread float& largest, thread float& total) {
  float now = largest;
  MLX_MTL_PRAGMA_UNROLL
  for (short j = 0; j < COLUMNS / 8; j++) {
    if (j >= from && j < to) {
      now = metal::max(now, metal::max(S[j].thread_elements()[0], S[j].thread_elements()[1]));
    }
  }
  now = row_max(now);
  float sum = 0.0f;
  MLX_MTL_PRAGMA_UNROLL
  for (short j = 0; j < COLUMNS / 8; j++) {
    if (j >= from && j < to) {
      MLX_MTL_PRAGMA_UNROLL
      for (short e = 0; e < 2; e++) {
        const float weight = fast::exp2((S[j].thread_elements()[e] - now) * M_LOG2E_F);
        S[j].thread_elements()[e] = weight;
        sum += weight;
      }
    }
  }
  const float shrink = fast::exp2((largest - now) * M_LOG2E_F);
  total = total * shrink + row_sum(sum);
  largest = now;
  return shrink;
}

// O = O * shrink + P V over the fragments from..to-1. With GUARDED, a value whose bit in `seen` is 0 counts as zero:
// its weight is zero in all eight rows, but zero times NaN is not.
template <typename T, int D_V, int LD_V, int COLUMNS, bool GUARDED>
METAL_FUNC void multiply_values(
    thread Fragment* O,
    thread Fragment* P,
    const threadgroup T* values,
    float shrink,
    uint32_t seen,
    short from,
    short to,
    short row,
    short column) {
  MLX_MTL_PRAGMA_UNROLL
  for (short d = 0; d < D_V / 8; d++) {
    O[d].thread_elements()[0] *= shrink;
    O[d].thread_elements()[1] *= shrink;
    MLX_MTL_PRAGMA_UNROLL
    for (short j = 0; j < COLUMNS / 8; j++) {
      if (j >= from && j < to) {
        const threadgroup T* at = values + (j * 8 + row) * LD_V + d * 8 + column;
        const bool counts = !GUARDED || (seen >> (j * 8 + row) & 1u) != 0u;
        Fragment V;
        V.thread_elements()[0] = counts ? float(at[0]) : 0.0f;
        V.thread_elements()[1] = counts ? float(at[1]) : 0.0f;
        simdgroup_multiply_accumulate(O[d], P[j], V, O[d]);
      }
    }
  }
}
