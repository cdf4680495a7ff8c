"""The shipped lists of names agree with the headers they are said to come from."""

from __future__ import annotations

import re

import pytest

from mlx_tx_conformance.emulator.strict.names import load_names

# In MLX's .metal files, which no wheel ships, or part of the language on every device.
NOT_IN_HEADERS = {
    "atomic_thread_fence", "coherent", "memory_order_seq_cst", "thread_scope", "thread_scope_system",
    "threads_per_simdgroup", "uchar4", "uint4", "INFINITY",
}  # fmt: skip


@pytest.fixture(scope="module")
def words(mlx_include):
    """Identifiers outside comments and strings: of ordinary headers, of bf16_math.h, of the M5's."""
    found = {"ordinary": set(), "bfloat": set(), "m5": set()}
    for path in (mlx_include / "mlx/backend/metal/kernels").rglob("*.h"):
        kind = "m5" if "nax" in path.name else "bfloat" if path.name == "bf16_math.h" else "ordinary"
        text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", path.read_text(encoding="utf-8"), flags=re.S)
        found[kind] |= set(re.findall(r"[A-Za-z_]\w*", text))
    return found


def test_used_names_occur_in_ordinary_headers(words):
    assert load_names().used - words["ordinary"] == NOT_IN_HEADERS


def test_m5_names_occur_in_the_m5_headers_only(words):
    assert load_names().m5_only <= words["m5"] - words["ordinary"]


def test_bfloat_names_occur_in_the_bfloat_header_only(words):
    assert load_names().bfloat_only <= words["bfloat"] - words["ordinary"]


def test_never_used_names_occur_nowhere(words):
    assert not set(load_names().never) & (words["ordinary"] | words["bfloat"] | words["m5"])


def test_the_preamble_defines_its_names(mlx_include):
    folder = mlx_include / "mlx/backend/metal/kernels"
    files = ("utils.h", "bf16.h", "bf16_math.h", "complex.h", "defines.h", "logging.h")
    text = "\n".join((folder / name).read_text(encoding="utf-8") for name in files)
    assert [name for name in load_names().preamble if not re.search(rf"\b{name}\b", text)] == []


def test_the_lists_do_not_overlap():
    names = load_names()
    lists = [names.used, names.bfloat_only, names.m5_only, frozenset(names.never)]
    assert sum(map(len, lists)) == len(frozenset().union(*lists))
