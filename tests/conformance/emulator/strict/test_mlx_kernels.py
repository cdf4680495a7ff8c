"""MLX's own kernels are known to compile on Macs: the check must find nothing in them."""

from __future__ import annotations

import pytest

from mlx_tx_conformance.emulator.strict import check_source, inspect_source

KERNELS = "mlx/backend/metal/kernels"
DTYPES = ("float", "float16_t", "bfloat16_t")
# (file, kernel templates with {T} for the dtype)
ATTENTION = {
    "sdpa_vector.h": (
        "sdpa_vector<{T}, 64, 64>",
        "sdpa_vector<{T}, 128, 128>",
        "sdpa_vector<{T}, 256, 256>",
        "sdpa_vector_2pass_1<{T}, 96, 96>",
        "sdpa_vector_2pass_1_gqa<{T}, 128, 128, 8, 4>",
        "sdpa_vector_2pass_2<{T}, 128>",
    ),
    "sdpa_blocked.h": ("sdpa_blocked_scale_copy<{T}>", "sdpa_blocked_causal_mask<{T}>"),
    "steel/attn/kernels/steel_attention.h": (
        "attention<{T}, 32, 32, 64, 64, 4, 1, {T}, float>",
        "attention<{T}, 32, 16, 128, 128, 4, 1, bool, float>",
        "attention<{T}, 32, 16, 256, 256, 4, 2, {T}, float>",
    ),
}
OTHERS = {
    "softmax.h": ("softmax_single_row<{T}, float>", "softmax_looped<{T}, float>"),
    "logsumexp.h": ("logsumexp<{T}, float>", "logsumexp_looped<{T}, float>"),
    "gemv.h": (),
    "copy.h": (),
    "ternary.h": (),
    "arange.h": ("arange<{T}>",),
    "steel/gemm/gemm.h": (),
    "gated_delta_update.h": (),
}


@pytest.mark.parametrize("file", [*ATTENTION, *OTHERS])
def test_nothing_is_found(file, mlx_include):
    templates = (ATTENTION | OTHERS)[file]
    calls = [call.format(T=dtype) for dtype in DTYPES for call in templates]
    text = (mlx_include / KERNELS / file).read_text(encoding="utf-8")
    found = check_source(text, where=file, include_dirs=[mlx_include], instances=calls)
    assert found == [], [f.pretty() for f in found]


# Sums by hand: Q tile 32 x (64 + 8) and the larger of K (32 + 8) x 64 and V 32 x (64 + 8), two bytes an element.
STEEL_64 = 2 * (32 * 72 + max(40 * 64, 32 * 72))


@pytest.mark.parametrize(
    ("file", "call", "size"),
    [
        ("steel/attn/kernels/steel_attention.h", "attention<half, 32, 32, 64, 64, 4, 1, half, float>", STEEL_64),
        ("sdpa_vector.h", "sdpa_vector<half, 64, 64>", 4 * (32 * 32 + 32 + 32)),
        ("sdpa_vector.h", "sdpa_vector_2pass_1<half, 64, 64>", 0),
    ],
)
def test_threadgroup_bytes_are_those_by_hand(file, call, size, mlx_include):
    text = (mlx_include / KERNELS / file).read_text(encoding="utf-8")
    checked = inspect_source(text, include_dirs=[mlx_include], instances=[call])
    assert checked.threadgroup_bytes == {call: size}


def test_a_fault_in_an_included_file_is_placed_there(mlx_include, tmp_path):
    folder = tmp_path / KERNELS / "steel" / "attn"
    folder.mkdir(parents=True)
    attention = mlx_include / KERNELS / "steel" / "attn"
    broken = (
        (attention / "loader.h")
        .read_text(encoding="utf-8")
        .replace("const device T* src;", "const threadgroup T* src;")
    )
    (folder / "loader.h").write_text(broken, encoding="utf-8")
    text = (attention / "kernels" / "steel_attention.h").read_text(encoding="utf-8")
    call = "attention<half, 32, 32, 64, 64, 4, 1, half, float>"
    found = check_source(text, include_dirs=[tmp_path, mlx_include], instances=[call])
    assert {(f.where.rsplit("/", 1)[-1], f.rule) for f in found} == {("loader.h", "address-space")}
