// What MLX puts before every kernel (its utils.h and what that includes), as declarations for the type check.
#ifndef MLX_TX_UTILS_DECLARATIONS_H
#define MLX_TX_UTILS_DECLARATIONS_H
#include "metal_declarations.h"

using namespace metal;

typedef bfloat bfloat16_t;
typedef half float16_t;
#define MTL_CONST constant
#define MLX_MTL_PRAGMA_UNROLL _Pragma("clang loop unroll(full)")
#define instantiate_kernel(name, func, ...) template decltype(func<__VA_ARGS__>) func<__VA_ARGS__>;

constexpr constant int MAX_REDUCE_SPECIALIZED_DIMS = 4, REDUCE_N_READS = 4, REDUCE_N_WRITES = 4, SOFTMAX_N_READS = 4,
                       RMS_N_READS = 4, RMS_LOOPED_LIMIT = 4096, CROSS_ENTROPY_N_READS = 4;

template <class T>
struct complex_t {
  T real, imag;
  complex_t() = default;
  constexpr complex_t(T re, T im) : real(re), imag(im) {}
};
typedef complex_t<float> complex64_t;

uint16_t bfloat16_to_uint16(bfloat16_t);
bfloat16_t uint16_to_bfloat16(uint16_t);

template <class U>
struct WorkPerThread {
  static constexpr constant int n = 8 / sizeof(U);
};

template <class U>
struct Limits {
  static constexpr constant U max = U(INFINITY), min = U(INFINITY), finite_max = U(INFINITY), finite_min = U(INFINITY);
};

template <class I = int64_t>
I elem_to_loc(I, constant const int*, constant const int64_t*, int);
template <class I = int64_t>
I elem_to_loc(uint3, constant const int*, constant const int64_t*, int);
template <class I = int64_t>
I elem_to_loc_1(uint, constant const int64_t&);
template <class I = int64_t>
I elem_to_loc_2(uint2, constant const int64_t*);
template <class I = int64_t>
I elem_to_loc_3(uint3, constant const int64_t*);
template <class I = int64_t>
vec<I, 2> elem_to_loc_2_nd(uint3, constant const int*, constant const int64_t*, constant const int64_t*, int);
template <class I = int64_t>
vec<I, 3> elem_to_loc_3_nd(
    uint3, constant const int*, constant const int64_t*, constant const int64_t*, constant const int64_t*, int);
template <int dims, class I = size_t, bool general = true>
struct LoopedElemToLoc {
  LoopedElemToLoc(int);
  void next(const constant int*, const constant int64_t*);
  void next(int, const constant int*, const constant int64_t*);
  I location();
};

template <class T, class U>
T ceildiv(T n, U m) {
  return (n + m - 1) / m;
}
float log1p(float);
bfloat16_t log1p(bfloat16_t);
float hypot(float, float);
template <class U, class T>
U cast_to(T x) {
  return static_cast<U>(x);
}
template <bool condition, class T, class U>
struct ConditionalType {
  typedef U type;
};
template <class T, class U>
struct ConditionalType<true, T, U> {
  typedef T type;
};
template <int rows_per_block>
bool schedule_row_tile(
    const device int32_t*, int, int, int, uint, thread int&, thread int&, thread short&);

// The shuffles that Metal lacks for 64-bit and boolean values.
#define MLX_SHUFFLE_ON(T)               \
  T simd_shuffle_down(T, uint16_t);     \
  T simd_shuffle_up(T, uint16_t);       \
  T simd_shuffle(T, uint16_t);          \
  T simd_shuffle_and_fill_up(T, T, uint16_t);
MLX_SHUFFLE_ON(uint64_t)
MLX_SHUFFLE_ON(int64_t)
MLX_SHUFFLE_ON(bool)
MLX_SHUFFLE_ON(complex64_t)

#endif
