// complex_t without the constructors that differ by address space alone.
#ifndef MLX_TX_OVERLAY_COMPLEX_H
#define MLX_TX_OVERLAY_COMPLEX_H

#include <metal_stdlib>

#include "mlx/backend/metal/kernels/bf16.h"

template <typename T>
struct complex_t;
template <typename T>
constexpr bool is_complex_v = false;
template <typename T>
constexpr bool is_complex_v<complex_t<T>> = true;

template <typename T>
struct complex_t {
  using value_type = T;
  T real, imag;
  constexpr complex_t() : real(0), imag(0) {}
  constexpr complex_t(T re, T im) : real(re), imag(im) {}
  template <typename U>
    requires(!is_complex_v<U> && std::is_convertible_v<U, T>)
  constexpr complex_t(U re) : real(static_cast<T>(re)), imag(0) {}
  template <typename U>
    requires(!is_complex_v<U> && std::is_convertible_v<T, U>)
  constexpr operator U() const {
    return static_cast<U>(real);
  }
};
using complex64_t = complex_t<float>;

template <typename T>
constexpr complex_t<T> operator-(complex_t<T> x) {
  return {-x.real, -x.imag};
}
template <typename T>
constexpr complex_t<T> operator+(complex_t<T> a, complex_t<T> b) {
  return {a.real + b.real, a.imag + b.imag};
}
template <typename T>
constexpr complex_t<T> operator-(complex_t<T> a, complex_t<T> b) {
  return {a.real - b.real, a.imag - b.imag};
}
template <typename T>
constexpr complex_t<T> operator*(complex_t<T> a, complex_t<T> b) {
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}
template <typename T>
constexpr complex_t<T> operator/(complex_t<T> a, complex_t<T> b) {
  T norm = b.real * b.real + b.imag * b.imag;
  return {(a.real * b.real + a.imag * b.imag) / norm, (a.imag * b.real - a.real * b.imag) / norm};
}
template <typename T>
complex_t<T> operator%(complex_t<T> a, complex_t<T> b) {
  complex_t<T> times = a / b;
  return a - complex_t<T>(metal::floor(times.real), metal::floor(times.imag)) * b;
}
template <typename T>
constexpr bool operator==(complex_t<T> a, complex_t<T> b) {
  return a.real == b.real && a.imag == b.imag;
}
template <typename T>
constexpr bool operator!=(complex_t<T> a, complex_t<T> b) {
  return !(a == b);
}
template <typename T>
constexpr bool operator<(complex_t<T> a, complex_t<T> b) {
  return a.real < b.real || (a.real == b.real && a.imag < b.imag);
}
template <typename T>
constexpr bool operator>(complex_t<T> a, complex_t<T> b) {
  return b < a;
}
template <typename T>
constexpr bool operator<=(complex_t<T> a, complex_t<T> b) {
  return !(b < a);
}
template <typename T>
constexpr bool operator>=(complex_t<T> a, complex_t<T> b) {
  return !(a < b);
}

#endif
