// Declarations of the Metal Shading Language for a type check with plain clang: nothing here has a body that
// matters, nothing is ever run. Address spaces are numbered attributes; `thread` is clang's default space.
// Only names that MLX's own kernels use are declared, so any other is an error ("undeclared").
#ifndef MLX_TX_METAL_DECLARATIONS_H
#define MLX_TX_METAL_DECLARATIONS_H

#define __METAL__ 1
#define __METAL_VERSION__ 320
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define kernel
#define coherent(scope)
#define METAL_FUNC inline
// Constants of float that no bfloat equals: clang is silent about conversions of constants that lose nothing.
#define INFINITY 1.00000012f
#define NAN 1.00000012f
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef _Float16 half;
typedef __bf16 bfloat;

// The check's own marks. A call of the first is put behind every threadgroup variable: its deprecation is reported
// with the bytes that this instance gives the variable.
namespace strict_check {
template <size_t bytes, int line, int number>
[[deprecated]] void threadgroup_bytes();

template <class V>
struct components {
  static constexpr int count = 1;
};
template <class T, int N>
struct components<T __attribute__((ext_vector_type(N)))> {
  static constexpr int count = N;
};

// What `float4(a, b, c, d)` is rewritten to: clang has no such constructor for its vectors.
template <class V, class... A>
V make_vector(A...) {
  static_assert(
      sizeof...(A) == 1 || (components<A>::count + ...) == components<V>::count,
      "a vector needs one component for each of its places");
  return V{};
}
} // namespace strict_check

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
} // namespace metal

typedef metal::vec<float, 2> float2;
typedef metal::vec<float, 4> float4;
typedef metal::vec<int, 2> int2;
typedef metal::vec<int, 4> int4;
typedef metal::vec<uint, 2> uint2;
typedef metal::vec<uint, 3> uint3;
typedef metal::vec<uint, 4> uint4;
typedef metal::vec<short, 2> short2;
typedef metal::vec<ulong, 2> ulong2;
typedef metal::vec<ulong, 3> ulong3;
typedef metal::vec<uchar, 4> uchar4;
typedef metal::vec<bool, 4> bool4;

namespace metal {

// Type traits.
template <class T, T v>
struct integral_constant {
  static constexpr constant T value = v;
  typedef T value_type;
  constexpr operator T() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <class A, class B>
constexpr constant bool is_same_v = __is_same(A, B);
template <class A, class B>
struct is_same : bool_constant<__is_same(A, B)> {};
template <class T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <class T>
constexpr constant bool is_integral_v = __is_integral(T);
template <class T>
constexpr constant bool is_floating_point_v =
    __is_same(T, float) || __is_same(T, half) || __is_same(T, bfloat);
template <class T>
constexpr constant bool is_signed_v = __is_signed(T);
template <class T>
constexpr constant bool is_unsigned_v = __is_unsigned(T);
template <class A, class B>
constexpr constant bool is_convertible_v = __is_convertible(A, B);

template <bool b, class T, class F>
struct choose {
  typedef T type;
};
template <class T, class F>
struct choose<false, T, F> {
  typedef F type;
};
template <bool b, class T, class F>
using conditional_t = typename choose<b, T, F>::type;
template <bool b, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  typedef T type;
};
template <bool b, class T = void>
using enable_if_t = typename enable_if<b, T>::type;
template <class T>
using remove_cv_t = __remove_cv(T);
template <class T>
struct without_space {
  typedef T type;
};
template <class T>
struct without_space<device T> {
  typedef T type;
};
template <class T>
struct without_space<constant T> {
  typedef T type;
};
template <class T>
struct without_space<threadgroup T> {
  typedef T type;
};
template <class T>
using remove_addrspace_t = typename without_space<T>::type;

template <class T>
struct numeric_limits {
  static constexpr T infinity() { return T(INFINITY); }
  static constexpr T quiet_NaN() { return T(INFINITY); }
  static constexpr T max() { return T(INFINITY); }
  static constexpr T min() { return T(INFINITY); }
};

template <class T, size_t N>
struct array {
  T elements[N];
  constexpr T& operator[](size_t i) { return elements[i]; }
  constexpr const T& operator[](size_t i) const { return elements[i]; }
};

template <class T>
struct uniform {
  T value;
  uniform() = default;
  uniform(T v) : value(v) {}
  operator T() const { return value; }
};
template <class T>
uniform<T> make_uniform(T);

// Mathematics. Overloads, not templates: operands of two types must be ambiguous here as they are in MSL.
#define MSL_UNARY_ON(name, T) T name(T);
#define MSL_BINARY_ON(name, T) T name(T, T);
#define MSL_TERNARY_ON(name, T) T name(T, T, T);
#define MSL_TEST_ON(name, T) bool name(T);
#define MSL_FLOATS(form, name) form(name, float) form(name, half) form(name, bfloat)
#define MSL_FLOAT_VECTORS(form, name) \
  form(name, float2) form(name, float4) \
  form(name, vec3f) form(name, vec2h) form(name, vec4h)
#define MSL_INTEGERS(form, name)                                             \
  form(name, char) form(name, int8_t) form(name, uchar) form(name, short)    \
  form(name, ushort) form(name, int) form(name, uint) form(name, long)       \
  form(name, ulong) form(name, int2) form(name, int4) form(name, uint2)      \
  form(name, uint3) form(name, uint4) form(name, short2)
typedef vec<float, 3> vec3f;
typedef vec<half, 2> vec2h;
typedef vec<half, 4> vec4h;

#define MSL_UNARY(name) MSL_FLOATS(MSL_UNARY_ON, name) MSL_FLOAT_VECTORS(MSL_UNARY_ON, name)
#define MSL_BINARY(name) MSL_FLOATS(MSL_BINARY_ON, name) MSL_FLOAT_VECTORS(MSL_BINARY_ON, name)
#define MSL_TERNARY(name) MSL_FLOATS(MSL_TERNARY_ON, name) MSL_FLOAT_VECTORS(MSL_TERNARY_ON, name)

MSL_UNARY(acos) MSL_UNARY(acosh) MSL_UNARY(asin) MSL_UNARY(asinh) MSL_UNARY(atan) MSL_UNARY(atanh)
MSL_UNARY(ceil) MSL_UNARY(cos) MSL_UNARY(cosh) MSL_UNARY(exp) MSL_UNARY(exp2) MSL_UNARY(fabs)
MSL_UNARY(floor) MSL_UNARY(log) MSL_UNARY(log10) MSL_UNARY(log2) MSL_UNARY(rint) MSL_UNARY(round)
MSL_UNARY(rsqrt) MSL_UNARY(sin) MSL_UNARY(sinh) MSL_UNARY(sqrt) MSL_UNARY(tan) MSL_UNARY(tanh)
MSL_UNARY(abs) MSL_INTEGERS(MSL_UNARY_ON, abs)
MSL_UNARY(cospi) MSL_UNARY(sinpi) MSL_UNARY(tanpi) MSL_UNARY(exp10) MSL_UNARY(trunc) MSL_UNARY(fract)
MSL_BINARY(atan2) MSL_BINARY(copysign) MSL_BINARY(fmax) MSL_BINARY(fmin) MSL_BINARY(fmod) MSL_BINARY(pow)
MSL_BINARY(divide) MSL_BINARY(fdim) MSL_BINARY(nextafter) MSL_BINARY(powr)
MSL_BINARY(max) MSL_INTEGERS(MSL_BINARY_ON, max)
MSL_BINARY(min) MSL_INTEGERS(MSL_BINARY_ON, min)
// Where two operands of three agree, overloading would convert the third in silence.
#define MSL_ONE_TYPE(name)                                                                                \
  template <class A, class B, class C, class = enable_if_t<!(__is_same(A, B) && __is_same(B, C))>>        \
  void name(A, B, C) = delete;
MSL_ONE_TYPE(fma) MSL_ONE_TYPE(clamp)
MSL_TERNARY(fma) MSL_TERNARY(fmax3) MSL_TERNARY(fmin3) MSL_TERNARY(fmedian3)
MSL_TERNARY(clamp) MSL_INTEGERS(MSL_TERNARY_ON, clamp)
MSL_TERNARY(max3) MSL_INTEGERS(MSL_TERNARY_ON, max3)
MSL_TERNARY(min3) MSL_INTEGERS(MSL_TERNARY_ON, min3)
MSL_TERNARY(median3) MSL_INTEGERS(MSL_TERNARY_ON, median3)
MSL_FLOATS(MSL_TEST_ON, isnan) MSL_FLOATS(MSL_TEST_ON, isinf)
MSL_FLOATS(MSL_TEST_ON, isfinite) MSL_FLOATS(MSL_TEST_ON, signbit)
float ldexp(float, int);
half ldexp(half, int);
bfloat ldexp(bfloat, int);
float frexp(float, thread int&);
float dot(float2, float2);
float dot(vec3f, vec3f);
float dot(float4, float4);
half dot(vec2h, vec2h);
half dot(vec4h, vec4h);
template <class T>
T select(T if_false, T if_true, bool condition);
template <class T, int N>
vec<T, N> select(vec<T, N> if_false, vec<T, N> if_true, vec<bool, N> condition);

// fast:: and precise:: are for float; MLX adds bfloat, which it computes in float.
#define MSL_VARIANT(name) float name(float); bfloat name(bfloat);
#define MSL_VARIANTS                                                                                     \
  MSL_VARIANT(acos) MSL_VARIANT(acosh) MSL_VARIANT(asin) MSL_VARIANT(asinh) MSL_VARIANT(atan)            \
  MSL_VARIANT(atanh) MSL_VARIANT(ceil) MSL_VARIANT(cos) MSL_VARIANT(cosh) MSL_VARIANT(exp)               \
  MSL_VARIANT(exp2) MSL_VARIANT(fabs) MSL_VARIANT(floor) MSL_VARIANT(log) MSL_VARIANT(log10)             \
  MSL_VARIANT(log2) MSL_VARIANT(rint) MSL_VARIANT(round) MSL_VARIANT(rsqrt) MSL_VARIANT(sin)             \
  MSL_VARIANT(sinh) MSL_VARIANT(sqrt) MSL_VARIANT(tan) MSL_VARIANT(tanh) MSL_VARIANT(exp10)              \
  float pow(float, float); bfloat pow(bfloat, bfloat); float divide(float, float);                       \
  float fmax(float, float); float fmin(float, float); float atan2(float, float);
namespace fast {
MSL_VARIANTS
}
namespace precise {
MSL_VARIANTS
}

// Barriers, reductions and shuffles.
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
enum memory_order { memory_order_relaxed, memory_order_seq_cst };
enum thread_scope { thread_scope_system };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
void atomic_thread_fence(mem_flags, memory_order, thread_scope);

template <class T>
struct travels {
  static constexpr bool value = !__is_same(T, bool) && sizeof(T) <= 16 &&
      !__is_same(T, long) && !__is_same(T, ulong) && !__is_pointer(T);
};
#define MSL_TRAVELLER "simd functions take 8- to 32-bit numbers: cast, or use simd_any and simd_all for bool"
#define MSL_REDUCTION(name)                          \
  template <class T>                                 \
  T name(T x) {                                      \
    static_assert(travels<T>::value, MSL_TRAVELLER); \
    return x;                                        \
  }
#define MSL_SHUFFLE(name)                            \
  template <class T>                                 \
  T name(T x, ushort) {                              \
    static_assert(travels<T>::value, MSL_TRAVELLER); \
    return x;                                        \
  }
MSL_REDUCTION(simd_sum) MSL_REDUCTION(simd_max) MSL_REDUCTION(simd_min) MSL_REDUCTION(simd_product)
MSL_REDUCTION(simd_xor) MSL_REDUCTION(quad_sum)
MSL_REDUCTION(simd_prefix_inclusive_sum) MSL_REDUCTION(simd_prefix_exclusive_sum)
MSL_REDUCTION(simd_prefix_inclusive_product) MSL_REDUCTION(simd_prefix_exclusive_product)
MSL_SHUFFLE(simd_shuffle) MSL_SHUFFLE(simd_shuffle_xor) MSL_SHUFFLE(simd_shuffle_up)
MSL_SHUFFLE(simd_shuffle_down) MSL_SHUFFLE(simd_broadcast)
MSL_SHUFFLE(simd_shuffle_rotate_up) MSL_SHUFFLE(simd_shuffle_rotate_down)
template <class T>
T simd_shuffle_and_fill_up(T x, T filling, ushort delta);
template <class T>
T simd_shuffle_and_fill_down(T x, T filling, ushort delta);
bool simd_all(bool);
bool simd_any(bool);

// Simdgroup matrices: 8 x 8, two elements a thread.
template <class T, int columns, int rows>
struct simdgroup_matrix {
  static_assert(columns == 8 && rows == 8, "simdgroup matrices are 8 x 8");
  static_assert(is_floating_point_v<T>, "simdgroup matrices hold float, half or bfloat");
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  vec<T, 2>& thread_elements() { return elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
template <class T, int columns, int rows = columns>
simdgroup_matrix<T, columns, rows> make_filled_simdgroup_matrix(T);
#define MSL_MATRIX_MOVES(space)                                                                              \
  template <class T>                                                                                         \
  void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, const space T*, ulong elements_per_row = 8,         \
      ulong2 origin = ulong2{}, bool transpose = false);                                                     \
  template <class T>                                                                                         \
  void simdgroup_store(thread const simdgroup_matrix<T, 8, 8>&, space T*, ulong elements_per_row = 8,        \
      ulong2 origin = ulong2{}, bool transpose = false);
MSL_MATRIX_MOVES(device)
MSL_MATRIX_MOVES(threadgroup)
template <class A, class B>
constexpr constant bool multiply =
    !(__is_same(A, half) && __is_same(B, bfloat)) && !(__is_same(A, bfloat) && __is_same(B, half));
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d, thread const simdgroup_matrix<A, 8, 8>&,
    thread const simdgroup_matrix<B, 8, 8>&, thread const simdgroup_matrix<C, 8, 8>&) {
  static_assert(multiply<A, B>, "simdgroup matrices of half and bfloat do not mix");
  static_assert(is_same_v<D, C>, "the accumulator has the type of the result");
  static_assert(!is_same_v<D, bfloat>, "no kernel MLX ships accumulates in bfloat");
}
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>&, thread const simdgroup_matrix<A, 8, 8>&,
    thread const simdgroup_matrix<B, 8, 8>&) {
  static_assert(multiply<A, B>, "simdgroup matrices of half and bfloat do not mix");
}

// Atomics, on device and threadgroup memory.
template <class T>
struct atomic {
  static_assert(sizeof(T) >= 4 && !__is_same(T, half) && !__is_same(T, bfloat),
      "atomics hold int, uint, ulong or float");
  T value;
};
#define MSL_ATOMICS(space)                                                                            \
  template <class T> T atomic_load_explicit(const volatile space atomic<T>*, memory_order);           \
  template <class T, class U> void atomic_store_explicit(volatile space atomic<T>*, U, memory_order); \
  template <class T, class U> T atomic_fetch_add_explicit(volatile space atomic<T>*, U, memory_order); \
  template <class T, class U> T atomic_fetch_and_explicit(volatile space atomic<T>*, U, memory_order); \
  template <class T, class U> T atomic_fetch_or_explicit(volatile space atomic<T>*, U, memory_order);  \
  template <class T, class U> T atomic_fetch_max_explicit(volatile space atomic<T>*, U, memory_order); \
  template <class T, class U> T atomic_fetch_min_explicit(volatile space atomic<T>*, U, memory_order); \
  template <class T, class U> bool atomic_compare_exchange_weak_explicit(volatile space atomic<T>*,    \
      thread T*, U, memory_order, memory_order);
MSL_ATOMICS(device)
MSL_ATOMICS(threadgroup)

} // namespace metal

template <class To, class From>
To as_type(From) {
  static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
  return To{};
}

#endif
