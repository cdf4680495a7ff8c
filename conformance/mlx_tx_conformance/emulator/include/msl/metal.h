// Everything a Metal compute kernel needs to compile as C++20. Include guards, not #pragma once: this is precompiled.
#ifndef MLX_TX_MSL_METAL_H
#define MLX_TX_MSL_METAL_H

#include "kernel.h"
#include "matrix.h"

// Address spaces vanish; the strict check is what knows them. From here on no standard header may be included.
#define thread
#define device
#define constant
#define threadgroup
#define kernel

#endif
