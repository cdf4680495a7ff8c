"""The sources that kernels are built from."""

from __future__ import annotations

import re

import pytest

from mlx_tx.kernels.chassis import SIGNATURES
from mlx_tx.kernels.sources import COMMON, read_source


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_header_comment_says_what_a_reader_needs(name: str) -> None:
    comment = re.match(r"(//.*\n)+", read_source(f"{name}.metal"))
    assert comment is not None
    for word in ("Grid", "Threadgroup", "Registers", "Invariant"):
        assert word in comment.group()


def test_the_common_header_includes_what_mlx_does_not() -> None:
    assert read_source(COMMON).count("#include <metal_simdgroup") == 2
