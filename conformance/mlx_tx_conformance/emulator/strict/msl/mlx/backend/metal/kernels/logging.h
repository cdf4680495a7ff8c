#include "mlx/backend/metal/kernels/utils.h"
