// <metal_simdgroup_matrix>: 8x8 matrices spread over the 32 lanes of a simdgroup, two neighbouring elements a lane.
#ifndef MLX_TX_MSL_MATRIX_H
#define MLX_TX_MSL_MATRIX_H

#include "simd.h"

namespace metal {

namespace detail {

// The element map that MLX's kernels rely on: lane l holds (row, column) and (row, column + 1).
inline uint32_t matrix_row(uint32_t lane) { return (lane >> 2 & 4) + (lane >> 1 & 3); }
inline uint32_t matrix_column(uint32_t lane) { return (lane >> 2 & 2) * 2 + (lane & 1) * 2; }

}  // namespace detail

template <class T, int Columns, int Rows = Columns>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup_matrix: 8x8 only");
  static_assert(detail::is_float<T>, "simdgroup_matrix: half, bfloat or float");
  vec<T, 2> elements;

  simdgroup_matrix() : elements(detail::poison<T>()) {}  // uninitialised: NaN, so that it shows
  explicit simdgroup_matrix(T diagonal) {
    uint32_t row = detail::matrix_row(detail::lane()), column = detail::matrix_column(detail::lane());
    elements = {row == column ? diagonal : T(0), row == column + 1 ? diagonal : T(0)};
  }
  vec<T, 2>& thread_elements() { return elements; }
  const vec<T, 2>& thread_elements() const { return elements; }
};

using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Columns, int Rows = Columns>
simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Columns, Rows> result;
  result.elements = vec<T, 2>(value);
  return result;
}

namespace detail {

// Meets without exchanging anything: loads and stores of matrices are operations of the whole simdgroup.
inline void meet_for_matrix(emu::Site site) {
  if (!emu::meet(emu::Collective::matrix, site)) return;
  emu::release(emu::current->simdgroup);
}

template <class T, class P>
P* matrix_element(P* p, ulong per_row, ulong2 origin, bool transposed, uint32_t column_offset) {
  uint32_t row = matrix_row(lane()), column = matrix_column(lane()) + column_offset;
  if (transposed) std::swap(row, column);
  return p + (origin.y + row) * per_row + origin.x + column;
}

}  // namespace detail

template <class T, class P>
void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const P* p, ulong per_row = 8, ulong2 origin = ulong2(0),
                    bool transposed = false, MLX_TX_SITE) {
  static_assert(std::is_same_v<T, std::remove_cv_t<P>>, "simdgroup_load: matrix and memory of one type");
  detail::meet_for_matrix({file, line});
  m.elements.x = *detail::matrix_element<T>(p, per_row, origin, transposed, 0);
  m.elements.y = *detail::matrix_element<T>(p, per_row, origin, transposed, 1);
}
template <class T, class P>
void simdgroup_store(simdgroup_matrix<T, 8, 8> m, P* p, ulong per_row = 8, ulong2 origin = ulong2(0),
                     bool transposed = false, MLX_TX_SITE) {
  static_assert(std::is_same_v<T, P>, "simdgroup_store: matrix and memory of one type");
  detail::meet_for_matrix({file, line});
  *detail::matrix_element<T>(p, per_row, origin, transposed, 0) = m.elements.x;
  *detail::matrix_element<T>(p, per_row, origin, transposed, 1) = m.elements.y;
}

// D = A x B + C in float, k ascending, fused: one of the orders that hardware may take.
template <class TD, class TA, class TB, class TC>
void simdgroup_multiply_accumulate(simdgroup_matrix<TD, 8, 8>& d, const simdgroup_matrix<TA, 8, 8>& a,
                                   const simdgroup_matrix<TB, 8, 8>& b, const simdgroup_matrix<TC, 8, 8>& c,
                                   MLX_TX_SITE) {
  emu::SimdGroup* s = emu::current->simdgroup;
  uint32_t at = detail::matrix_row(detail::lane()) * 8 + detail::matrix_column(detail::lane());
  for (uint32_t i = 0; i < 2; i++) {
    s->a[at + i] = float(a.elements[i]);
    s->b[at + i] = float(b.elements[i]);
    s->c[at + i] = float(c.elements[i]);
  }
  if (emu::meet(emu::Collective::matrix, {file, line})) {
    emu::multiply_accumulate(s, {file, line});
    emu::release(s);
  }
  d.elements = {TD(s->d[at]), TD(s->d[at + 1])};
}
template <class TD, class TA, class TB>
void simdgroup_multiply(simdgroup_matrix<TD, 8, 8>& d, const simdgroup_matrix<TA, 8, 8>& a,
                        const simdgroup_matrix<TB, 8, 8>& b, MLX_TX_SITE) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<TD, 8>(TD(0)), file, line);
}

}  // namespace metal

#endif
