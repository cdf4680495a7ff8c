"""The package itself: a cheap import, and every public name where it says."""

import subprocess
import sys

import pytest

import mlx_tx


def test_import_brings_in_neither_mlx_nor_numpy_nor_a_blas():
    program = "import sys, mlx_tx, mlx_tx.openblas; print([m for m in ('mlx.core', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert sorted(mlx_tx.__all__) == sorted(mlx_tx._HOMES)
    assert set(mlx_tx.__all__) <= set(dir(mlx_tx))
    for name in mlx_tx.__all__:
        assert getattr(mlx_tx, name).__name__ == name


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'flash'"):
        _ = mlx_tx.flash
