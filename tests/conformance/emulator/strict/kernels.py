"""A kernel that the strict check accepts, and a way to plant one fault in it."""

from __future__ import annotations

from dataclasses import replace

from mlx_tx_conformance.emulator.strict import Instance, KernelInput, KernelOutput, KernelSource

# Row sums of exp(x . y) in tiles: matrices, threadgroup memory, reductions, helpers, both address spaces.
HEADER = """#include <metal_simdgroup>
#include <metal_simdgroup_matrix>

struct Bounds {
  int rows;
  int columns;
};

template <typename T>
METAL_FUNC float at(T source, int row, int column, thread const Bounds& bounds, int width) {
  return row < bounds.rows && column < bounds.columns ? float(source[row * width + column]) : 0.0f;
}

METAL_FUNC float row_maximum(float x) {
  x = max(x, simd_shuffle_xor(x, ushort(1)));
  return max(x, simd_shuffle_xor(x, ushort(8)));
}

METAL_FUNC void fill(threadgroup float* tile, int count, int thread_index) {
  for (int i = thread_index; i < count; i += 32) {
    tile[i] = 0.0f;
  }
}
"""
SOURCE = """constexpr int LD = D + 4;
threadgroup T tile[8 * LD];
threadgroup float sums[8];
const short lane = thread_index_in_simdgroup;
const int block = threadgroup_position_in_grid.x;
Bounds bounds;
bounds.rows = q_shape[0];
bounds.columns = D;
for (int i = lane; i < 8 * D; i += 32) {
  int r = i / D, c = i % D;
  tile[r * LD + c] = static_cast<T>(at(q, block * 8 + r, c, bounds, D));
}
fill(sums, 8, lane);
threadgroup_barrier(mem_flags::mem_threadgroup);
simdgroup_matrix<float, 8, 8> scores = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
for (short d = 0; d < D / 8; d++) {
  simdgroup_matrix<T, 8, 8> left, right;
  simdgroup_load(left, &tile[d * 8], LD);
  simdgroup_load(right, &tile[d * 8], LD, ulong2(0, 0), true);
  simdgroup_multiply_accumulate(scores, left, right, scores);
}
float first = scores.thread_elements()[0] * scale;
float maximum = row_maximum(first);
float weight = fast::exp2(first - maximum) + bias[0];
if (CAUSAL && lane > 3) {
  weight = 0.0f;
}
float total = simd_sum(weight);
device T* row = out + block * 32;
row[lane] = static_cast<T>(total);
"""
INPUTS = (
    KernelInput("q", "T", 2),
    KernelInput("bias", "float32", 1),
    KernelInput("scale", "float32", 0),
)
INSTANCES = tuple(
    Instance({"T": dtype, "D": size, "CAUSAL": causal}, (32, 1, 1))
    for dtype in ("float32", "float16", "bfloat16")
    for size, causal in ((64, True), (128, False))
)
COMPLETE = KernelSource("row_sums", SOURCE, INPUTS, (KernelOutput("out"),), HEADER, INSTANCES)
# For faults one instance does: bfloat16 converts to and from the least.
GOOD = replace(COMPLETE, instances=INSTANCES[4:5])


def plant(old: str, new: str, *, kernel: KernelSource = GOOD) -> KernelSource:
    """The kernel with the one place that reads ``old`` changed, in its source or its header."""
    found = kernel.source.count(old), kernel.header.count(old)
    if sum(found) != 1:
        raise ValueError(f"{old!r} must occur once; it occurs {found}")
    return replace(kernel, source=kernel.source.replace(old, new), header=kernel.header.replace(old, new))


def add(line: str, *, kernel: KernelSource = GOOD) -> KernelSource:
    """The kernel with ``line`` after its barrier."""
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    return plant(barrier, barrier + line + "\n", kernel=kernel)


def helper(text: str, *, kernel: KernelSource = GOOD) -> KernelSource:
    """The kernel with ``text`` at the end of its header."""
    return replace(kernel, header=kernel.header + text + "\n")
