// Operations that kernels call and hooks must not see into: matrix multiply-accumulate and atomics.
#include <cmath>

#include "runtime.h"

namespace emu {

void multiply_accumulate(SimdGroup* s, Site site) {
  if (s->taking_part != ~0u)
    fail({.kind = Kind::divergence, .site = site}, "a simdgroup_matrix operation with lanes %08x of 32 only",
         s->taking_part);
  for (int r = 0; r < 8; r++) {
    float row[8];
    for (int c = 0; c < 8; c++) row[c] = s->c[r * 8 + c];
    for (int k = 0; k < 8; k++)
      for (int c = 0; c < 8; c++) row[c] = __builtin_fmaf(s->a[r * 8 + k], s->b[k * 8 + c], row[c]);
    for (int c = 0; c < 8; c++) s->d[r * 8 + c] = row[c];
  }
  counters->mma++;
}

// Fibers do not interrupt each other, so these could be plain; atomic costs nothing here and says what is meant.
template <class T>
static T update(T* p, T (*combine)(T, T), T value, void* pc) {
  if (checking()) observe(p, sizeof(T), Access::atomic_write, pc);
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, combine(old, value), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class T>
static T load(const T* p, void* pc) {
  if (checking()) observe(p, sizeof(T), Access::atomic_read, pc);
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}

uint32_t atomic_update32(uint32_t* p, uint32_t (*combine)(uint32_t, uint32_t), uint32_t value) {
  return update(p, combine, value, __builtin_return_address(0));
}
uint64_t atomic_update64(uint64_t* p, uint64_t (*combine)(uint64_t, uint64_t), uint64_t value) {
  return update(p, combine, value, __builtin_return_address(0));
}
uint32_t atomic_load32(const uint32_t* p) { return load(p, __builtin_return_address(0)); }
uint64_t atomic_load64(const uint64_t* p) { return load(p, __builtin_return_address(0)); }

bool atomic_compare_exchange32(uint32_t* p, uint32_t* expected, uint32_t desired) {
  if (checking()) observe(p, sizeof *p, Access::atomic_write, __builtin_return_address(0));
  return __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace emu
