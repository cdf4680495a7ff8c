// <metal_math>, <metal_common>, <metal_integer>, <metal_relational>, <metal_geometric>: element-wise on vectors.
// fast:: and precise:: are both computed by the C library: the emulator shows structure, not fast-math accuracy.
#ifndef MLX_TX_MSL_MATH_H
#define MLX_TX_MSL_MATH_H

#include "vector.h"

namespace metal {

namespace detail {

template <class T>
constexpr bool is_float = is_floating_point_v<T>;
template <class T>
concept Float = is_float<T>;
template <class T>
concept Scalar = std::is_arithmetic_v<T> || is_float<T>;
template <class T>
concept Integral = std::is_integral_v<T>;

template <class F, class T, int N, class... Rest>
constexpr auto each(F f, const vec<T, N>& first, const Rest&... rest) {
  vec<decltype(f(first[0], rest[0]...)), N> result;
  for (int i = 0; i < N; i++) result[i] = f(first[i], rest[i]...);
  return result;
}

inline void count_exponential() { emu::counters->exp++; }

}  // namespace detail

// Functions of one argument. float: the C library's; half and bfloat: through float, rounded once.
#define MLX_TX_FUNCTION(name, before, expression)                 \
  inline float name(float x) {                                    \
    before;                                                       \
    return expression;                                            \
  }                                                               \
  inline half name(half x) { return half(name(float(x))); }       \
  inline bfloat name(bfloat x) { return bfloat(name(float(x))); } \
  template <class T, int N>                                       \
  inline vec<T, N> name(const vec<T, N>& v) {                     \
    return detail::each([](T x) { return name(x); }, v);          \
  }
#define MLX_TX_FUNCTION_OF_TWO(name, expression)                                      \
  inline float name(float x, float y) { return expression; }                          \
  inline half name(half x, half y) { return half(name(float(x), float(y))); }         \
  inline bfloat name(bfloat x, bfloat y) { return bfloat(name(float(x), float(y))); } \
  template <class T, int N>                                                           \
  inline vec<T, N> name(const vec<T, N>& v, const vec<T, N>& w) {                     \
    return detail::each([](T x, T y) { return name(x, y); }, v, w);                   \
  }
#define MLX_TX_ALL_FUNCTIONS                                                         \
  MLX_TX_FUNCTION(exp, detail::count_exponential(), ::expf(x))                       \
  MLX_TX_FUNCTION(exp2, detail::count_exponential(), ::exp2f(x))                     \
  MLX_TX_FUNCTION(exp10, detail::count_exponential(), ::powf(10.0f, x))              \
  MLX_TX_FUNCTION(log, , ::logf(x))                                                  \
  MLX_TX_FUNCTION(log2, , ::log2f(x))                                                \
  MLX_TX_FUNCTION(log10, , ::log10f(x))                                              \
  MLX_TX_FUNCTION(sqrt, , __builtin_sqrtf(x))                                        \
  MLX_TX_FUNCTION(rsqrt, , 1.0f / __builtin_sqrtf(x))                                \
  MLX_TX_FUNCTION(sin, , ::sinf(x))                                                  \
  MLX_TX_FUNCTION(cos, , ::cosf(x))                                                  \
  MLX_TX_FUNCTION(tan, , ::tanf(x))                                                  \
  MLX_TX_FUNCTION(sinpi, , ::sinf(M_PI_F* x))                                        \
  MLX_TX_FUNCTION(cospi, , ::cosf(M_PI_F* x))                                        \
  MLX_TX_FUNCTION(asin, , ::asinf(x))                                                \
  MLX_TX_FUNCTION(acos, , ::acosf(x))                                                \
  MLX_TX_FUNCTION(atan, , ::atanf(x))                                                \
  MLX_TX_FUNCTION(sinh, , ::sinhf(x))                                                \
  MLX_TX_FUNCTION(cosh, , ::coshf(x))                                                \
  MLX_TX_FUNCTION(tanh, , ::tanhf(x))                                                \
  MLX_TX_FUNCTION(asinh, , ::asinhf(x))                                              \
  MLX_TX_FUNCTION(acosh, , ::acoshf(x))                                              \
  MLX_TX_FUNCTION(atanh, , ::atanhf(x))                                              \
  MLX_TX_FUNCTION(fabs, , __builtin_fabsf(x))                                        \
  MLX_TX_FUNCTION(floor, , __builtin_floorf(x))                                      \
  MLX_TX_FUNCTION(ceil, , __builtin_ceilf(x))                                        \
  MLX_TX_FUNCTION(rint, , __builtin_rintf(x))                                        \
  MLX_TX_FUNCTION(round, , __builtin_roundf(x))                                      \
  MLX_TX_FUNCTION(trunc, , __builtin_truncf(x))                                      \
  MLX_TX_FUNCTION(fract, , __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f)) \
  MLX_TX_FUNCTION_OF_TWO(pow, ::powf(x, y))                                          \
  MLX_TX_FUNCTION_OF_TWO(powr, ::powf(x, y))                                         \
  MLX_TX_FUNCTION_OF_TWO(fmod, ::fmodf(x, y))                                        \
  MLX_TX_FUNCTION_OF_TWO(atan2, ::atan2f(x, y))                                      \
  MLX_TX_FUNCTION_OF_TWO(divide, x / y)                                              \
  MLX_TX_FUNCTION_OF_TWO(fmax, __builtin_fmaxf(x, y))                                \
  MLX_TX_FUNCTION_OF_TWO(fmin, __builtin_fminf(x, y))                                \
  MLX_TX_FUNCTION_OF_TWO(copysign, __builtin_copysignf(x, y))                        \
  MLX_TX_FUNCTION_OF_TWO(fdim, ::fdimf(x, y))                                        \
  MLX_TX_FUNCTION_OF_TWO(nextafter, ::nextafterf(x, y))                              \
  inline float ldexp(float x, int k) { return ::ldexpf(x, k); }                      \
  inline half ldexp(half x, int k) { return half(::ldexpf(x, k)); }

MLX_TX_ALL_FUNCTIONS
namespace fast {
MLX_TX_ALL_FUNCTIONS
}
namespace precise {
MLX_TX_ALL_FUNCTIONS
}
#undef MLX_TX_ALL_FUNCTIONS
#undef MLX_TX_FUNCTION_OF_TWO
#undef MLX_TX_FUNCTION

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline half fma(half a, half b, half c) {
  return half(float(__builtin_fma(double(float(a)), double(float(b)), double(float(c)))));
}
inline bfloat fma(bfloat a, bfloat b, bfloat c) { return bfloat(__builtin_fmaf(a, b, c)); }
template <class T, int N>
inline vec<T, N> fma(const vec<T, N>& a, const vec<T, N>& b, const vec<T, N>& c) {
  return detail::each([](T x, T y, T z) { return fma(x, y, z); }, a, b, c);
}
template <class T>
inline T mad(T a, T b, T c) {
  return fma(a, b, c);
}

// ------------------------------------------------------------------------------------------------ comparisons of
// values

// One type for both operands, as in MSL: max(int, float) does not compile there. A NaN operand loses, as in fmax.
template <detail::Scalar T>
constexpr T max(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return a < b ? b : a;
  else
    return T(__builtin_fmaxf(float(a), float(b)));
}
template <detail::Scalar T>
constexpr T min(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return b < a ? b : a;
  else
    return T(__builtin_fminf(float(a), float(b)));
}
template <detail::Scalar T>
constexpr T clamp(T x, T low, T high) {
  return min(max(x, low), high);
}
template <detail::Scalar T>
constexpr T max3(T a, T b, T c) {
  return max(max(a, b), c);
}
template <detail::Scalar T>
constexpr T min3(T a, T b, T c) {
  return min(min(a, b), c);
}
template <class T>
constexpr T select(T if_false, T if_true, bool condition) {
  return condition ? if_true : if_false;
}
template <class T, int N>
constexpr vec<T, N> select(const vec<T, N>& if_false, const vec<T, N>& if_true, const vec<bool, N>& condition) {
  return detail::each([](T f, T t, bool c) { return c ? t : f; }, if_false, if_true, condition);
}
template <detail::Scalar T>
constexpr T abs(T x) {
  if constexpr (std::is_unsigned_v<T>)
    return x;
  else if constexpr (std::is_integral_v<T>)
    return x < 0 ? T(-x) : x;
  else
    return T(__builtin_fabsf(float(x)));
}
template <detail::Float T>
constexpr T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? x : T(0);
}
template <detail::Float T>
constexpr T saturate(T x) {
  return clamp(x, T(0), T(1));
}
template <detail::Float T>
constexpr T mix(T a, T b, T t) {
  return T(a + (b - a) * t);
}
template <detail::Float T>
constexpr T step(T edge, T x) {
  return x < edge ? T(0) : T(1);
}

#define MLX_TX_LIFT_TWO(name)                                        \
  template <class T, int N>                                          \
  constexpr vec<T, N> name(const vec<T, N>& a, const vec<T, N>& b) { \
    return detail::each([](T x, T y) { return name(x, y); }, a, b);  \
  }
#define MLX_TX_LIFT_ONE(name)                            \
  template <class T, int N>                              \
  constexpr vec<T, N> name(const vec<T, N>& a) {         \
    return detail::each([](T x) { return name(x); }, a); \
  }
MLX_TX_LIFT_TWO(max)
MLX_TX_LIFT_TWO(min)
MLX_TX_LIFT_ONE(abs)
MLX_TX_LIFT_ONE(sign)
template <class T, int N>
constexpr vec<T, N> clamp(const vec<T, N>& x, const vec<T, N>& low, const vec<T, N>& high) {
  return min(max(x, low), high);
}

template <detail::Float T>
constexpr bool isnan(T x) {
  return __builtin_isnan(float(x));
}
template <detail::Float T>
constexpr bool isinf(T x) {
  return __builtin_isinf(float(x));
}
template <detail::Float T>
constexpr bool isfinite(T x) {
  return __builtin_isfinite(float(x));
}
template <detail::Float T>
constexpr bool isnormal(T x) {
  return __builtin_isnormal(float(x));
}
template <detail::Float T>
constexpr bool signbit(T x) {
  return __builtin_signbit(float(x));
}
MLX_TX_LIFT_ONE(isnan)
MLX_TX_LIFT_ONE(isinf)
MLX_TX_LIFT_ONE(isfinite)
#undef MLX_TX_LIFT_ONE
#undef MLX_TX_LIFT_TWO

// ------------------------------------------------------------------------------------------------ integers

template <detail::Integral T>
constexpr T popcount(T x) {
  return T(std::popcount(std::make_unsigned_t<T>(x)));
}
template <detail::Integral T>
constexpr T clz(T x) {
  return T(std::countl_zero(std::make_unsigned_t<T>(x)));
}
template <detail::Integral T>
constexpr T ctz(T x) {
  return T(std::countr_zero(std::make_unsigned_t<T>(x)));
}
template <detail::Integral T>
constexpr T rotate(T x, T by) {
  return T(std::rotl(std::make_unsigned_t<T>(x), int(by)));
}
template <detail::Integral T>
constexpr std::make_unsigned_t<T> absdiff(T a, T b) {
  using U = std::make_unsigned_t<T>;
  return a < b ? U(U(b) - U(a)) : U(U(a) - U(b));
}
constexpr int mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }
constexpr uint mulhi(uint a, uint b) { return uint((uint64_t(a) * b) >> 32); }
template <detail::Integral T>
constexpr T extract_bits(T x, uint offset, uint bits) {
  constexpr uint width = sizeof(T) * 8;
  if (bits == 0) return T(0);
  return T(T(std::make_unsigned_t<T>(x) << (width - offset - bits)) >> (width - bits));
}

// ------------------------------------------------------------------------------------------------ geometry

template <class T, int N>
constexpr T dot(const vec<T, N>& a, const vec<T, N>& b) {
  T sum = T(a[0] * b[0]);
  for (int i = 1; i < N; i++) sum = T(sum + a[i] * b[i]);
  return sum;
}
template <class T, int N>
inline T length_squared(const vec<T, N>& v) {
  return dot(v, v);
}
template <class T, int N>
inline T length(const vec<T, N>& v) {
  return sqrt(dot(v, v));
}
template <class T, int N>
inline T distance(const vec<T, N>& a, const vec<T, N>& b) {
  return length(a - b);
}
template <class T, int N>
inline vec<T, N> normalize(const vec<T, N>& v) {
  return v * rsqrt(dot(v, v));
}

}  // namespace metal

#endif
