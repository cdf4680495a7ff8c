"""What the kernels refuse, on the host and before any launch."""

from __future__ import annotations

from dataclasses import replace

import mlx.core as mx
import pytest

from mlx_tx.kernels import limits, use_executor
from tests.mlx_tx.kernels.tools import plain, qkv


class Somewhere:
    name = "somewhere"

    def launch(self, kernel, launch):
        raise AssertionError("a refused call was launched")


class SomeMetal(Somewhere):
    name = "metal"


def test_nowhere_to_run() -> None:
    if mx.metal.is_available():
        assert limits.refusal(plain(*qkv())[0], mx.gpu) is None
    else:
        assert "no Metal GPU" in str(limits.refusal(plain(*qkv())[0], None))


def test_an_executor_takes_calls_on_any_stream() -> None:
    with use_executor(Somewhere()):
        assert limits.refusal(plain(*qkv())[0], None) is None
        assert limits.refusal(plain(*qkv())[0], mx.cpu) is None


def test_metal_does_not_take_calls_for_the_cpu() -> None:
    with use_executor(SomeMetal()):
        assert "for the CPU" in str(limits.refusal(plain(*qkv())[0], mx.cpu))
        assert "for the CPU" in str(limits.refusal(plain(*qkv())[0], mx.default_stream(mx.cpu)))
        assert limits.refusal(plain(*qkv())[0], mx.gpu) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"D": 257}, "got D=257, D_v=16"),
        ({"D_v": 300}, "got D=16, D_v=300"),
        ({"T_kv": 2**29}, "lengths must be below"),
    ],
)
def test_sizes_beyond_the_kernels(change: dict[str, int], words: str) -> None:
    with use_executor(Somewhere()):
        assert words in str(limits.refusal(replace(plain(*qkv())[0], **change), None))
