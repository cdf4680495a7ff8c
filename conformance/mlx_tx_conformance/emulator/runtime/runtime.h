// Inside the runtime library: the threadgroup that runs, the launch it belongs to, failures, and shadow memory.
#ifndef MLX_TX_EMULATOR_RUNTIME_H
#define MLX_TX_EMULATOR_RUNTIME_H

#include <cstdint>
#include <vector>

#include "abi.h"
#include "fiber.h"

namespace emu {

using Entry = void (*)(void* const* buffers, const Attributes& attributes);

// Numbers agree with KINDS in ../errors.py.
enum class Kind : int32_t {
  none,
  race,
  out_of_bounds,
  uninitialised,
  divergence,
  threadgroup_memory,
  threads,
  deadlock,
  crash
};

// The first fault of a launch, as the caller reads it.
struct Failure {
  int32_t kind;
  int32_t buffer;           // index of a device buffer, or -1
  int64_t offset;           // bytes from the start of the buffer or threadgroup array, or -1
  uint32_t threadgroup[3];  // threadgroup_position_in_grid
  int32_t thread;           // thread_index_in_threadgroup, or -1
  int32_t line;             // of `file`, or 0
  uint64_t pc;              // offset of the instruction in the kernel library, or 0
  char name[64];            // of a threadgroup array
  char file[192];
  char message[512];
};

// A device buffer in the arena. Pointers handed to kernels start `origin` bytes into it (negative strides).
struct Buffer {
  uint64_t offset, size, origin;
  uint32_t writable, initialised;
};

enum class Order : uint32_t { forward, reverse, random };

struct LaunchRequest {
  char* arena;
  uint64_t arena_size;
  uint64_t reach;  // bytes on both sides of the arena that nothing else uses
  const Buffer* buffers;
  uint32_t buffer_count;
  uint32_t grid[3], threadgroup[3];
  uint32_t order, checked, flush_denormals;
  uint64_t seed;
};

// A threadgroup array: where it lies in the group's memory, and its first shadow cell.
struct ThreadgroupArray {
  uint32_t id;
  const char* name;
  size_t offset, size, first_cell;
};

struct Group {
  Group();

  StackPool stacks;
  SimdGroup simdgroups[MAX_THREADS / LANES];
  Thread threads[MAX_THREADS];
  char* memory;  // threadgroup memory, with gaps between arrays
  std::vector<ThreadgroupArray> arrays;
  size_t memory_used = 0, memory_end = 0;

  uint32_t size = 0, simdgroup_count = 0, alive = 0, waiting = 0;
  Site barrier{};
  uint32_t threadgroup_epoch = 1, device_epoch = 1;  // barriers passed, by the memory they order
  Uint3 position{};
  uint32_t number = 0;  // of the group in the grid

  Order order = Order::forward;
  uint64_t random_state = 1;
  void* main_stack = nullptr;
  uint32_t prepared = 0;  // threads whose stacks stand ready: new, or at the end of their last run

  uint64_t random();
};

extern Group* group;
extern const LaunchRequest* launch;
extern Failure* failure;
extern bool failed;

constexpr size_t ARRAY_GAP = 4096;        // between threadgroup arrays: an overrun lands here
constexpr size_t GROUP_MEMORY = 1 << 20;  // virtual: 32 KB of arrays and their gaps

// Records the failure and leaves the group for good.
struct FailureDetail {
  Kind kind;
  Site site{nullptr, 0};
  int32_t buffer = -1;
  int64_t offset = -1;
  const char* name = "";
  void* pc = nullptr;
};
[[noreturn]] void fail(const FailureDetail& detail, const char* format, ...) __attribute__((format(printf, 2, 3)));
void describe_failure(const FailureDetail& detail, const char* format, ...) __attribute__((format(printf, 2, 3)));

// scheduler.cpp
void run_group(Entry entry, void* const* pointers, Uint3 position, Uint3 groups);
const char* collective_name(Collective op);

// Records a fault that may be only a symptom: it is reported when its group ends, unless a race or a divergence shows
// up first that explains it (a read before the missing barrier finds nothing written).
void suspect(const FailureDetail& detail, const char* format, ...) __attribute__((format(printf, 2, 3)));
void confirm_suspicion();

// shadow.cpp
void shadow_start_launch();
void shadow_count_unwritten();
void shadow_new_array(const ThreadgroupArray& array);
enum class Access : uint32_t { read, write, atomic_read, atomic_write };
void observe(const void* address, size_t size, Access access, void* pc);
inline bool checking() { return launch && launch->checked && group && current; }

// redzone.cpp: what a build without hooks can see, bytes changed where nobody may write.
void fill_red_zones(const LaunchRequest& request);
void check_red_zones(const LaunchRequest& request);
void fill_gap(char* begin);
void check_threadgroup_gaps();

}  // namespace emu
#endif
