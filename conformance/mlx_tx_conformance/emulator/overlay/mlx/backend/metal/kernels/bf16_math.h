// The emulator's own headers have the bfloat overloads.
#ifndef MLX_TX_OVERLAY_BF16_MATH_H
#define MLX_TX_OVERLAY_BF16_MATH_H
#endif
