// Launches a C++ function as a kernel, without the Python side.
#ifndef MLX_TX_TEST_LAUNCHER_H
#define MLX_TX_TEST_LAUNCHER_H

#include <cstring>
#include <memory>
#include <vector>

#include "runtime.h"

extern "C" int mlx_tx_launch(emu::Entry entry, const emu::LaunchRequest* request, emu::Counters* counters,
                             emu::Failure* failure, double time_limit);

struct Launched {
  int status;
  emu::Failure failure;
  emu::Counters counters;
  std::vector<int> out;
};

// One output of `size` ints between red zones; `checked` only sees what the kernel reports by hooks.
inline Launched run(emu::Entry entry, uint32_t threads, uint32_t group, emu::Order order = emu::Order::forward,
                    size_t size = 64, bool checked = false, bool initialised = true) {
  constexpr size_t zone = 4096;
  std::vector<char> arena(2 * zone + size * sizeof(int));
  memset(arena.data() + zone, 0, size * sizeof(int));
  emu::Buffer buffer{zone, size * sizeof(int), 0, 1, initialised};
  emu::LaunchRequest request{};
  request.arena = arena.data();
  request.arena_size = arena.size();
  request.buffers = &buffer;
  request.buffer_count = 1;
  request.grid[0] = threads;
  request.threadgroup[0] = group;
  request.grid[1] = request.grid[2] = request.threadgroup[1] = request.threadgroup[2] = 1;
  request.order = uint32_t(order);
  request.checked = checked;
  request.seed = 7;
  Launched result{};
  result.status = mlx_tx_launch(entry, &request, &result.counters, &result.failure, 0);
  result.out.resize(size);
  memcpy(result.out.data(), arena.data() + zone, size * sizeof(int));
  return result;
}

#endif
