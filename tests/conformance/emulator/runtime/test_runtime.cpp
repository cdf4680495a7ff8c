// The runtime by itself: scheduling, collectives, barriers, faults, shadow memory, red zones.
#include "check.h"
#include "launcher.h"

using namespace emu;

constexpr Site HERE{"kernel", 1}, THERE{"kernel", 2};
constexpr Order ORDERS[] = {Order::forward, Order::reverse, Order::random};

static int* out(void* const* buffers) { return static_cast<int*>(buffers[0]); }

static void store(int* p, int value) {
  if (checking()) observe(p, sizeof *p, Access::write, nullptr);
  *p = value;
}
static int load(const int* p) {
  if (checking()) observe(p, sizeof *p, Access::read, nullptr);
  return *p;
}

static void every_thread_once() {
  Entry kernel = [](void* const* b, const Attributes& a) { out(b)[a.thread_position_in_grid.x]++; };
  for (Order order : ORDERS) {
    Launched l = run(kernel, 60, 32, order);
    CHECK(l.status == 0);
    for (int i = 0; i < 60; i++) CHECK(l.out[size_t(i)] == 1);
    CHECK(l.counters.threadgroups == 2);
  }
}

static void lanes_meet() {
  Entry kernel = [](void* const* b, const Attributes& a) {
    SimdGroup* s = current->simdgroup;
    reinterpret_cast<int*>(s->in[current->lane])[0] = int(a.thread_position_in_grid.x);
    if (meet(Collective::sum, HERE)) {
      int total = 0;
      for (uint32_t l = 0; l < LANES; l++)
        if (s->taking_part >> l & 1) total += reinterpret_cast<int*>(s->in[l])[0];
      for (uint32_t l = 0; l < LANES; l++) reinterpret_cast<int*>(s->out[l])[0] = total;
      release(s);
    }
    out(b)[a.thread_position_in_grid.x] = reinterpret_cast<int*>(s->out[current->lane])[0];
  };
  for (Order order : ORDERS) {
    Launched l = run(kernel, 40, 40, order);
    CHECK(l.status == 0);
    CHECK(l.out[0] == 31 * 32 / 2 && l.out[39] == 32 + 33 + 34 + 35 + 36 + 37 + 38 + 39);
    CHECK(l.counters.collectives == 2);
  }
}

static void barriers_order() {
  Entry kernel = [](void* const* b, const Attributes& a) {
    auto* shared = static_cast<int*>(threadgroup_memory(0, "shared", 64 * sizeof(int), alignof(int), HERE));
    uint32_t t = a.thread_index_in_threadgroup;
    for (int round = 0; round < 3; round++) {
      store(shared + t, int(t) + round);
      emu::threadgroup_barrier(MEM_THREADGROUP, HERE);
      store(out(b) + t, load(shared + 63 - t));
      emu::threadgroup_barrier(MEM_THREADGROUP, THERE);
    }
  };
  for (Order order : ORDERS)
    for (bool checked : {false, true}) {
      Launched l = run(kernel, 64, 64, order, 64, checked);
      CHECK(l.status == 0);
      for (int i = 0; i < 64; i++) CHECK(l.out[size_t(i)] == 63 - i + 2);
      CHECK(l.counters.threadgroup_barriers == 6);
      CHECK(l.counters.threadgroup_bytes == 256);
      if (checked) CHECK(l.counters.threadgroup_bytes_read == 3 * 256 && l.counters.device_bytes_written[0] == 3 * 256);
    }
}

static Kind kind_of(Entry kernel, bool checked = true, bool initialised = true) {
  Launched l = run(kernel, 64, 64, Order::forward, 64, checked, initialised);
  // A fault leaves the runtime usable.
  Entry fine = [](void* const* b, const Attributes& a) { out(b)[a.thread_position_in_grid.x] = 5; };
  CHECK(run(fine, 64, 64).out[63] == 5);
  return l.status ? Kind(l.failure.kind) : Kind::none;
}

static void faults_are_named() {
  CHECK(kind_of([](void* const* b, const Attributes&) { store(out(b), 1); }) == Kind::race);
  CHECK(kind_of([](void* const* b, const Attributes& a) { store(out(b) + a.thread_position_in_grid.x + 1, 1); }) ==
        Kind::out_of_bounds);
  CHECK(kind_of([](void* const* b, const Attributes& a) { out(b)[a.thread_position_in_grid.x + 1] = 1; }, false) ==
        Kind::out_of_bounds);
  CHECK(kind_of([](void* const* b, const Attributes& a) { load(out(b) + a.thread_position_in_grid.x); }, true, false) ==
        Kind::uninitialised);
  CHECK(kind_of([](void* const*, const Attributes& a) {
          if (a.thread_index_in_threadgroup < 40) emu::threadgroup_barrier(MEM_THREADGROUP, HERE);
        }) == Kind::divergence);
  CHECK(kind_of([](void* const*, const Attributes& a) {
          emu::threadgroup_barrier(MEM_NONE, a.thread_index_in_threadgroup < 40 ? HERE : THERE);
        }) == Kind::divergence);
  CHECK(kind_of([](void* const*, const Attributes& a) {
          if (a.thread_index_in_simdgroup < 7) {
            if (meet(Collective::sum, HERE)) release(current->simdgroup);
          } else {
            emu::simdgroup_barrier(MEM_NONE, THERE);
          }
        }) == Kind::divergence);
  CHECK(kind_of([](void* const*, const Attributes&) {
          threadgroup_memory(0, "a", 20000, 4, HERE), threadgroup_memory(1, "b", 13000, 4, HERE);
        }) == Kind::threadgroup_memory);
  CHECK(Kind(run([](void* const*, const Attributes&) {}, 2048, 1025).failure.kind) == Kind::threads);
}

static void a_missing_barrier_explains_an_uninitialised_read() {
  Entry kernel = [](void* const* b, const Attributes& a) {
    auto* shared = static_cast<int*>(threadgroup_memory(0, "shared", 64 * sizeof(int), alignof(int), HERE));
    uint32_t t = a.thread_index_in_threadgroup;
    store(shared + t, int(t));
    store(out(b) + t, load(shared + 63 - t));
  };
  CHECK(kind_of(kernel) == Kind::race);
}

static void a_simdgroup_barrier_orders_its_own_lanes_only() {
  Entry own = [](void* const* b, const Attributes& a) {
    auto* shared = static_cast<int*>(threadgroup_memory(0, "shared", 64 * sizeof(int), alignof(int), HERE));
    uint32_t t = a.thread_index_in_threadgroup;
    store(shared + t, int(t));
    emu::simdgroup_barrier(MEM_THREADGROUP, HERE);
    store(out(b) + t, load(shared + (t ^ 31)));
    emu::simdgroup_barrier(MEM_THREADGROUP, THERE);
    store(shared + t, 0);  // many lanes of this simdgroup have read: ordered by the second barrier
  };
  CHECK(kind_of(own) == Kind::none);
  Entry others = [](void* const* b, const Attributes& a) {
    auto* shared = static_cast<int*>(threadgroup_memory(0, "shared", 64 * sizeof(int), alignof(int), HERE));
    uint32_t t = a.thread_index_in_threadgroup;
    store(shared + t, int(t));
    emu::simdgroup_barrier(MEM_THREADGROUP, HERE);
    store(out(b) + t, load(shared + 63 - t));
  };
  CHECK(kind_of(others) == Kind::race);
  Entry unordered = [](void* const* b, const Attributes& a) {
    auto* shared = static_cast<int*>(threadgroup_memory(0, "shared", 64 * sizeof(int), alignof(int), HERE));
    uint32_t t = a.thread_index_in_threadgroup;
    store(shared + t, int(t));
    emu::simdgroup_barrier(MEM_NONE, HERE);
    store(out(b) + t, load(shared + (t ^ 31)));
  };
  CHECK(kind_of(unordered) == Kind::race);
}

static void atomics_do_not_race_with_each_other() {
  Entry atomic = [](void* const* b, const Attributes&) {
    atomic_update32(static_cast<uint32_t*>(b[0]), [](uint32_t x, uint32_t y) { return x + y; }, 1);
  };
  Launched l = run(atomic, 64, 32, Order::random, 64, true);
  CHECK(l.status == 0 && l.out[0] == 64);
}

static void products_accumulate() {
  Entry kernel = [](void* const* b, const Attributes& a) {
    SimdGroup* s = current->simdgroup;
    uint32_t lane = a.thread_index_in_simdgroup;
    for (uint32_t e = lane * 2; e < lane * 2 + 2; e++) {
      s->a[e] = float(e / 8 == e % 8 ? 2 : 0);
      s->b[e] = float(e);
      s->c[e] = 1;
    }
    if (meet(Collective::matrix, HERE)) {
      multiply_accumulate(s, HERE);
      release(s);
    }
    for (uint32_t e = lane * 2; e < lane * 2 + 2; e++) out(b)[e] = int(s->d[e]);
  };
  Launched l = run(kernel, 32, 32);
  CHECK(l.status == 0 && l.counters.mma == 1);
  for (int i = 0; i < 64; i++) CHECK(l.out[size_t(i)] == 2 * i + 1);
}

int main() {
  every_thread_once();
  lanes_meet();
  barriers_order();
  faults_are_named();
  a_missing_barrier_explains_an_uninitialised_read();
  a_simdgroup_barrier_orders_its_own_lanes_only();
  atomics_do_not_race_with_each_other();
  products_accumulate();
  puts("ok");
}
