// vec<T, N>: components x, y, z, w or r, g, b, a, indexing, element-wise operators. Swizzles of several components are
// written v.swizzle<...>(): the driver rewrites v.xy to that before the compiler sees it.
#ifndef MLX_TX_MSL_VECTOR_H
#define MLX_TX_MSL_VECTOR_H

#include "traits.h"

namespace metal {

template <class T, int N>
struct vec;

namespace detail {

template <class T, int N, int... I>
struct swizzled;

template <class T, int N>
struct components;
template <class T>
struct alignas(2 * sizeof(T)) components<T, 2> {
  union {
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
  };
};
template <class T>
struct alignas(4 * sizeof(T)) components<T, 3> {
  union {
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
  };
};
template <class T>
struct alignas(4 * sizeof(T)) components<T, 4> {
  union {
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
  };
};

}  // namespace detail

template <class T, int N>
struct vec : detail::components<T, N> {
  using element_type = T;
  static constexpr int count = N;
  using base = detail::components<T, N>;

  vec() = default;
  constexpr vec(T value) {
    for (int i = 0; i < N; i++) (*this)[i] = value;
  }
  template <class... Parts>
    requires(sizeof...(Parts) >= 2)
  constexpr vec(Parts... parts) {
    int next = 0;
    (append(next, parts), ...);
    static_assert((width<Parts>() + ...) == N, "the components given must fill the vector");
  }
  template <class U>
    requires(!std::is_same_v<U, T>)
  constexpr explicit vec(const vec<U, N>& other) {
    for (int i = 0; i < N; i++) (*this)[i] = T(other[i]);
  }
  constexpr T& operator[](int i) { return (&this->x)[i]; }
  constexpr const T& operator[](int i) const { return (&this->x)[i]; }

  template <int... I>
  constexpr detail::swizzled<T, N, I...> swizzle() & {
    return *this;
  }
  template <int... I>
  constexpr vec<T, sizeof...(I)> swizzle() const& {
    return vec<T, sizeof...(I)>((*this)[I]...);
  }

 private:
  template <class Part>
  static constexpr int width() {
    if constexpr (requires { Part::count; })
      return Part::count;
    else
      return 1;
  }
  template <class Part>
  constexpr void append(int& next, const Part& part) {
    (*this)[next++] = T(part);
  }
  template <class U, int M>
  constexpr void append(int& next, const vec<U, M>& part) {
    for (int i = 0; i < M; i++) (*this)[next++] = T(part[i]);
  }
  template <class U, int M, int... I>
  constexpr void append(int& next, const detail::swizzled<U, M, I...>& part) {
    append(next, vec<U, sizeof...(I)>(part));
  }
};

namespace detail {

// Some components of a vector, in the order named: their values, and assignment to where they came from.
template <class T, int N, int... I>
struct swizzled : vec<T, sizeof...(I)> {
  vec<T, N>& of;
  constexpr swizzled(vec<T, N>& v) : vec<T, sizeof...(I)>(v[I]...), of(v) {}
  constexpr swizzled& operator=(const vec<T, sizeof...(I)>& value) {
    int next = 0;
    ((of[I] = value[next++]), ...);
    return *this;
  }
  constexpr swizzled& operator=(const swizzled& other) { return *this = vec<T, sizeof...(I)>(other); }
};

}  // namespace detail

// Components beside each other, aligned as one component: packed_float3 and so on.
template <class T, int N>
struct packed_vec {
  T elements[N];
  packed_vec() = default;
  constexpr packed_vec(const vec<T, N>& v) {
    for (int i = 0; i < N; i++) elements[i] = v[i];
  }
  constexpr operator vec<T, N>() const {
    vec<T, N> v;
    for (int i = 0; i < N; i++) v[i] = elements[i];
    return v;
  }
  constexpr T& operator[](int i) { return elements[i]; }
  constexpr const T& operator[](int i) const { return elements[i]; }
};

#define MLX_TX_BINARY(op, Result)                                                              \
  template <class T, int N>                                                                    \
  constexpr vec<Result, N> operator op(const vec<T, N>& a, const vec<T, N>& b) {               \
    vec<Result, N> r;                                                                          \
    for (int i = 0; i < N; i++) r[i] = Result(a[i] op b[i]);                                   \
    return r;                                                                                  \
  }                                                                                            \
  template <class T, int N>                                                                    \
  constexpr vec<Result, N> operator op(const vec<T, N>& a, const std::type_identity_t<T>& b) { \
    return a op vec<T, N>(b);                                                                  \
  }                                                                                            \
  template <class T, int N>                                                                    \
  constexpr vec<Result, N> operator op(const std::type_identity_t<T>& a, const vec<T, N>& b) { \
    return vec<T, N>(a) op b;                                                                  \
  }
#define MLX_TX_ASSIGNING(op)                                         \
  MLX_TX_BINARY(op, T)                                               \
  template <class T, int N, class U>                                 \
  constexpr vec<T, N>& operator op## = (vec<T, N> & a, const U& b) { \
    return a = a op b;                                               \
  }
MLX_TX_ASSIGNING(+)
MLX_TX_ASSIGNING(-)
MLX_TX_ASSIGNING(*)
MLX_TX_ASSIGNING(/)
MLX_TX_ASSIGNING(%)
MLX_TX_ASSIGNING(&)
MLX_TX_ASSIGNING(|)
MLX_TX_ASSIGNING(^)
MLX_TX_ASSIGNING(<<)
MLX_TX_ASSIGNING(>>)
MLX_TX_BINARY(<, bool)
MLX_TX_BINARY(>, bool)
MLX_TX_BINARY(<=, bool)
MLX_TX_BINARY(>=, bool)
MLX_TX_BINARY(==, bool)
MLX_TX_BINARY(!=, bool)
MLX_TX_BINARY(&&, bool)
MLX_TX_BINARY(||, bool)
#undef MLX_TX_ASSIGNING
#undef MLX_TX_BINARY

#define MLX_TX_UNARY(op, Result)                             \
  template <class T, int N>                                  \
  constexpr vec<Result, N> operator op(const vec<T, N>& a) { \
    vec<Result, N> r;                                        \
    for (int i = 0; i < N; i++) r[i] = Result(op a[i]);      \
    return r;                                                \
  }
MLX_TX_UNARY(-, T)
MLX_TX_UNARY(~, T)
MLX_TX_UNARY(!, bool)
#undef MLX_TX_UNARY

template <int N>
constexpr bool all(const vec<bool, N>& v) {
  bool result = true;
  for (int i = 0; i < N; i++) result = result && v[i];
  return result;
}
template <int N>
constexpr bool any(const vec<bool, N>& v) {
  bool result = false;
  for (int i = 0; i < N; i++) result = result || v[i];
  return result;
}

}  // namespace metal

#define MLX_TX_VECTORS(T)                        \
  using T##2 = metal::vec<T, 2>;                 \
  using T##3 = metal::vec<T, 3>;                 \
  using T##4 = metal::vec<T, 4>;                 \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>;
MLX_TX_VECTORS(bool)
MLX_TX_VECTORS(char)
MLX_TX_VECTORS(uchar)
MLX_TX_VECTORS(short)
MLX_TX_VECTORS(ushort)
MLX_TX_VECTORS(int)
MLX_TX_VECTORS(uint)
MLX_TX_VECTORS(long)
MLX_TX_VECTORS(ulong)
MLX_TX_VECTORS(half)
MLX_TX_VECTORS(bfloat)
MLX_TX_VECTORS(float)
#undef MLX_TX_VECTORS

namespace metal {
// Their declarations at global scope are also reached as metal::float4 and so on.
using ::as_type;
using ::float2, ::float3, ::float4, ::half2, ::half3, ::half4, ::bfloat2, ::bfloat3, ::bfloat4;
using ::half, ::bfloat;
using ::int2, ::int3, ::int4, ::uint2, ::uint3, ::uint4, ::short2, ::ushort2, ::bool2, ::bool4, ::ulong2, ::ulong3;
}  // namespace metal

#endif
