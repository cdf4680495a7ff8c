// <metal_type_traits>, numeric_limits and array.
#ifndef MLX_TX_MSL_TRAITS_H
#define MLX_TX_MSL_TRAITS_H

#include "half.h"

namespace metal {

using std::bool_constant, std::true_type, std::false_type, std::integral_constant;
using std::conditional, std::conditional_t, std::enable_if, std::enable_if_t;
using std::is_arithmetic_v, std::is_convertible, std::is_convertible_v, std::is_empty_v, std::is_integral,
    std::is_integral_v;
using std::is_pointer_v, std::is_const_v, std::is_void_v, std::is_enum_v;
using std::is_same, std::is_same_v, std::is_signed, std::is_signed_v, std::is_unsigned, std::is_unsigned_v;
using std::make_signed_t, std::make_unsigned_t, std::remove_const_t, std::remove_cv, std::remove_cv_t;
using std::remove_pointer_t, std::remove_reference_t, std::declval;
using size_t = ::size_t;
using ptrdiff_t = ::ptrdiff_t;

template <class T>
using remove_addrspace_t = T;  // there are no address spaces here
template <class... Conditions>
using _disjunction = std::disjunction<Conditions...>;
template <class... T>
using void_t = void;

template <class T>
struct is_floating_point : std::is_floating_point<T> {};
template <>
struct is_floating_point<half> : true_type {};
template <>
struct is_floating_point<bfloat> : true_type {};
template <class T>
constexpr bool is_floating_point_v = is_floating_point<T>::value;

template <class T>
struct numeric_limits : std::numeric_limits<T> {};

template <class T, uint16_t Max, uint16_t Min, uint16_t Infinity, uint16_t NotANumber, uint16_t Epsilon, int Digits>
struct limits_of_16_bits {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, has_infinity = true,
                        has_quiet_NaN = true;
  static constexpr int digits = Digits, radix = 2;
  static constexpr T max() { return T::from_bits(Max); }
  static constexpr T lowest() { return T::from_bits(Max | 0x8000); }
  static constexpr T min() { return T::from_bits(Min); }
  static constexpr T infinity() { return T::from_bits(Infinity); }
  static constexpr T quiet_NaN() { return T::from_bits(NotANumber); }
  static constexpr T epsilon() { return T::from_bits(Epsilon); }
  static constexpr T denorm_min() { return T::from_bits(1); }
};
template <>
struct numeric_limits<half> : limits_of_16_bits<half, 0x7BFF, 0x0400, 0x7C00, 0x7E00, 0x1400, 11> {};
template <>
struct numeric_limits<bfloat> : limits_of_16_bits<bfloat, 0x7F7F, 0x0080, 0x7F80, 0x7FC0, 0x3C00, 8> {};

template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
  constexpr size_t size() const { return N; }
};

template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T value) {
  return value;
}

}  // namespace metal

#endif
