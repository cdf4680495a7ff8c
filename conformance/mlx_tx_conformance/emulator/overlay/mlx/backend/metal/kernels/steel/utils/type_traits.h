// The traits MLX writes once for each address space, written once.
#ifndef MLX_TX_OVERLAY_TYPE_TRAITS_H
#define MLX_TX_OVERLAY_TYPE_TRAITS_H

#include <metal_stdlib>

namespace metal {
template <typename T>
struct is_empty : bool_constant<std::is_empty_v<T>> {};
template <typename T>
struct is_static : bool_constant<std::is_empty_v<std::remove_cv_t<T>>> {};
template <typename T>
struct pointer_element {};
template <typename T>
struct pointer_element<T*> {
  using type = std::remove_cv_t<T>;
};
template <typename T>
using pointer_element_t = typename pointer_element<std::remove_cv_t<T>>::type;
}  // namespace metal

#endif
