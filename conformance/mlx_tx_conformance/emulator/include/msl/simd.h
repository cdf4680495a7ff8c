// Barriers and the operations of <metal_simdgroup> and <metal_quadgroup>. All lanes of a simdgroup meet at the
// operation; one of them evaluates it for all. A lane that ended takes no part; a lane elsewhere is a divergence.
#ifndef MLX_TX_MSL_SIMD_H
#define MLX_TX_MSL_SIMD_H

#include "math.h"

// Every operation notes where it is called.
#define MLX_TX_SITE const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()

namespace metal {

enum class mem_flags : uint32_t { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint32_t(a) | uint32_t(b)); }

inline void threadgroup_barrier(mem_flags flags, MLX_TX_SITE) {
  emu::threadgroup_barrier(uint32_t(flags), {file, line});
}
inline void simdgroup_barrier(mem_flags flags, MLX_TX_SITE) { emu::simdgroup_barrier(uint32_t(flags), {file, line}); }

namespace detail {

using emu::Collective;
using emu::SimdGroup;

template <class T>
constexpr bool can_cross_lanes = !std::is_same_v<T, bool> && sizeof(T) <= 4;
template <class T, int N>
constexpr bool can_cross_lanes<vec<T, N>> = can_cross_lanes<T>;

template <class T>
T& operand(SimdGroup* s, uint32_t lane) {
  return *reinterpret_cast<T*>(s->in[lane]);
}
template <class T>
T& result(SimdGroup* s, uint32_t lane) {
  return *reinterpret_cast<T*>(s->out[lane]);
}

template <class F>
void for_lanes(uint32_t mask, F f) {
  for (; mask; mask &= mask - 1) f(uint32_t(__builtin_ctz(mask)));
}

// `evaluate(s)` reads operand<T>(s, lane) and writes result<R>(s, lane) for every lane of s->taking_part.
template <class R, class T, class F>
R collective(Collective op, T value, emu::Site site, F evaluate) {
  SimdGroup* s = emu::current->simdgroup;
  uint32_t lane = emu::current->lane;
  operand<T>(s, lane) = value;
  if (emu::meet(op, site)) {
    evaluate(s);
    emu::release(s);
  }
  return result<R>(s, lane);
}

// Combines lanes pairwise, 16 apart, then 8, ..., so that the order does not depend on which lane evaluates.
template <class T, class F>
T reduce(Collective op, T value, emu::Site site, F combine) {
  return collective<T>(op, value, site, [&](SimdGroup* s) {
    T values[emu::LANES];
    bool there[emu::LANES];
    for (uint32_t i = 0; i < emu::LANES; i++)
      if ((there[i] = s->taking_part >> i & 1)) values[i] = operand<T>(s, i);
    for (uint32_t width = emu::LANES / 2; width; width /= 2)
      for (uint32_t i = 0; i < width; i++) {
        if (there[i] && there[i + width])
          values[i] = combine(values[i], values[i + width]);
        else if (there[i + width])
          values[i] = values[i + width], there[i] = true;
      }
    for_lanes(s->taking_part, [&](uint32_t lane) { result<T>(s, lane) = values[0]; });
  });
}

template <class T, class F>
T prefix(Collective op, T value, T identity, bool inclusive, emu::Site site, F combine) {
  return collective<T>(op, value, site, [&](SimdGroup* s) {
    T running = identity;
    for_lanes(s->taking_part, [&](uint32_t lane) {
      T own = operand<T>(s, lane), before = running;
      running = combine(running, own);
      result<T>(s, lane) = inclusive ? running : before;
    });
  });
}

// A lane that does not exist or takes no part gives bits that no correct result contains (NaN in floating types).
template <class T>
T poison() {
  T value;
  memset(&value, 0xFF, sizeof value);
  return value;
}

template <class T>
struct Sent {
  T value;
  uint32_t from;  // the lane whose value this lane wants
};
template <class T>
T shuffle(Collective op, T value, uint32_t from, emu::Site site) {
  static_assert(can_cross_lanes<T>, "simd_shuffle: 8, 16 and 32 bit types and vectors of them; no bool");
  return collective<T>(op, Sent<T>{value, from}, site, [](SimdGroup* s) {
    for_lanes(s->taking_part, [&](uint32_t lane) {
      uint32_t source = operand<Sent<T>>(s, lane).from;
      bool there = source < emu::LANES && (s->taking_part >> source & 1);
      result<T>(s, lane) = there ? operand<Sent<T>>(s, source).value : poison<T>();
    });
  });
}

inline uint32_t lane() { return emu::current->lane; }

// A shift that leaves the simdgroup keeps the lane's own value, as Metal's tables show it.
template <class T>
T shift(Collective op, T value, int64_t from, emu::Site site) {
  return shuffle(op, value, from < 0 || from >= int64_t(emu::LANES) ? lane() : uint32_t(from), site);
}

}  // namespace detail

#define MLX_TX_REDUCTION(name, op, expression)                                                                        \
  template <class T>                                                                                                  \
  T simd_##name(T x, MLX_TX_SITE) {                                                                                   \
    static_assert(detail::can_cross_lanes<T>, "simd_" #name ": 8, 16 and 32 bit types and vectors of them; no bool"); \
    return detail::reduce(emu::Collective::op, x, {file, line}, [](T a, T b) { return T(expression); });              \
  }                                                                                                                   \
  template <class T>                                                                                                  \
  T quad_##name(T x, MLX_TX_SITE) {                                                                                   \
    static_assert(detail::can_cross_lanes<T>, "quad_" #name ": 8, 16 and 32 bit types and vectors of them; no bool"); \
    return detail::quad_reduce(x, {file, line}, [](T a, T b) { return T(expression); });                              \
  }

namespace detail {

template <class T, class F>
T quad_reduce(T value, emu::Site site, F combine) {
  return collective<T>(Collective::quad, value, site, [&](SimdGroup* s) {
    for (uint32_t first = 0; first < emu::LANES; first += 4) {
      uint32_t mask = s->taking_part & (0xFu << first);
      if (!mask) continue;
      T total = operand<T>(s, uint32_t(__builtin_ctz(mask)));
      for_lanes(mask & (mask - 1), [&](uint32_t lane) { total = combine(total, operand<T>(s, lane)); });
      for_lanes(mask, [&](uint32_t lane) { result<T>(s, lane) = total; });
    }
  });
}

}  // namespace detail

MLX_TX_REDUCTION(sum, sum, a + b)
MLX_TX_REDUCTION(product, product, a* b)
MLX_TX_REDUCTION(max, max, metal::max(a, b))
MLX_TX_REDUCTION(min, min, metal::min(a, b))
MLX_TX_REDUCTION(and, bit_and, a& b)
MLX_TX_REDUCTION(or, bit_or, a | b)
MLX_TX_REDUCTION(xor, bit_xor, a ^ b)
#undef MLX_TX_REDUCTION

inline bool simd_all(bool x, MLX_TX_SITE) {
  return detail::reduce(emu::Collective::all, x, {file, line}, [](bool a, bool b) { return a && b; });
}
inline bool simd_any(bool x, MLX_TX_SITE) {
  return detail::reduce(emu::Collective::any, x, {file, line}, [](bool a, bool b) { return a || b; });
}
inline bool quad_all(bool x, MLX_TX_SITE) {
  return detail::quad_reduce(x, {file, line}, [](bool a, bool b) { return a && b; });
}
inline bool quad_any(bool x, MLX_TX_SITE) {
  return detail::quad_reduce(x, {file, line}, [](bool a, bool b) { return a || b; });
}

struct simd_vote {
  using vote_t = uint64_t;
  vote_t lanes;
  explicit constexpr simd_vote(vote_t lanes = 0) : lanes(lanes) {}
  explicit constexpr operator vote_t() const { return lanes; }
  constexpr bool all() const { return lanes == 0xFFFFFFFFu; }
  constexpr bool any() const { return lanes != 0; }
};
inline simd_vote simd_ballot(bool x, MLX_TX_SITE) {
  return simd_vote(detail::collective<uint32_t>(emu::Collective::ballot, x, {file, line}, [](emu::SimdGroup* s) {
    uint32_t votes = 0;
    detail::for_lanes(s->taking_part,
                      [&](uint32_t lane) { votes |= uint32_t(detail::operand<bool>(s, lane)) << lane; });
    detail::for_lanes(s->taking_part, [&](uint32_t lane) { detail::result<uint32_t>(s, lane) = votes; });
  }));
}
inline simd_vote simd_active_threads_mask(MLX_TX_SITE) { return simd_ballot(true, file, line); }
inline bool simd_is_first(MLX_TX_SITE) {
  return detail::collective<bool>(emu::Collective::is_first, true, {file, line}, [](emu::SimdGroup* s) {
    uint32_t first = uint32_t(__builtin_ctz(s->taking_part));
    detail::for_lanes(s->taking_part, [&](uint32_t lane) { detail::result<bool>(s, lane) = lane == first; });
  });
}

template <class T>
T simd_prefix_inclusive_sum(T x, MLX_TX_SITE) {
  return detail::prefix(emu::Collective::prefix_inclusive, x, T(0), true, {file, line},
                        [](T a, T b) { return T(a + b); });
}
template <class T>
T simd_prefix_exclusive_sum(T x, MLX_TX_SITE) {
  return detail::prefix(emu::Collective::prefix_exclusive, x, T(0), false, {file, line},
                        [](T a, T b) { return T(a + b); });
}
template <class T>
T simd_prefix_inclusive_product(T x, MLX_TX_SITE) {
  return detail::prefix(emu::Collective::prefix_inclusive, x, T(1), true, {file, line},
                        [](T a, T b) { return T(a * b); });
}
template <class T>
T simd_prefix_exclusive_product(T x, MLX_TX_SITE) {
  return detail::prefix(emu::Collective::prefix_exclusive, x, T(1), false, {file, line},
                        [](T a, T b) { return T(a * b); });
}

template <class T>
T simd_shuffle(T x, ushort from, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::shuffle, x, from, {file, line});
}
template <class T>
T simd_shuffle_xor(T x, ushort mask, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::shuffle_xor, x, detail::lane() ^ mask, {file, line});
}
template <class T>
T simd_shuffle_down(T x, ushort delta, MLX_TX_SITE) {
  return detail::shift(emu::Collective::shuffle_down, x, int64_t(detail::lane()) + delta, {file, line});
}
template <class T>
T simd_shuffle_up(T x, ushort delta, MLX_TX_SITE) {
  return detail::shift(emu::Collective::shuffle_up, x, int64_t(detail::lane()) - delta, {file, line});
}
template <class T>
T simd_shuffle_rotate_down(T x, ushort delta, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::shuffle_rotate, x, (detail::lane() + delta) % emu::LANES, {file, line});
}
template <class T>
T simd_shuffle_rotate_up(T x, ushort delta, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::shuffle_rotate, x, (detail::lane() - delta) % emu::LANES, {file, line});
}
template <class T>
T simd_shuffle_and_fill_down(T x, T fill, ushort delta, MLX_TX_SITE) {
  uint32_t from = detail::lane() + delta;
  T moved = detail::shift(emu::Collective::shuffle_fill, x, from, {file, line});
  return from >= emu::LANES ? fill : moved;
}
template <class T>
T simd_shuffle_and_fill_up(T x, T fill, ushort delta, MLX_TX_SITE) {
  T moved = detail::shift(emu::Collective::shuffle_fill, x, int64_t(detail::lane()) - delta, {file, line});
  return detail::lane() < delta ? fill : moved;
}
template <class T>
T simd_broadcast(T x, ushort from, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::broadcast, x, from, {file, line});
}
template <class T>
T simd_broadcast_first(T x, MLX_TX_SITE) {
  return detail::collective<T>(emu::Collective::broadcast_first, x, {file, line}, [](emu::SimdGroup* s) {
    T value = detail::operand<T>(s, uint32_t(__builtin_ctz(s->taking_part)));
    detail::for_lanes(s->taking_part, [&](uint32_t lane) { detail::result<T>(s, lane) = value; });
  });
}

template <class T>
T quad_shuffle(T x, ushort from, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::quad, x, (detail::lane() & ~3u) + (from & 3u), {file, line});
}
template <class T>
T quad_shuffle_xor(T x, ushort mask, MLX_TX_SITE) {
  return detail::shuffle(emu::Collective::quad, x, (detail::lane() & ~3u) + ((detail::lane() ^ mask) & 3u),
                         {file, line});
}
template <class T>
T quad_shuffle_down(T x, ushort delta, MLX_TX_SITE) {
  uint32_t place = detail::lane() & 3u;
  return detail::shuffle(emu::Collective::quad, x, place + delta > 3 ? detail::lane() : detail::lane() + delta,
                         {file, line});
}
template <class T>
T quad_shuffle_up(T x, ushort delta, MLX_TX_SITE) {
  uint32_t place = detail::lane() & 3u;
  return detail::shuffle(emu::Collective::quad, x, place < delta ? detail::lane() : detail::lane() - delta,
                         {file, line});
}
template <class T>
T quad_broadcast(T x, ushort from, MLX_TX_SITE) {
  return quad_shuffle(x, from, file, line);
}

}  // namespace metal

#endif
