// Attention of few queries against a long cache, first pass: each threadgroup takes a share of the keys, loads each of
// them once for all query heads that read it, and writes float partial results that attention_merge puts together.
//
// Grid         (splits * THREADS, N_kv * ceil(group * T_q / ROWS), B) threads in groups of THREADS = 32 * TILES * WAYS:
//              TILES simdgroups for 8 rows each, times WAYS that deal out the keys; 128 threads at most.
// Rows         row r of a K/V head is query r % T_q of query head r / T_q of its group; ROWS = 8 * TILES.
// Threadgroup  queries ROWS x (D + 16 bytes), pool WAYS * COLUMNS x (max(D, D_V) + 16 bytes) of T, first K, then V;
//              the latter also serves, as float, to add up the ways. At most 29 KB.
// Registers    32-bit, a lane: O D_V/4, S COLUMNS/4, Q, K, V 2 each, softmax and row 8: 32 at D = 64, 46 at D = 128,
//              78 at D = 256; addresses come on top.
// Precision    f32-internal for every T, the partial results too.
//
// Invariants
// 1. The shares of all splits cover the keys that some row may see, each once; nothing outside is read. A share may
//    be empty: its partial result is (LOWEST, 0, 0).
// 2. Every thread meets the same barriers: four a step, then two for each way that is added.
// 3. The sink does not appear here: it joins once, in the merge.
// 4. Offsets into arrays are 64-bit at their base, 32-bit inside a tile; a mask is never read where no key is.
//
// D and D_V are head sizes rounded up to a multiple of 8; sizes holds the true ones.
  static_assert(D % 8 == 0 && D_V % 8 == 0 && COLUMNS % 8 == 0 && COLUMNS <= 32, "tile");
  constexpr int ROWS = 8 * TILES;
  constexpr int THREADS = 32 * TILES * WAYS;
  constexpr int KEYS = WAYS * COLUMNS;
  constexpr int PAD = 16 / int(sizeof(T));
  constexpr int LD_Q = D + PAD;
  constexpr int LD_KV = (D > D_V ? D : D_V) + PAD;
  constexpr bool PLACED = LEFT || RIGHT || ALIBI;
  constexpr bool GUARDED = MASK != 0 || BIAS || SEGMENTS;
  // `pool` holds the staged keys and at the end one way's O, largest and total, where there are ways to add up.
  constexpr int STAGED = KEYS * LD_KV * int(sizeof(T)) / 4;
  constexpr int SUMS = WAYS > 1 ? ROWS * (D_V + 2) : 0;
  constexpr int POOL = STAGED > SUMS ? STAGED : SUMS;
  constexpr int ENDS = SEGMENTS ? 2 * TILES * WAYS : 1;
  static_assert(ROWS * LD_Q * sizeof(T) + (POOL + ENDS) * 4 <= 32768, "threadgroup memory");
  threadgroup T queries[ROWS * LD_Q];
  threadgroup float pool[POOL];
  threadgroup int ends[ENDS];

  threadgroup T* staged = reinterpret_cast<threadgroup T*>(pool);

  const int T_q = sizes[0];
  const int T_kv = sizes[1];
  const int group = sizes[2];
  const int d_true = sizes[3];
  const int dv_true = sizes[4];
  const int splits = sizes[7];

  const int index = int(thread_index_in_threadgroup);
  const int simd_group = int(simdgroup_index_in_threadgroup);
  const int tile = simd_group % TILES;
  const int way = simd_group / TILES;
  const short lane = short(thread_index_in_simdgroup);
  const short row = fragment_row(lane);
  const short column = fragment_column(lane);
  const int batch = int(threadgroup_position_in_grid.z);
  const int split = int(threadgroup_position_in_grid.x);
  const int parts = (group * T_q + ROWS - 1) / ROWS;
  const int heads = int(threadgroups_per_grid.y) / parts * group;
  const int kv_head = int(threadgroup_position_in_grid.y) / parts;
  const int r0 = int(threadgroup_position_in_grid.y) % parts * ROWS;
  const int rows = min(ROWS, group * T_q - r0);
  const int own = tile * 8 + row;
  const bool there = own < rows;
  const int r_read = r0 + (there ? own : 0);
  const int head = kv_head * group + r_read / T_q;
  const int q_own = r_read % T_q;

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
  query.there = there;
  query.position = q_own;
  query.slope = 0.0f;
  int first = 0;
  if constexpr (PLACED) {
    const int offset = clamp(q_offset[batch], -FARTHEST, FARTHEST);
    query.position += offset;
    if constexpr (RIGHT) {
      rules.key_end = bounded(int64_t(T_q) + offset + rules.right, 0, rules.key_end);
    }
    if constexpr (LEFT) {
      first = bounded(int64_t(offset) - rules.left, 0, rules.key_end);
    }
  }
  if constexpr (ALIBI) {
    query.slope = slopes[batch * heads + head];
  }

  // This threadgroup's share of the keys: whole steps, the same for every split but the last ones.
  const int steps = (rules.key_end - first + KEYS - 1) / KEYS;
  const int share = (steps + splits - 1) / splits * KEYS;
  first = bounded(int64_t(first) + int64_t(split) * share, 0, rules.key_end);
  rules.key_end = bounded(int64_t(first) + share, 0, rules.key_end);

  // Of the share: the first and the last key whose segment lies between the least and the greatest of the rows.
  Id segment = Id(0);
  auto kv_ids = kv_segments + (SEGMENTS ? int64_t(batch) * T_kv : 0);
  if constexpr (SEGMENTS) {
    auto q_ids = q_segments + int64_t(batch) * T_q;
    segment = q_ids[q_own];
    Id least = q_ids[0];
    Id greatest = least;
    for (int i = 1; i < T_q; i++) {
      const Id id = q_ids[i];
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
    for (short s = 0; s < TILES * WAYS; s++) {
      first = min(first, ends[2 * s]);
      narrowed = max(narrowed, ends[2 * s + 1]);
    }
    rules.key_end = narrowed;
  }

  auto mask_row = mask + (MASK != 0 ? batch * mask_strides[0] + head * mask_strides[1] + q_own * mask_strides[2] : 0);
  auto bias_row = bias + (BIAS ? batch * bias_strides[0] + head * bias_strides[1] + q_own * bias_strides[2] : 0);
  const int64_t mask_step = MASK != 0 ? mask_strides[3] : 0;
  const int64_t bias_step = BIAS ? bias_strides[3] : 0;

  const int64_t q_batch = batch * q_strides[0];
  const int64_t q_head = q_strides[1];
  const int64_t q_row = q_strides[2];
  const int64_t q_column = q_strides[3];
  for (int i = 0; i < ROWS; i++) {
    const int r = r0 + (i < rows ? i : 0);
    stage<T, 1, D, LD_Q, THREADS>(
        queries + i * LD_Q,
        q + (q_batch + (kv_head * group + r / T_q) * q_head + r % T_q * q_row),
        i < rows ? 1 : 0,
        d_true,
        0,
        q_column,
        index);
  }

  Fragment O[D_V / 8];
  MLX_MTL_PRAGMA_UNROLL
  for (short d = 0; d < D_V / 8; d++) {
    O[d] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  }
  float largest = LOWEST;
  float total = 0.0f;

  for (int step = first; step < rules.key_end; step += KEYS) {
    const int count = min(KEYS, rules.key_end - step);
    const int start = step + way * COLUMNS;
    const short from = 0;
    const short to = short((bounded(int64_t(rules.key_end) - start, 0, COLUMNS) + 7) / 8);

    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage<T, KEYS, D, LD_KV, THREADS>(staged, k_head + step * k_row, count, d_true, k_row, k_column, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    Fragment S[COLUMNS / 8];
    float shrink = 1.0f;
    uint32_t seen = 0;
    if (from < to) {
      multiply_keys<T, D, LD_Q, LD_KV, COLUMNS>(
          S, queries + tile * 8 * LD_Q, staged + way * COLUMNS * LD_KV, from, to, row, column);
      MLX_MTL_PRAGMA_UNROLL
      for (short j = 0; j < COLUMNS / 8; j++) {
        if (j < to) {
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
    stage<T, KEYS, D_V, LD_KV, THREADS>(staged, v_head + step * v_row, count, dv_true, v_row, v_column, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (from < to) {
      multiply_values<T, D_V, LD_KV, COLUMNS, GUARDED>(
          O, S, staged + way * COLUMNS * LD_KV, shrink, seen, from, to, row, column);
    }
  }

  // Way 0 takes in the others, one after another.
  if constexpr (WAYS > 1) {
    threadgroup float* sums = pool + own * (D_V + 2);
    for (int other = 1; other < WAYS; other++) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (way == other) {
        MLX_MTL_PRAGMA_UNROLL
        for (short d = 0; d < D_V / 8; d++) {
          sums[d * 8 + column] = O[d].thread_elements()[0];
          sums[d * 8 + column + 1] = O[d].thread_elements()[1];
        }
        if (column == 0) {
          sums[D_V] = largest;
          sums[D_V + 1] = total;
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (way == 0) {
        const float now = metal::max(largest, sums[D_V]);
        const float shrink = fast::exp2((largest - now) * M_LOG2E_F);
        const float other_shrink = fast::exp2((sums[D_V] - now) * M_LOG2E_F);
        MLX_MTL_PRAGMA_UNROLL
        for (short d = 0; d < D_V / 8; d++) {
          MLX_MTL_PRAGMA_UNROLL
          for (short e = 0; e < 2; e++) {
            O[d].thread_elements()[e] = O[d].thread_elements()[e] * shrink + sums[d * 8 + column + e] * other_shrink;
          }
        }
        total = total * shrink + sums[D_V + 1] * other_shrink;
        largest = now;
      }
    }
  }

  if (there && way == 0) {
    const int64_t at = (((int64_t(batch) * heads + head) * T_q) + q_own) * splits + split;
    MLX_MTL_PRAGMA_UNROLL
    for (short d = 0; d < D_V / 8; d++) {
      MLX_MTL_PRAGMA_UNROLL
      for (short e = 0; e < 2; e++) {
        if (d * 8 + column + e < dv_true) {
          partial[at * dv_true + d * 8 + column + e] = O[d].thread_elements()[e];
        }
      }
    }
    if (column == 0) {
      stats[at * 2] = largest;
      stats[at * 2 + 1] = total;
    }
  }
