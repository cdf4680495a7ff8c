// Attention forward: FlashAttention-2 tiling (Dao 2023, Algorithm 1), one threadgroup for ROWS queries of one head.
//
// Grid         (ceil(T_q / ROWS) * THREADS, N_q, B) threads in groups of THREADS = 4 * ROWS: one simdgroup of 32 for
//              each 8 query rows; 128 threads at most.
// Threadgroup  queries ROWS x (D + 16 bytes), staged COLUMNS x (max(D, D_V) + 16 bytes) of T: first K, then V.
//              At most 29 KB (float32, D = 128: 16.9 + 8.4 KB; float16, D = 64: 4.6 + 4.6 KB).
// Registers    32-bit, a lane: O D_V/4, S COLUMNS/4, Q, K, V 2 each, softmax and row 8: 40 at D = 64, 50 at D = 128,
//              84 at D = 256 (rows of 16 or 32); addresses come on top.
// Precision    f32-internal for every T: products, scores, softmax and weights are float, the result is rounded once.
//
// Invariants
// 1. Keys first..key_end-1 are walked in blocks; outside it no row of the tile sees a key (band, length, segments), and
//    nothing there is read. Inside a block each simdgroup works on the fragments that one of its rows may see.
// 2. Every thread meets the same barriers: four a block (staged is free | K is there | K is used | V is there).
// 3. `largest` is finite, `total` is 0 exactly for a row that saw nothing. The sink is a first key without a value.
// 4. Offsets into arrays are 64-bit at their base, 32-bit inside a tile; a mask is never read where no key is.
//
// D and D_V are head sizes rounded up to a multiple of 8; sizes holds the true ones.
  static_assert(D % 8 == 0 && D_V % 8 == 0 && ROWS % 8 == 0 && COLUMNS % 8 == 0 && COLUMNS <= 32, "tile");
  constexpr int SIMDGROUPS = ROWS / 8;
  constexpr int THREADS = 32 * SIMDGROUPS;
  constexpr int PAD = 16 / int(sizeof(T));
  constexpr int LD_Q = D + PAD;
  constexpr int LD_KV = (D > D_V ? D : D_V) + PAD;
  constexpr bool PLACED = LEFT || RIGHT || ALIBI;
  constexpr bool GUARDED = MASK != 0 || BIAS || SEGMENTS;
  constexpr int ENDS = SEGMENTS ? 2 * SIMDGROUPS : 1;
  static_assert((ROWS * LD_Q + COLUMNS * LD_KV) * sizeof(T) + ENDS * 4 <= 32768, "threadgroup memory");
  threadgroup T queries[ROWS * LD_Q];
  threadgroup T staged[COLUMNS * LD_KV];
  threadgroup int ends[ENDS];

  const int T_q = sizes[0];
  const int T_kv = sizes[1];
  const int heads = int(threadgroups_per_grid.y);
  const int group = sizes[2];
  const int d_true = sizes[3];
  const int dv_true = sizes[4];

  const int index = int(thread_index_in_threadgroup);
  const int simd_group = int(simdgroup_index_in_threadgroup);
  const short lane = short(thread_index_in_simdgroup);
  const short row = fragment_row(lane);
  const short column = fragment_column(lane);
  const int batch = int(threadgroup_position_in_grid.z);
  const int head = int(threadgroup_position_in_grid.y);
  const int kv_head = head / group;
  const int q0 = int(threadgroup_position_in_grid.x) * ROWS;
  const int rows = min(ROWS, T_q - q0);
  const int q_own = q0 + simd_group * 8 + row;

  auto q_tile = q + (batch * q_strides[0] + head * q_strides[1] + q0 * q_strides[2]);
  auto k_head = k + (batch * k_strides[0] + kv_head * k_strides[1]);
  auto v_head = v + (batch * v_strides[0] + kv_head * v_strides[1]);
  const int64_t k_row = k_strides[2];
  const int64_t k_column = k_strides[3];
  const int64_t v_row = v_strides[2];
  const int64_t v_column = v_strides[3];

  Rules rules;
  rules.scale = factors[0];
  rules.cap = SOFTCAP ? factors[1] : 1.0f;
  rules.left = LEFT ? sizes[5] : 0;
  rules.right = RIGHT ? sizes[6] : 0;
  rules.key_end = LENGTHS ? clamp(kv_lengths[batch], 0, T_kv) : T_kv;

  Query query;
  query.there = q_own < q0 + rows;
  query.position = q_own;
  query.slope = 0.0f;
  int lowest = q0 + simd_group * 8;
  int first = 0;
  if constexpr (PLACED) {
    const int offset = clamp(q_offset[batch], -FARTHEST, FARTHEST);
    query.position += offset;
    lowest += offset;
    if constexpr (RIGHT) {
      rules.key_end = bounded(int64_t(q0 + rows) + offset + rules.right, 0, rules.key_end);
    }
    if constexpr (LEFT) {
      first = bounded(int64_t(q0) + offset - rules.left, 0, rules.key_end);
    }
  }
  if constexpr (ALIBI) {
    query.slope = slopes[batch * heads + head];
  }
  const int highest = lowest + min(8, rows - simd_group * 8) - 1;

  // The first and the last key whose segment lies between the least and the greatest of the tile's rows.
  Id segment = Id(0);
  auto kv_ids = kv_segments + (SEGMENTS ? int64_t(batch) * T_kv : 0);
  if constexpr (SEGMENTS) {
    auto q_ids = q_segments + int64_t(batch) * T_q;
    segment = q_ids[query.there ? q_own : q0];
    Id least = q_ids[q0];
    Id greatest = least;
    for (int i = 1; i < rows; i++) {
      const Id id = q_ids[q0 + i];
      least = id < least ? id : least;
      greatest = id > greatest ? id : greatest;
    }
    int from = rules.key_end;
    int to = first;
    for (int key = first + index; key < rules.key_end; key += THREADS) {
      const Id id = kv_ids[key];
      if (id >= least && id <= greatest) {
        from = min(from, key);
        to = key + 1;
      }
    }
    from = simd_min(from);
    to = simd_max(to);
    if (lane == 0) {
      ends[2 * simd_group] = from;
      ends[2 * simd_group + 1] = to;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int narrowed = first;
    first = rules.key_end;
    for (short s = 0; s < SIMDGROUPS; s++) {
      first = min(first, ends[2 * s]);
      narrowed = max(narrowed, ends[2 * s + 1]);
    }
    rules.key_end = narrowed;
  }

  const int q_read = query.there ? q_own : q0;
  auto mask_row = mask + (MASK != 0 ? batch * mask_strides[0] + head * mask_strides[1] + q_read * mask_strides[2] : 0);
  auto bias_row = bias + (BIAS ? batch * bias_strides[0] + head * bias_strides[1] + q_read * bias_strides[2] : 0);
  const int64_t mask_step = MASK != 0 ? mask_strides[3] : 0;
  const int64_t bias_step = BIAS ? bias_strides[3] : 0;

  stage<T, ROWS, D, LD_Q, THREADS>(queries, q_tile, rows, d_true, q_strides[2], q_strides[3], index);

  Fragment O[D_V / 8];
  MLX_MTL_PRAGMA_UNROLL
  for (short d = 0; d < D_V / 8; d++) {
    O[d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  }
  float largest = LOWEST;
  float total = 0.0f;
  if constexpr (SINKS) {
    const float sink = sinks[batch * heads + head];
    largest = metal::max(LOWEST, sink);
    total = sink == -INFINITY ? 0.0f : 1.0f;
  }

  for (int start = first; start < rules.key_end; start += COLUMNS) {
    const int count = min(COLUMNS, rules.key_end - start);
    short from = 0;
    short to = highest < lowest ? short(0) : short((count + 7) / 8);
    if constexpr (LEFT) {
      from = short(bounded(int64_t(lowest) - rules.left - start, 0, COLUMNS) / 8);
    }
    if constexpr (RIGHT) {
      to = min(to, short((bounded(int64_t(highest) + rules.right + 1 - start, 0, COLUMNS) + 7) / 8));
    }

    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage<T, COLUMNS, D, LD_KV, THREADS>(staged, k_head + start * k_row, count, d_true, k_row, k_column, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    Fragment S[COLUMNS / 8];
    float shrink = 1.0f;
    uint32_t seen = 0;
    if (from < to) {
      multiply_keys<T, D, LD_Q, LD_KV, COLUMNS>(S, queries + simd_group * 8 * LD_Q, staged, from, to, row, column);
      MLX_MTL_PRAGMA_UNROLL
      for (short j = 0; j < COLUMNS / 8; j++) {
        if (j >= from && j < to) {
          MLX_MTL_PRAGMA_UNROLL
          for (short e = 0; e < 2; e++) {
            const int key = start + j * 8 + column + e;
            S[j].thread_elements()[e] = score<LEFT, RIGHT, SEGMENTS, MASK, BIAS, ALIBI, SOFTCAP>(
                S[j].thread_elements()[e],
                key,
                query,
                rules,
                mask_row + key * mask_step,
                bias_row + key * bias_step,
                kv_ids,
                segment);
          }
        }
      }
      if constexpr (GUARDED) {
        seen = seen_columns<COLUMNS>(S, from, to, column);
      }
      shrink = online_softmax<COLUMNS>(S, from, to, largest, total);
    }

    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage<T, COLUMNS, D_V, LD_KV, THREADS>(staged, v_head + start * v_row, count, dv_true, v_row, v_column, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (from < to) {
      multiply_values<T, D_V, LD_KV, COLUMNS, GUARDED>(O, S, staged, shrink, seen, from, to, row, column);
    }
  }

  if (query.there) {
    const int64_t at = (int64_t(batch) * heads + head) * T_q + q_own;
    const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
    MLX_MTL_PRAGMA_UNROLL
    for (short d = 0; d < D_V / 8; d++) {
      MLX_MTL_PRAGMA_UNROLL
      for (short e = 0; e < 2; e++) {
        if (d * 8 + column + e < dv_true) {
          out[at * dv_true + d * 8 + column + e] = static_cast<T>(O[d].thread_elements()[e] * inverse);
        }
      }
    }
    if (column == 0) {
      lse[at] = total == 0.0f ? -INFINITY : largest + precise::log(total);
    }
  }
