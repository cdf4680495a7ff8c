// Context switch between fibers, in assembly: 7 to 10 ns where ucontext, which saves the signal mask, takes 330.
#ifndef MLX_TX_EMULATOR_FIBER_H
#define MLX_TX_EMULATOR_FIBER_H

#include <cstddef>

namespace emu {

// Saves the callee-saved registers on the present stack, stores the stack pointer in *save, and continues on `to`.
extern "C" void mlx_tx_switch(void** save, void* to);

// A stack pointer from which mlx_tx_switch starts `entry`, which must not return.
void* prepare_stack(char* top, void (*entry)());

// Stacks with a guard page below each, in one mapping.
class StackPool {
 public:
  explicit StackPool(size_t count);
  char* top(size_t index) const;
  bool guards(const void* address) const;  // is this in a guard page (that is: a stack overflow)?

 private:
  char* base_;
  size_t count_, page_, stride_;
};

}  // namespace emu
#endif
