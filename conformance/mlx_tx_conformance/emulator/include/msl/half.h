// half and bfloat: stored in 16 bits, computed in float, rounded to nearest even after every operation.
// Rounding a float sum, product or quotient of halves gives the correctly rounded half (24 >= 2 * 11 + 2 bits).
#ifndef MLX_TX_MSL_HALF_H
#define MLX_TX_MSL_HALF_H

#include "language.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace emu {

struct HalfFormat {
  static constexpr bool from_float_is_implicit = true;

  static constexpr uint16_t round(float value) {
#if defined(__F16C__)
    if (!std::is_constant_evaluated()) return uint16_t(_cvtss_sh(value, 0));
#elif defined(__aarch64__)
    if (!std::is_constant_evaluated()) return std::bit_cast<uint16_t>(static_cast<__fp16>(value));
#endif
    uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return uint16_t(sign | 0x7E00 | (magnitude >> 13 & 0x1FF));
    if (magnitude >= 0x477FF000) return uint16_t(sign | 0x7C00);  // rounds to 65536 or more
    if (magnitude < 0x33000000) return uint16_t(sign);            // below half the smallest denormal
    uint32_t shift = 13, fraction = magnitude - 0x38000000;
    if (magnitude < 0x38800000) {  // denormal: the leading one becomes part of the fraction
      shift = 126 - (magnitude >> 23);
      fraction = (magnitude & 0x7FFFFF) | 0x800000;
    }
    uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);
    return uint16_t(sign | (kept + (rest > tie || (rest == tie && (kept & 1)))));
  }

  static constexpr float widen(uint16_t bits) {
#if defined(__F16C__)
    if (!std::is_constant_evaluated()) return _cvtsh_ss(bits);
#elif defined(__aarch64__)
    if (!std::is_constant_evaluated()) return float(std::bit_cast<__fp16>(bits));
#endif
    uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3FF;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(float(fraction) * 0x1p-24f));
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  }
};

struct BfloatFormat {
  static constexpr bool from_float_is_implicit = false;

  static constexpr uint16_t round(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return uint16_t(bits >> 16 | 0x40);  // keep NaN a NaN
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
  static constexpr float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// An integer as float for a second rounding: to odd, so that rounding twice equals rounding once.
template <class I>
constexpr float float_for_rounding(I value) {
  float nearest = float(value);
  if constexpr (sizeof(I) < 4) {
    return nearest;
  } else {
    if (nearest >= 0x1p63f || nearest <= -0x1p63f) return nearest;
    int64_t back = int64_t(nearest);
    if (back == int64_t(value) || value == I(0)) return nearest;
    uint32_t bits = std::bit_cast<uint32_t>(nearest);
    bool above = (back > int64_t(value)) == (nearest > 0);  // away from zero
    if (bits & 1) return nearest;
    return std::bit_cast<float>(above ? bits - 1 : bits + 1);
  }
}

template <class T>
concept Integer = std::is_integral_v<T> || std::is_enum_v<T>;

template <class Format>
struct Float16 {
  uint16_t bits;

  Float16() = default;
  constexpr explicit(!Format::from_float_is_implicit) Float16(float value) : bits(Format::round(value)) {}
  template <Integer I>
  constexpr Float16(I value) : bits(Format::round(float_for_rounding(value))) {}
  template <class D>
    requires std::is_same_v<D, double>
  Float16(D) = delete;  // MSL has no double
  constexpr operator float() const { return Format::widen(bits); }

  static constexpr Float16 from_bits(uint16_t bits) {
    Float16 result(0);
    result.bits = bits;
    return result;
  }

  constexpr Float16 operator-() const { return from_bits(bits ^ 0x8000); }
  constexpr Float16 operator+() const { return *this; }
  constexpr Float16& operator++() { return *this = *this + Float16(1); }

// Both operands of one 16-bit type, or one an integer: a 16-bit result. One a float: a float result.
#define MLX_TX_ARITHMETIC(op)                                                                          \
  friend constexpr Float16 operator op(Float16 a, Float16 b) { return Float16(float(a) op float(b)); } \
  friend constexpr float operator op(Float16 a, float b) { return float(a) op b; }                     \
  friend constexpr float operator op(float a, Float16 b) { return a op float(b); }                     \
  template <Integer I>                                                                                 \
  friend constexpr Float16 operator op(Float16 a, I b) {                                               \
    return a op Float16(b);                                                                            \
  }                                                                                                    \
  template <Integer I>                                                                                 \
  friend constexpr Float16 operator op(I a, Float16 b) {                                               \
    return Float16(a) op b;                                                                            \
  }                                                                                                    \
  template <class T>                                                                                   \
  constexpr Float16& operator op## = (T b) {                                                           \
    return *this = Float16(float(*this op b));                                                         \
  }
  MLX_TX_ARITHMETIC(+)
  MLX_TX_ARITHMETIC(-)
  MLX_TX_ARITHMETIC(*)
  MLX_TX_ARITHMETIC(/)
#undef MLX_TX_ARITHMETIC

#define MLX_TX_COMPARISON(op)                                                              \
  friend constexpr bool operator op(Float16 a, Float16 b) { return float(a) op float(b); } \
  friend constexpr bool operator op(Float16 a, float b) { return float(a) op b; }          \
  friend constexpr bool operator op(float a, Float16 b) { return a op float(b); }          \
  template <Integer I>                                                                     \
  friend constexpr bool operator op(Float16 a, I b) {                                      \
    return a op Float16(b);                                                                \
  }                                                                                        \
  template <Integer I>                                                                     \
  friend constexpr bool operator op(I a, Float16 b) {                                      \
    return Float16(a) op b;                                                                \
  }
  MLX_TX_COMPARISON(<)
  MLX_TX_COMPARISON(>)
  MLX_TX_COMPARISON(<=)
  MLX_TX_COMPARISON(>=)
  MLX_TX_COMPARISON(==)
  MLX_TX_COMPARISON(!=)
#undef MLX_TX_COMPARISON
};

// half with bfloat: no such operator in MSL.
#define MLX_TX_NOT_MIXED(op)                                             \
  void operator op(Float16<HalfFormat>, Float16<BfloatFormat>) = delete; \
  void operator op(Float16<BfloatFormat>, Float16<HalfFormat>) = delete;
MLX_TX_NOT_MIXED(+)
MLX_TX_NOT_MIXED(-)
MLX_TX_NOT_MIXED(*)
MLX_TX_NOT_MIXED(/)
#undef MLX_TX_NOT_MIXED

}  // namespace emu

using half = emu::Float16<emu::HalfFormat>;
using bfloat = emu::Float16<emu::BfloatFormat>;

#endif
