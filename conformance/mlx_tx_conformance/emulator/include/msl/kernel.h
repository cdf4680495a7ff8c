// How the generated entry function hands over buffers, and what `threadgroup` declarations become.
#ifndef MLX_TX_MSL_KERNEL_H
#define MLX_TX_MSL_KERNEL_H

#include "atomic.h"

namespace emu {

// A buffer as the pointer or the reference the kernel's parameter asks for.
struct PointerArgument {
  void* address;
  template <class T>
  operator T*() const {
    return static_cast<T*>(address);
  }
};
struct ReferenceArgument {
  void* address;
  template <class T>
  operator T&() const {
    return *static_cast<T*>(address);
  }
};

template <class T>
T attribute(uint32_t value) {
  return T(value);
}
template <class T>
T attribute(Uint3 value) {
  if constexpr (std::is_integral_v<T>)
    return T(value.x);
  else if constexpr (T::count == 2)
    return T(value.x, value.y);
  else
    return T(value.x, value.y, value.z);
}

template <class T>
T& threadgroup_variable(uint32_t id, const char* name, const char* file = __builtin_FILE(),
                        uint32_t line = __builtin_LINE()) {
  return *static_cast<T*>(threadgroup_memory(id, name, sizeof(T), alignof(T), {file, line}));
}

}  // namespace emu

#endif
