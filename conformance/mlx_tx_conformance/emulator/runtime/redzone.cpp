// Red zones: bytes around every buffer that nobody may write. Builds without hooks find overruns by them.
#include <cstring>

#include "runtime.h"

namespace emu {

constexpr unsigned char FILL = 0xFF;  // NaN in every floating type, so that an overrunning read shows as well
constexpr size_t GAP_CHECKED = 256;   // bytes of a threadgroup gap that are filled and compared

// Calls visit(begin, end, buffer) for each stretch of the arena outside buffers; `buffer` is the one before it.
template <class Visit>
static void each_zone(const LaunchRequest& request, Visit visit) {
  uint64_t position = 0;
  int32_t before = -1;
  for (uint32_t i = 0; i < request.buffer_count; i++) {  // the driver lays buffers out in ascending order
    const Buffer& b = request.buffers[i];
    if (!b.size) continue;
    visit(position, b.offset, before < 0 ? int32_t(i) : before);
    position = b.offset + b.size;
    before = int32_t(i);
  }
  visit(position, request.arena_size, before);
}

static size_t first_change(const char* begin, size_t size) {
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    memcpy(&word, begin + i, 8);
    if (word != ~uint64_t(0)) break;
  }
  for (; i < size; i++)
    if (static_cast<unsigned char>(begin[i]) != FILL) return i;
  return size;
}

void fill_red_zones(const LaunchRequest& request) {
  if (request.checked) return;  // hooks see every access; the zones are large there, and never touched
  each_zone(request, [&](uint64_t begin, uint64_t end, int32_t) { memset(request.arena + begin, FILL, end - begin); });
}

void check_red_zones(const LaunchRequest& request) {
  if (request.checked) return;
  each_zone(request, [&](uint64_t begin, uint64_t end, int32_t buffer) {
    size_t at = first_change(request.arena + begin, end - begin);
    if (at == end - begin || failed || buffer < 0) return;
    const Buffer& b = request.buffers[buffer];
    int64_t offset = int64_t(begin + at) - int64_t(b.offset);
    describe_failure({.kind = Kind::out_of_bounds, .buffer = buffer, .offset = offset},
                     "a byte outside the buffer was written, at offset %lld of %llu bytes",
                     static_cast<long long>(offset), static_cast<unsigned long long>(b.size));
  });
}

void fill_gap(char* begin) { memset(begin, FILL, GAP_CHECKED); }

void check_threadgroup_gaps() {
  for (const ThreadgroupArray& array : group->arrays) {
    size_t at = first_change(group->memory + array.offset + array.size, GAP_CHECKED);
    if (at == GAP_CHECKED) continue;
    describe_failure({.kind = Kind::out_of_bounds, .offset = int64_t(array.size + at), .name = array.name},
                     "a byte behind the threadgroup array was written, at offset %zu of %zu bytes", array.size + at,
                     array.size);
    return;
  }
}

}  // namespace emu
