// <metal_atomic>: relaxed atomics on 32-bit types, and on ulong what MSL has.
#ifndef MLX_TX_MSL_ATOMIC_H
#define MLX_TX_MSL_ATOMIC_H

#include "simd.h"

namespace metal {

enum memory_order { memory_order_relaxed, memory_order_seq_cst };
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device,
  thread_scope_system
};

template <class T>
struct atomic {
  static_assert(std::is_same_v<T, int> || std::is_same_v<T, uint> || std::is_same_v<T, bool> ||
                    std::is_same_v<T, float> || std::is_same_v<T, ulong>,
                "atomic<T>: int, uint, bool, float or ulong");
  using value_type = T;
  alignas(sizeof(T)) T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

namespace detail {

// bool lives in one byte; it is handled as the byte it is, without an atomic word around it.
template <class T>
using bits_of = conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T, class F>
T atomic_update(atomic<T>* object, T value, F) {
  static_assert(sizeof(T) >= 4, "no read-modify-write on atomic<bool>");
  using B = bits_of<T>;
  auto combine = +[](B old, B given) { return as_type<B>(F{}(as_type<T>(old), as_type<T>(given))); };
  auto* p = reinterpret_cast<B*>(const_cast<T*>(&object->value));
  if constexpr (sizeof(B) == 8)
    return as_type<T>(emu::atomic_update64(p, combine, as_type<B>(value)));
  else
    return as_type<T>(emu::atomic_update32(p, combine, as_type<B>(value)));
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return T(a + b);
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return T(a - b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return metal::max(a, b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return metal::min(a, b);
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return T(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return T(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return T(a ^ b);
  }
};
struct Replace {
  template <class T>
  T operator()(T, T b) const {
    return b;
  }
};

}  // namespace detail

#define MLX_TX_ATOMIC(name, F, condition)                                                      \
  template <class T>                                                                           \
  T atomic_##name##_explicit(atomic<T>* object, std::type_identity_t<T> value, memory_order) { \
    static_assert(condition, "atomic_" #name "_explicit has no form for this type");           \
    return detail::atomic_update(object, value, detail::F{});                                  \
  }
MLX_TX_ATOMIC(fetch_add, Add, sizeof(T) == 4)
MLX_TX_ATOMIC(fetch_sub, Subtract, sizeof(T) == 4)
MLX_TX_ATOMIC(fetch_max, Max, std::is_integral_v<T>)
MLX_TX_ATOMIC(fetch_min, Min, std::is_integral_v<T>)
MLX_TX_ATOMIC(fetch_and, And, std::is_integral_v<T>)
MLX_TX_ATOMIC(fetch_or, Or, std::is_integral_v<T>)
MLX_TX_ATOMIC(fetch_xor, Xor, std::is_integral_v<T>)
MLX_TX_ATOMIC(exchange, Replace, sizeof(T) == 4)
#undef MLX_TX_ATOMIC

template <class T>
T atomic_load_explicit(const atomic<T>* object, memory_order) {
  using B = detail::bits_of<T>;
  static_assert(sizeof(T) >= 4, "no load of atomic<bool> in the emulator");
  auto* p = reinterpret_cast<const B*>(&object->value);
  if constexpr (sizeof(B) == 8)
    return as_type<T>(emu::atomic_load64(p));
  else
    return as_type<T>(emu::atomic_load32(p));
}
template <class T>
void atomic_store_explicit(atomic<T>* object, std::type_identity_t<T> value, memory_order) {
  detail::atomic_update(object, value, detail::Replace{});
}
template <class T>
bool atomic_compare_exchange_weak_explicit(atomic<T>* object, T* expected, std::type_identity_t<T> desired,
                                           memory_order, memory_order) {
  static_assert(sizeof(T) == 4, "compare-exchange: 32-bit types");
  return emu::atomic_compare_exchange32(reinterpret_cast<uint32_t*>(&object->value),
                                        reinterpret_cast<uint32_t*>(expected), as_type<uint32_t>(desired));
}
inline void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {}

}  // namespace metal

#endif
