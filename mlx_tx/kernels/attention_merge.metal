// Attention of few queries against a long cache, second pass: the partial results of a row, put together.
//
// Grid         (32 * T_q, N_q, B) threads in groups of 32: a simdgroup for each query row.
// Threadgroup  no memory.
// Registers    about 10 a lane.
//
// Invariant: weights are relative to the largest of all partial maxima and the sink, which joins here, once. `total` is
// 0 exactly for a row that saw nothing in any split and has no sink.
  const int T_q = int(threadgroups_per_grid.x);
  const int heads = int(threadgroups_per_grid.y);
  const int dv_true = sizes[4];
  const int splits = sizes[7];
  const int batch = int(threadgroup_position_in_grid.z);
  const int head = int(threadgroup_position_in_grid.y);
  const int lane = int(thread_index_in_simdgroup);
  const int64_t at = (int64_t(batch) * heads + head) * T_q + int(threadgroup_position_in_grid.x);
  auto row_stats = stats + at * splits * 2;
  auto row_partial = partial + at * splits * dv_true;

  float largest = LOWEST;
  float total = 0.0f;
  for (int s = 0; s < splits; s++) {
    largest = metal::max(largest, row_stats[s * 2]);
  }
  if constexpr (SINKS) {
    const float sink = sinks[batch * heads + head];
    largest = metal::max(largest, sink);
    total = fast::exp2((sink - largest) * M_LOG2E_F);
  }
  for (int s = 0; s < splits; s++) {
    total += row_stats[s * 2 + 1] * fast::exp2((row_stats[s * 2] - largest) * M_LOG2E_F);
  }
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;
  for (int d = lane; d < dv_true; d += 32) {
    float sum = 0.0f;
    for (int s = 0; s < splits; s++) {
      sum += row_partial[s * dv_true + d] * fast::exp2((row_stats[s * 2] - largest) * M_LOG2E_F);
    }
    out[at * dv_true + d] = static_cast<T>(sum * inverse);
  }
  if (lane == 0) {
    lse[at] = total == 0.0f ? -INFINITY : largest + precise::log(total);
  }
