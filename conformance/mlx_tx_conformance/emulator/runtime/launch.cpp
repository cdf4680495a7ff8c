// The library's entry points: a launch, its failure record, and what signals mean.
#include <dlfcn.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime.h"

namespace emu {

const LaunchRequest* launch = nullptr;
Failure* failure = nullptr;
bool failed = false;
static int signal_fd = -1;
static Failure suspicion;  // kind none: there is none

static void describe(Failure& f, const FailureDetail& detail, const char* format, va_list arguments) {
  memset(&f, 0, sizeof f);
  f.kind = int32_t(detail.kind);
  f.buffer = detail.buffer;
  f.offset = detail.offset;
  f.thread = current ? int32_t(current->index) : -1;
  if (group) {
    f.threadgroup[0] = group->position.x;
    f.threadgroup[1] = group->position.y;
    f.threadgroup[2] = group->position.z;
  }
  f.line = int32_t(detail.site.line);
  if (detail.site.file) snprintf(f.file, sizeof f.file, "%s", detail.site.file);
  snprintf(f.name, sizeof f.name, "%s", detail.name);
  Dl_info module;
  if (detail.pc && dladdr(detail.pc, &module))
    f.pc = uint64_t(static_cast<char*>(detail.pc) - static_cast<char*>(module.dli_fbase));
  vsnprintf(f.message, sizeof f.message, format, arguments);
}

// A value that nobody wrote explains an index gone wrong, and is explained by a race or a divergence.
static void conclude(const FailureDetail& detail, const char* format, va_list arguments) {
  failed = true;
  bool explained = detail.kind == Kind::race || detail.kind == Kind::divergence;
  if (suspicion.kind != 0 && !explained)
    *failure = suspicion;
  else
    describe(*failure, detail, format, arguments);
}

void suspect(const FailureDetail& detail, const char* format, ...) {
  if (suspicion.kind != 0) return;
  va_list arguments;
  va_start(arguments, format);
  describe(suspicion, detail, format, arguments);
  va_end(arguments);
}

void confirm_suspicion() {
  if (suspicion.kind == 0 || failed) return;
  *failure = suspicion;
  failed = true;
}

void describe_failure(const FailureDetail& detail, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  conclude(detail, format, arguments);
  va_end(arguments);
}

void fail(const FailureDetail& detail, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  conclude(detail, format, arguments);
  va_end(arguments);
  group->prepared = 0;  // the other threads stand somewhere in the kernel: their stacks are made anew
  void* abandoned;
  mlx_tx_switch(&abandoned, group->main_stack);
  __builtin_unreachable();
}

// A fault that stops the process: say what is known on the answer channel, then end. The caller starts another worker.
static void on_signal(int number, siginfo_t* info, void*) {
  char answer[512];
  bool late = number == SIGALRM;
  bool overflow = !late && group && group->stacks.guards(info->si_addr);
  const char* what = late               ? "the launch did not end within its time limit"
                     : overflow         ? "a thread overflowed its stack"
                     : number == SIGFPE ? "integer division by zero"
                     : number == SIGILL ? "illegal instruction"
                                        : "access to an address that belongs to no buffer";
  Kind kind = late ? Kind::deadlock : number == SIGSEGV || number == SIGBUS ? Kind::out_of_bounds : Kind::crash;
  int n = snprintf(answer, sizeof answer,
                   "{\"fatal\": true, \"failure\": {\"kind\": %d, \"buffer\": -1, \"offset\": -1, \"thread\": %d, "
                   "\"threadgroup\": [%u, %u, %u], "
                   "\"line\": 0, \"pc\": 0, \"name\": \"\", \"file\": \"\", \"message\": \"%s\"}}\n",
                   int(kind), current ? int(current->index) : -1, group ? group->position.x : 0,
                   group ? group->position.y : 0, group ? group->position.z : 0, what);
  if (n > 0 && write(signal_fd, answer, size_t(n)) < 0) _exit(4);
  _exit(3);
}

// Flushing denormals to zero is what a GPU may do; the setting of the calling code is put back afterwards.
class FloatingMode {
 public:
  explicit FloatingMode(bool flush) {
#if defined(__x86_64__)
    saved_ = _mm_getcsr();
    _mm_setcsr(flush ? saved_ | 0x8040 : saved_ & ~0x8040u);
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    uint64_t bit = uint64_t(1) << 24, mode = flush ? saved_ | bit : saved_ & ~bit;
    asm volatile("msr fpcr, %0" : : "r"(mode));
#endif
  }
  ~FloatingMode() {
#if defined(__x86_64__)
    _mm_setcsr(saved_);
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(saved_));
#endif
  }

 private:
#if defined(__x86_64__)
  uint32_t saved_;
#else
  uint64_t saved_ = 0;
#endif
};

static Group& only_group() {  // one process runs one threadgroup at a time; its stacks and memory are made once
  static Group* instance = new Group();
  return *instance;
}

// Groups of a grid run in no promised order either: the order of threads is theirs too.
static std::vector<uint64_t> group_order(const LaunchRequest& request, uint64_t count) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (Order(request.order) == Order::reverse) std::reverse(numbers.begin(), numbers.end());
  if (Order(request.order) == Order::random) {
    std::mt19937_64 generator(request.seed);
    for (size_t i = numbers.size(); i > 1; i--) std::swap(numbers[i - 1], numbers[generator() % i]);
  }
  return numbers;
}

static int run(Entry entry, const LaunchRequest& request) {
  uint64_t threads = uint64_t(request.threadgroup[0]) * request.threadgroup[1] * request.threadgroup[2];
  if (threads > MAX_THREADS || threads == 0) {
    describe_failure({.kind = Kind::threads}, "a threadgroup of %llu threads; 1 to %u are allowed",
                     static_cast<unsigned long long>(threads), MAX_THREADS);
    return 1;
  }
  void* pointers[MAX_BUFFERS] = {};
  for (uint32_t i = 0; i < request.buffer_count; i++)
    pointers[i] =
        request.buffers[i].size ? request.arena + request.buffers[i].offset + request.buffers[i].origin : nullptr;
  Uint3 groups{(request.grid[0] + request.threadgroup[0] - 1) / request.threadgroup[0],
               (request.grid[1] + request.threadgroup[1] - 1) / request.threadgroup[1],
               (request.grid[2] + request.threadgroup[2] - 1) / request.threadgroup[2]};
  uint64_t count = uint64_t(groups.x) * groups.y * groups.z;
  if (request.checked) shadow_start_launch();
  fill_red_zones(request);
  {
    FloatingMode mode(request.flush_denormals);
    for (uint64_t number : group_order(request, count)) {
      run_group(entry, pointers,
                {uint32_t(number % groups.x), uint32_t(number / groups.x % groups.y),
                 uint32_t(number / (uint64_t(groups.x) * groups.y))},
                groups);
      if (failed) break;
    }
  }
  if (request.checked) shadow_count_unwritten();
  if (!failed) check_red_zones(request);
  return failed;
}

}  // namespace emu

extern "C" {

// Answers of fatal signals go to `fd`. Handlers run on a stack of their own: the fiber's may be the one that
// overflowed.
__attribute__((visibility("default"))) void mlx_tx_install_handlers(int fd) {
  static char stack[64 << 10];
  emu::signal_fd = fd;
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action{};
  action.sa_sigaction = emu::on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) sigaction(number, &action, nullptr);
}

// Runs groups of a grid. 0: done; 1: `failure` says what is wrong. `time_limit` in seconds, 0 for none.
__attribute__((visibility("default"))) int mlx_tx_launch(emu::Entry entry, const emu::LaunchRequest* request,
                                                         emu::Counters* counters, emu::Failure* failure,
                                                         double time_limit) {
  memset(counters, 0, sizeof *counters);
  emu::launch = request;
  emu::counters = counters;
  emu::failure = failure;
  emu::failed = false;
  emu::suspicion.kind = 0;
  emu::group = &emu::only_group();
  itimerval timer{};
  timer.it_value.tv_sec = time_t(time_limit);
  timer.it_value.tv_usec = suseconds_t((time_limit - double(timer.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_REAL, &timer, nullptr);
  int status = emu::run(entry, *request);
  timer = {};
  setitimer(ITIMER_REAL, &timer, nullptr);
  emu::launch = nullptr;
  return status;
}
}
