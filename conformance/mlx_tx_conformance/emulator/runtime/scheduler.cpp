// Runs the threads of one threadgroup as fibers: who runs next, and how they meet at collectives and barriers.
#include <cstring>
#include <new>

#include "runtime.h"

namespace emu {

Thread* current = nullptr;
Counters* counters = nullptr;
Group* group = nullptr;

static Entry kernel_entry;
static void* const* kernel_buffers;

const char* collective_name(Collective op) {
  static const char* const names[] = {"simdgroup_barrier",
                                      "simd_sum",
                                      "simd_product",
                                      "simd_max",
                                      "simd_min",
                                      "simd_and",
                                      "simd_or",
                                      "simd_xor",
                                      "simd_all",
                                      "simd_any",
                                      "simd_ballot",
                                      "simd_prefix_inclusive",
                                      "simd_prefix_exclusive",
                                      "simd_shuffle",
                                      "simd_shuffle_up",
                                      "simd_shuffle_down",
                                      "simd_shuffle_xor",
                                      "simd_shuffle_rotate",
                                      "simd_shuffle_and_fill",
                                      "simd_broadcast",
                                      "simd_broadcast_first",
                                      "simd_is_first",
                                      "quad operation",
                                      "simdgroup_multiply_accumulate"};
  return names[uint32_t(op)];
}

uint64_t Group::random() {  // xorshift64
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

Group::Group() : stacks(MAX_THREADS) { memory = new (std::align_val_t(4096)) char[GROUP_MEMORY](); }

// ---------------------------------------------------------------------------------------------- who runs next

static Thread* lane_of(Group& g, uint32_t simdgroup, uint32_t lane) { return &g.threads[simdgroup * LANES + lane]; }
static uint32_t lowest(uint32_t mask) { return uint32_t(__builtin_ctz(mask)); }
static uint32_t highest(uint32_t mask) { return 31u - uint32_t(__builtin_clz(mask)); }

// No thread can run: either some lanes wait at a collective that others never reach, or all wait at barriers.
[[noreturn]] static void report_stuck(Group& g) {
  for (uint32_t i = 0; i < g.simdgroup_count; i++) {
    SimdGroup& s = g.simdgroups[i];
    if (!s.waiting) continue;
    uint32_t lane = lowest(s.waiting), here = 0;
    for (uint32_t l = 0; l < LANES; l++)
      if ((s.waiting >> l & 1) && s.meeting[l] == s.meeting[lane]) here |= 1u << l;
    current = lane_of(g, i, lane);
    fail({.kind = Kind::divergence, .site = s.site[lane]},
         "%s is reached by lanes %08x of simdgroup %u, but lanes %08x are alive and wait elsewhere",
         collective_name(s.op[lane]), here, i, s.alive & ~here);
  }
  fail({.kind = Kind::deadlock, .site = g.barrier}, "%u of %u threads wait at a threadgroup_barrier", g.waiting,
       g.alive);
}

static Thread* next_forward(Group& g, const SimdGroup* mine) {
  if (mine->ready) return lane_of(g, mine->index, lowest(mine->ready));
  for (uint32_t i = 0; i < g.simdgroup_count; i++)
    if (g.simdgroups[i].ready) return lane_of(g, i, lowest(g.simdgroups[i].ready));
  return nullptr;
}

static Thread* next_reverse(Group& g, const SimdGroup* mine) {
  if (mine->ready) return lane_of(g, mine->index, highest(mine->ready));
  for (uint32_t i = g.simdgroup_count; i-- > 0;)
    if (g.simdgroups[i].ready) return lane_of(g, i, highest(g.simdgroups[i].ready));
  return nullptr;
}

static Thread* next_random(Group& g) {
  uint32_t start = uint32_t(g.random() % g.simdgroup_count), turn = uint32_t(g.random() % LANES);
  for (uint32_t i = 0; i < g.simdgroup_count; i++) {
    uint32_t index = (i + start) % g.simdgroup_count, ready = g.simdgroups[index].ready;
    if (!ready) continue;
    uint32_t turned = turn ? ready >> turn | ready << (LANES - turn) : ready;
    return lane_of(g, index, (lowest(turned) + turn) % LANES);
  }
  return nullptr;
}

static Thread* next_thread(Group& g, const SimdGroup* mine) {
  Thread* next = g.order == Order::forward   ? next_forward(g, mine)
                 : g.order == Order::reverse ? next_reverse(g, mine)
                                             : next_random(g);
  if (!next) report_stuck(g);
  return next;
}

static void yield_to(Thread* next) {
  Thread* me = current;
  if (next == me) return;
  counters->switches++;
  current = next;
  mlx_tx_switch(&me->stack_pointer, next->stack_pointer);
}

// ---------------------------------------------------------------------------------------------- collectives

static bool all_at_one_site(const SimdGroup& s) {
  uint64_t meeting = s.meeting[lowest(s.alive)];
  for (uint32_t rest = s.alive; rest; rest &= rest - 1)
    if (s.meeting[lowest(rest)] != meeting) return false;
  return true;
}

bool meet(Collective op, Site site) {
  Thread* me = current;
  SimdGroup* s = me->simdgroup;
  uint32_t bit = 1u << me->lane;
  s->ready &= ~bit;
  s->waiting |= bit;
  s->op[me->lane] = op;
  s->site[me->lane] = site;
  s->meeting[me->lane] = (reinterpret_cast<uintptr_t>(site.file) << 20) ^ (uint64_t(op) << 56) ^ site.line;
  if (s->waiting == s->alive && all_at_one_site(*s)) {
    s->taking_part = s->alive;
    counters->collectives++;
    return true;
  }
  yield_to(next_thread(*group, s));
  bool leads = me->leads;
  me->leads = false;
  return leads;
}

void simdgroup_barrier(uint32_t flags, Site site) {
  if (!meet(Collective::barrier, site)) return;
  SimdGroup* s = current->simdgroup;
  if (flags & MEM_THREADGROUP) s->threadgroup_fence++;
  if (flags & MEM_DEVICE) s->device_fence++;
  counters->simdgroup_barriers++;
  release(s);
}

// ---------------------------------------------------------------------------------------------- threadgroup barrier

static uint32_t barrier_flags;

static void open_barrier(Group& g) {
  if (g.alive != g.size)
    fail({.kind = Kind::divergence, .site = g.barrier},
         "only %u of %u threads reach this threadgroup_barrier, the others returned", g.waiting, g.size);
  for (uint32_t i = 0; i < g.simdgroup_count; i++) {
    g.simdgroups[i].ready |= g.simdgroups[i].at_barrier;
    g.simdgroups[i].at_barrier = 0;
  }
  g.waiting = 0;
  if (barrier_flags & MEM_THREADGROUP) g.threadgroup_epoch++;
  if (barrier_flags & MEM_DEVICE) g.device_epoch++;
  counters->threadgroup_barriers++;
}

void threadgroup_barrier(uint32_t flags, Site site) {
  Group& g = *group;
  SimdGroup* s = current->simdgroup;
  if (g.waiting && (g.barrier.line != site.line || g.barrier.file != site.file))
    fail({.kind = Kind::divergence, .site = site},
         "threads of one threadgroup wait at different barriers: lines %u and %u", g.barrier.line, site.line);
  g.barrier = site;
  barrier_flags = flags;
  uint32_t bit = 1u << current->lane;
  s->ready &= ~bit;
  s->at_barrier |= bit;
  if (++g.waiting == g.alive) open_barrier(g);
  yield_to(next_thread(g, s));
}

// ---------------------------------------------------------------------------------------------- a thread's life

static void thread_main() {
  for (;;) {
    kernel_entry(kernel_buffers, current->attributes);
    Group& g = *group;
    Thread* me = current;
    SimdGroup* s = me->simdgroup;
    uint32_t bit = 1u << me->lane;
    s->alive &= ~bit;
    s->ready &= ~bit;
    if (--g.alive == 0) {
      mlx_tx_switch(&me->stack_pointer, g.main_stack);
      continue;
    }
    if (g.waiting && g.waiting == g.alive) open_barrier(g);
    Thread* next;
    if (s->waiting && s->waiting == s->alive && all_at_one_site(*s)) {  // they waited for this lane only
      s->taking_part = s->alive;
      counters->collectives++;
      next = lane_of(g, s->index, lowest(s->waiting));
      next->leads = true;
    } else {
      next = next_thread(g, s);
    }
    yield_to(next);
  }
}

static void start_threads(Group& g, Uint3 extent, Uint3 groups) {
  const LaunchRequest& l = *launch;
  g.size = g.alive = extent.x * extent.y * extent.z;
  g.simdgroup_count = (g.size + LANES - 1) / LANES;
  for (uint32_t i = 0; i < g.simdgroup_count; i++) {
    SimdGroup& s = g.simdgroups[i];
    uint32_t lanes = g.size - i * LANES;
    s.alive = s.ready = lanes >= LANES ? ~0u : (1u << lanes) - 1;
    s.waiting = s.at_barrier = s.taking_part = 0;
    s.threadgroup_fence = s.device_fence = 0;
    s.index = i;
  }
  uint32_t full = l.threadgroup[0] * l.threadgroup[1] * l.threadgroup[2];
  for (uint32_t i = 0; i < g.size; i++) {
    Thread& t = g.threads[i];
    t.simdgroup = &g.simdgroups[i / LANES];
    t.lane = i % LANES;
    t.index = i;
    t.leads = false;
    if (i >= g.prepared) t.stack_pointer = prepare_stack(g.stacks.top(i), thread_main);
    Uint3 p{i % extent.x, i / extent.x % extent.y, i / (extent.x * extent.y)};
    Attributes& a = t.attributes;
    a.thread_position_in_threadgroup = p;
    a.threadgroup_position_in_grid = g.position;
    a.thread_position_in_grid = {g.position.x * l.threadgroup[0] + p.x, g.position.y * l.threadgroup[1] + p.y,
                                 g.position.z * l.threadgroup[2] + p.z};
    a.threads_per_threadgroup = extent;
    a.threads_per_grid = {l.grid[0], l.grid[1], l.grid[2]};
    a.threadgroups_per_grid = groups;
    a.dispatch_threads_per_threadgroup = {l.threadgroup[0], l.threadgroup[1], l.threadgroup[2]};
    a.thread_index_in_threadgroup = i;
    a.thread_index_in_simdgroup = i % LANES;
    a.thread_index_in_quadgroup = i % 4;
    a.simdgroup_index_in_threadgroup = i / LANES;
    a.quadgroup_index_in_threadgroup = i / 4;
    a.simdgroups_per_threadgroup = g.simdgroup_count;
    a.quadgroups_per_threadgroup = (g.size + 3) / 4;
    a.dispatch_simdgroups_per_threadgroup = (full + LANES - 1) / LANES;
    a.dispatch_quadgroups_per_threadgroup = (full + 3) / 4;
  }
  if (g.prepared < g.size) g.prepared = g.size;
}

static uint32_t edge(uint32_t grid, uint32_t threads, uint32_t position) {
  uint32_t rest = grid - position * threads;
  return rest < threads ? rest : threads;
}

void run_group(Entry entry, void* const* pointers, Uint3 position, Uint3 groups) {
  const LaunchRequest& l = *launch;
  Group& g = *group;
  kernel_entry = entry;
  kernel_buffers = pointers;
  g.position = position;
  g.number = (position.z * groups.y + position.y) * groups.x + position.x;
  g.waiting = 0;
  g.arrays.clear();
  g.memory_used = g.memory_end = 0;
  g.threadgroup_epoch = g.device_epoch = 1;
  g.order = Order(l.order);
  g.random_state = ((l.seed + 1) * 0x9E3779B97F4A7C15ull ^ g.number * 0xD1B54A32D192ED03ull) | 1;
  Uint3 extent{edge(l.grid[0], l.threadgroup[0], position.x), edge(l.grid[1], l.threadgroup[1], position.y),
               edge(l.grid[2], l.threadgroup[2], position.z)};
  start_threads(g, extent, groups);
  counters->threadgroups++;
  Thread* first = next_thread(g, &g.simdgroups[g.order == Order::reverse ? g.simdgroup_count - 1 : 0]);
  current = first;
  mlx_tx_switch(&g.main_stack, first->stack_pointer);
  current = nullptr;
  confirm_suspicion();
  if (!failed) check_threadgroup_gaps();
}

// ---------------------------------------------------------------------------------------------- threadgroup memory

void* threadgroup_memory(uint32_t id, const char* name, size_t size, size_t alignment, Site site) {
  Group& g = *group;
  for (const ThreadgroupArray& array : g.arrays)
    if (array.id == id) return g.memory + array.offset;
  size_t first_cell = g.memory_used;
  constexpr size_t granule = 16;  // Metal gives out threadgroup memory in units of 16 bytes
  g.memory_used += (size + granule - 1) / granule * granule;
  if (g.memory_used > MAX_THREADGROUP_BYTES)
    fail({.kind = Kind::threadgroup_memory, .site = site, .name = name},
         "%zu bytes of threadgroup memory, at most %zu exist", g.memory_used, MAX_THREADGROUP_BYTES);
  if (g.memory_used > counters->threadgroup_bytes) counters->threadgroup_bytes = g.memory_used;
  if (alignment < granule) alignment = granule;
  if (g.arrays.empty()) {
    fill_gap(g.memory);
    g.memory_end = ARRAY_GAP;
  }
  size_t offset = (g.memory_end + alignment - 1) / alignment * alignment;
  g.memory_end = offset + size + ARRAY_GAP;
  if (g.memory_end > GROUP_MEMORY)
    fail({.kind = Kind::threadgroup_memory, .site = site, .name = name},
         "%zu threadgroup arrays; the emulator has room for fewer", g.arrays.size() + 1);
  g.arrays.push_back({id, name, offset, size, first_cell});
  memset(g.memory + offset, 0xFF, size);  // NaN in every floating type: uninitialised values show
  fill_gap(g.memory + offset + size);
  if (launch->checked) shadow_new_array(g.arrays.back());
  return g.memory + offset;
}

}  // namespace emu
