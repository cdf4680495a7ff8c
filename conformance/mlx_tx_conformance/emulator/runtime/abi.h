// What kernels (compiled with the headers of ../include) and the runtime library share.
#ifndef MLX_TX_EMULATOR_ABI_H
#define MLX_TX_EMULATOR_ABI_H

#include <cstddef>
#include <cstdint>

namespace emu {

constexpr uint32_t LANES = 32;
constexpr uint32_t MAX_THREADS = 1024;
constexpr size_t MAX_THREADGROUP_BYTES = 32768;
constexpr uint32_t MAX_BUFFERS = 64;

struct Uint3 {
  uint32_t x, y, z;
};

// The attributes of one thread, by the names MSL gives them.
struct Attributes {
  Uint3 thread_position_in_grid, thread_position_in_threadgroup, threadgroup_position_in_grid;
  Uint3 threads_per_threadgroup, threads_per_grid, threadgroups_per_grid, dispatch_threads_per_threadgroup;
  uint32_t thread_index_in_threadgroup, thread_index_in_simdgroup, thread_index_in_quadgroup;
  uint32_t simdgroup_index_in_threadgroup, quadgroup_index_in_threadgroup;
  uint32_t simdgroups_per_threadgroup, quadgroups_per_threadgroup;
  uint32_t dispatch_simdgroups_per_threadgroup, dispatch_quadgroups_per_threadgroup;
};

// Operations at which the lanes of a simdgroup meet. Names: collective_name() in scheduler.cpp.
enum class Collective : uint32_t {
  barrier,
  sum,
  product,
  max,
  min,
  bit_and,
  bit_or,
  bit_xor,
  all,
  any,
  ballot,
  prefix_inclusive,
  prefix_exclusive,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  shuffle_rotate,
  shuffle_fill,
  broadcast,
  broadcast_first,
  is_first,
  quad,
  matrix,
};

// Where in the .metal source an operation stands.
struct Site {
  const char* file;
  uint32_t line;
};

enum BarrierFlags : uint32_t { MEM_NONE = 0, MEM_DEVICE = 1, MEM_THREADGROUP = 2 };

struct Counters {
  uint64_t mma, exp, threadgroup_barriers, simdgroup_barriers, collectives, switches, threadgroups, threadgroup_bytes;
  uint64_t threadgroup_bytes_read, threadgroup_bytes_written;
  uint64_t device_bytes_read[MAX_BUFFERS], device_bytes_written[MAX_BUFFERS];  // checked builds only
  uint64_t device_bytes_unwritten[MAX_BUFFERS];  // of outputs without initial value: what no thread wrote; checked only
};

// One simdgroup: which of its lanes can run, which wait, and the operands of the operation they meet at.
struct alignas(64) SimdGroup {
  uint32_t alive, ready, waiting, at_barrier;  // lane masks
  uint32_t taking_part;                        // lanes of the operation now being evaluated
  uint32_t index;
  uint32_t threadgroup_fence, device_fence;  // simdgroup barriers passed, by the memory they order
  uint64_t meeting[LANES];                   // identifies the operation and site each lane waits at
  Site site[LANES];
  Collective op[LANES];
  alignas(64) unsigned char in[LANES][64];
  alignas(64) unsigned char out[LANES][64];
  alignas(64) float a[64], b[64], c[64], d[64];  // operands of one 8x8 multiply-accumulate
};

// One thread of a threadgroup: a fiber with its own stack.
struct Thread {
  void* stack_pointer;
  SimdGroup* simdgroup;
  uint32_t lane, index;
  bool leads;  // woken to evaluate the operation its simdgroup waits at
  Attributes attributes;
};

extern Thread* current;
extern Counters* counters;

// Waits until every live lane of the simdgroup is at the same operation. True for the one lane that must evaluate it
// for all lanes of `taking_part` and then call release().
bool meet(Collective op, Site site);

inline void release(SimdGroup* s) {
  s->ready |= s->taking_part;
  s->waiting &= ~s->taking_part;
}

void threadgroup_barrier(uint32_t flags, Site site);
void simdgroup_barrier(uint32_t flags, Site site);

// Memory of a `threadgroup` variable; the same for all threads of the group. `id` identifies the declaration.
void* threadgroup_memory(uint32_t id, const char* name, size_t size, size_t alignment, Site site);

// D = A x B + C on the operands stored in the simdgroup.
void multiply_accumulate(SimdGroup* s, Site site);

// Atomic read-modify-write, load and store; `combine` gets the old and the given value.
uint32_t atomic_update32(uint32_t* p, uint32_t (*combine)(uint32_t, uint32_t), uint32_t value);
uint64_t atomic_update64(uint64_t* p, uint64_t (*combine)(uint64_t, uint64_t), uint64_t value);
uint32_t atomic_load32(const uint32_t* p);
uint64_t atomic_load64(const uint64_t* p);
bool atomic_compare_exchange32(uint32_t* p, uint32_t* expected, uint32_t desired);

}  // namespace emu
#endif
