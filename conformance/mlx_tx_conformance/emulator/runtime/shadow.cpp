// Shadow memory of checked builds: for every byte that may be written, who wrote and read it last and whether a barrier
// lies in between. The compiler calls the hooks below for each load and store (-fsanitize=thread, our own runtime).
#include <cstdio>
#include <cstring>

#include "runtime.h"

namespace emu {

constexpr uint16_t MANY = 0xFFFF;  // several threads, or several simdgroups
constexpr uint32_t MANY_GROUPS = 0xFFFFFFFF;

// One side of a possible race: the last write of a byte, or its reads since then.
struct Trace {
  uint32_t group = 0, epoch = 0;
  uint16_t thread = 0;  // index + 1; 0: none
  uint16_t simdgroup = 0, fence = 0;
  bool atomic = false;
};

struct Cell {
  Trace write, read;
  bool initialised = false;
};

// The access being observed.
struct Now {
  Trace self;
  Access access;
  bool writes() const { return access == Access::write || access == Access::atomic_write; }
};

static std::vector<Cell> device_cells;  // of writable buffers, one after the other
static size_t first_cell[MAX_BUFFERS];
static std::vector<Cell> group_cells(MAX_THREADGROUP_BYTES);

void shadow_start_launch() {
  size_t total = 0;
  for (uint32_t i = 0; i < launch->buffer_count; i++) {
    first_cell[i] = total;
    if (launch->buffers[i].writable) total += launch->buffers[i].size;
  }
  device_cells.assign(total, Cell{});
  for (uint32_t i = 0; i < launch->buffer_count; i++)
    if (launch->buffers[i].writable && launch->buffers[i].initialised)
      for (size_t k = 0; k < launch->buffers[i].size; k++) device_cells[first_cell[i] + k].initialised = true;
}

void shadow_count_unwritten() {
  for (uint32_t i = 0; i < launch->buffer_count; i++) {
    if (!launch->buffers[i].writable) continue;
    for (size_t k = 0; k < launch->buffers[i].size; k++)
      counters->device_bytes_unwritten[i] += !device_cells[first_cell[i] + k].initialised;
  }
}

void shadow_new_array(const ThreadgroupArray& array) {
  for (size_t i = 0; i < array.size; i++) group_cells[array.first_cell + i] = Cell{};
}

// Is nothing between that access and this one that orders them?
static bool unordered(const Trace& earlier, const Trace& now) {
  if (!earlier.thread || (earlier.atomic && now.atomic)) return false;
  if (earlier.group != now.group) return true;  // no barrier orders threadgroups of one dispatch
  if (earlier.epoch != now.epoch || earlier.thread == now.thread) return false;
  return earlier.simdgroup != now.simdgroup || earlier.fence == now.fence;
}

static void add_reader(Trace& reads, const Trace& now) {
  if (!reads.thread || (reads.group == now.group &&
                        (reads.epoch != now.epoch || (reads.simdgroup == now.simdgroup && reads.fence != now.fence)))) {
    reads = now;  // earlier reads are ordered before every later write that is ordered after this read
    return;
  }
  if (reads.group != now.group) reads.group = MANY_GROUPS;
  if (reads.thread != now.thread) reads.thread = MANY;
  if (reads.simdgroup != now.simdgroup) reads.simdgroup = MANY;
  reads.atomic = reads.atomic && now.atomic;
}

struct Place {
  int32_t buffer;
  int64_t offset;
  const char* name;
  const char* space;
};

[[noreturn]] static void report_race(const Place& place, const Now& now, const Trace& earlier, bool earlier_wrote,
                                     void* pc) {
  char who[64];
  if (earlier.group == MANY_GROUPS)
    snprintf(who, sizeof who, "several threadgroups");
  else if (earlier.group != now.self.group)
    snprintf(who, sizeof who, "threadgroup %u", earlier.group);
  else if (earlier.thread == MANY)
    snprintf(who, sizeof who, "several threads");
  else
    snprintf(who, sizeof who, "thread %u", unsigned(earlier.thread - 1));
  const char* missing = earlier.group != now.self.group ? "threadgroups of one dispatch are not ordered"
                                                        : "no barrier for this memory in between";
  fail({.kind = Kind::race, .buffer = place.buffer, .offset = place.offset, .name = place.name, .pc = pc},
       "%s memory is %s here and was %s by %s: %s", place.space, now.writes() ? "written" : "read",
       earlier_wrote ? "written" : "read", who, missing);
}

static void check_cell(Cell& cell, const Now& now, Place place, int64_t i, void* pc) {
  place.offset += i;
  if (unordered(cell.write, now.self)) report_race(place, now, cell.write, true, pc);
  if (now.writes()) {
    if (unordered(cell.read, now.self)) report_race(place, now, cell.read, false, pc);
    cell.write = now.self;
    cell.initialised = true;
    return;
  }
  if (!cell.initialised)
    suspect({.kind = Kind::uninitialised, .buffer = place.buffer, .offset = place.offset, .name = place.name, .pc = pc},
            "%s memory is read that nobody has written", place.space);
  add_reader(cell.read, now.self);
}

static Now describe_access(Access access, uint32_t epoch, uint32_t fence) {
  Now now;
  now.access = access;
  now.self.group = group->number;
  now.self.epoch = epoch;
  now.self.thread = uint16_t(current->index + 1);
  now.self.simdgroup = uint16_t(current->simdgroup->index);
  now.self.fence = uint16_t(fence);
  now.self.atomic = access == Access::atomic_read || access == Access::atomic_write;
  return now;
}

static const char* verb(const Now& now) { return now.writes() ? "write" : "read"; }

static void observe_threadgroup(size_t offset, size_t size, Access access, void* pc) {
  Now now = describe_access(access, group->threadgroup_epoch, current->simdgroup->threadgroup_fence);
  const ThreadgroupArray* nearest = nullptr;
  for (const ThreadgroupArray& array : group->arrays) {
    if (!nearest || array.offset <= offset) nearest = &array;
    if (offset < array.offset || offset + size > array.offset + array.size) continue;
    (now.writes() ? counters->threadgroup_bytes_written : counters->threadgroup_bytes_read) += size;
    Place place{-1, int64_t(offset - array.offset), array.name, "threadgroup"};
    Cell* cells = &group_cells[array.first_cell + offset - array.offset];
    for (size_t i = 0; i < size; i++) check_cell(cells[i], now, place, int64_t(i), pc);
    return;
  }
  int64_t at = nearest ? int64_t(offset) - int64_t(nearest->offset) : int64_t(offset);
  fail({.kind = Kind::out_of_bounds, .offset = at, .name = nearest ? nearest->name : "", .pc = pc},
       "%s of %zu bytes at offset %lld of a threadgroup array of %zu bytes", verb(now), size,
       static_cast<long long>(at), nearest ? nearest->size : size_t(0));
}

static int64_t distance(const Buffer& b, int64_t offset) {
  int64_t begin = int64_t(b.offset), end = begin + int64_t(b.size);
  return offset < begin ? begin - offset : offset >= end ? offset - end + 1 : 0;
}

static void observe_device(int64_t offset, size_t size, Access access, void* pc) {
  Now now = describe_access(access, group->device_epoch, current->simdgroup->device_fence);
  int32_t nearest = -1;
  for (uint32_t i = 0; i < launch->buffer_count; i++) {
    const Buffer& b = launch->buffers[i];
    if (!b.size) continue;
    if (nearest < 0 || distance(b, offset) < distance(launch->buffers[nearest], offset)) nearest = int32_t(i);
    if (offset < int64_t(b.offset) || offset + int64_t(size) > int64_t(b.offset + b.size)) continue;
    (now.writes() ? counters->device_bytes_written : counters->device_bytes_read)[i] += size;
    Place place{int32_t(i), offset - int64_t(b.offset), "", "device"};
    if (b.writable)
      for (size_t k = 0; k < size; k++)
        check_cell(device_cells[first_cell[i] + place.offset + k], now, place, int64_t(k), pc);
    else if (now.writes())
      fail({.kind = Kind::out_of_bounds, .buffer = int32_t(i), .offset = place.offset, .pc = pc}, "write to an input");
    return;
  }
  if (nearest < 0) fail({.kind = Kind::out_of_bounds, .pc = pc}, "%s of %zu bytes without any buffer", verb(now), size);
  const Buffer& b = launch->buffers[nearest];
  int64_t at = offset - int64_t(b.offset);
  fail({.kind = Kind::out_of_bounds, .buffer = nearest, .offset = at, .pc = pc},
       "%s of %zu bytes at offset %lld of a buffer of %llu bytes", verb(now), size, static_cast<long long>(at),
       static_cast<unsigned long long>(b.size));
}

void observe(const void* address, size_t size, Access access, void* pc) {
  auto p = static_cast<const char*>(address);
  size_t in_group = size_t(p - group->memory);
  if (in_group < GROUP_MEMORY)
    observe_threadgroup(in_group, size, access, pc);
  else if (size_t(p - launch->arena) + launch->reach < launch->arena_size + 2 * launch->reach)
    observe_device(p - launch->arena, size, access, pc);
}

}  // namespace emu

// ------------------------------------------------------------------------------------------------ compiler hooks

using emu::Access;

static inline void hook(const void* address, size_t size, Access access, void* pc) {
  if (emu::checking()) emu::observe(address, size, access, pc);
}

#define HOOK extern "C" __attribute__((visibility("default")))
#define HOOKS_OF_SIZE(n)                                                                                   \
  HOOK void __tsan_read##n(void* p) { hook(p, n, Access::read, __builtin_return_address(0)); }             \
  HOOK void __tsan_write##n(void* p) { hook(p, n, Access::write, __builtin_return_address(0)); }           \
  HOOK void __tsan_unaligned_read##n(void* p) { hook(p, n, Access::read, __builtin_return_address(0)); }   \
  HOOK void __tsan_unaligned_write##n(void* p) { hook(p, n, Access::write, __builtin_return_address(0)); } \
  HOOK void __tsan_volatile_read##n(void* p) { hook(p, n, Access::read, __builtin_return_address(0)); }    \
  HOOK void __tsan_volatile_write##n(void* p) { hook(p, n, Access::write, __builtin_return_address(0)); }  \
  HOOK void __tsan_read_write##n(void* p) {                                                                \
    hook(p, n, Access::read, __builtin_return_address(0));                                                 \
    hook(p, n, Access::write, __builtin_return_address(0));                                                \
  }
HOOKS_OF_SIZE(1)
HOOKS_OF_SIZE(2)
HOOKS_OF_SIZE(4)
HOOKS_OF_SIZE(8)
HOOKS_OF_SIZE(16)
#undef HOOKS_OF_SIZE

HOOK void __tsan_read_range(void* p, size_t n) { hook(p, n, Access::read, __builtin_return_address(0)); }
HOOK void __tsan_write_range(void* p, size_t n) { hook(p, n, Access::write, __builtin_return_address(0)); }
HOOK void* __tsan_memcpy(void* to, const void* from, size_t n) {
  hook(from, n, Access::read, __builtin_return_address(0));
  hook(to, n, Access::write, __builtin_return_address(0));
  return memcpy(to, from, n);
}
HOOK void* __tsan_memmove(void* to, const void* from, size_t n) {
  hook(from, n, Access::read, __builtin_return_address(0));
  hook(to, n, Access::write, __builtin_return_address(0));
  return memmove(to, from, n);
}
HOOK void* __tsan_memset(void* to, int value, size_t n) {
  hook(to, n, Access::write, __builtin_return_address(0));
  return memset(to, value, n);
}
HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
