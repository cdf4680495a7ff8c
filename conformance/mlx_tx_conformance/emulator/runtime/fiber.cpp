#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
asm(R"(
.text
.globl mlx_tx_switch
.type mlx_tx_switch, @function
mlx_tx_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mlx_tx_switch, .-mlx_tx_switch
)");
#elif defined(__aarch64__)
// x19-x28, the frame pointer x29, the return address x30, and the low halves of v8-v15.
asm(R"(
.text
.globl mlx_tx_switch
.type mlx_tx_switch, %function
mlx_tx_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size mlx_tx_switch, .-mlx_tx_switch
)");
#else
#error "the emulator knows x86-64 and aarch64"
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

constexpr size_t STACK_BYTES = 256 << 10;

void* prepare_stack(char* top, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  ASAN_UNPOISON_MEMORY_REGION(top - STACK_BYTES / 2, STACK_BYTES / 2);  // frames of a launch that was abandoned
#endif
  auto** sp = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63));
#if defined(__x86_64__)
  *--sp = nullptr;  // the return address of entry: none. Keeps the stack aligned as after a call.
  *--sp = reinterpret_cast<void*>(entry);
  sp -= 6;
  memset(sp, 0, 6 * sizeof(void*));
#else
  sp -= 20;
  memset(sp, 0, 20 * sizeof(void*));
  sp[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  return sp;
}

StackPool::StackPool(size_t count) : count_(count), page_(size_t(sysconf(_SC_PAGESIZE))), stride_(STACK_BYTES + page_) {
  void* memory =
      mmap(nullptr, count_ * stride_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) abort();
  base_ = static_cast<char*>(memory);
  for (size_t i = 0; i < count_; i++) mprotect(base_ + i * stride_, page_, PROT_NONE);
}

char* StackPool::top(size_t index) const {
  // Tops are staggered by cache lines: at equal offsets all stacks would compete for the same cache sets.
  return base_ + (index + 1) * stride_ - (index & 15) * 64;
}

bool StackPool::guards(const void* address) const {
  auto offset = size_t(static_cast<const char*>(address) - base_);
  return offset < count_ * stride_ && offset % stride_ < page_;
}

}  // namespace emu
