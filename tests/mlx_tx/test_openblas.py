"""Finding and loading OpenBLAS: with a stand-in for the system's loader, and for real in a process of its own."""

import os
import subprocess
import sys

import pytest

from mlx_tx import openblas

PROGRAM = """
import sys
from mlx_tx import openblas
found = openblas.preload()
import mlx.core as mx, numpy as np
rng = np.random.default_rng(0)
for shape in ((3, 4, 5), (64, 65, 66), (1, 200, 300)):
    a, b = rng.normal(size=shape[:2]).astype(np.float32), rng.normal(size=shape[1:]).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for got in (mx.array(a) @ mx.array(b), (mx.array(b).T @ mx.array(a).T).T, mx.array(a) @ mx.array(b.T.copy()).T):
        assert np.abs(np.array(got) - exact).max() < 1e-4
print(found)
"""


def in_own_process(choice):
    environment = {name: x for name, x in os.environ.items() if name != openblas.VARIABLE}
    if choice is not None:
        environment[openblas.VARIABLE] = choice
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize("choice", [None, "0", "1"])
def test_products_are_right_whatever_blas_was_loaded(choice):
    code, found, errors = in_own_process(choice)
    assert code == 0, errors
    if choice == "0":
        assert found == "None"
    else:
        assert found == "None" or "openblas" in found


def test_path_that_does_not_exist_is_an_error():
    code, _, errors = in_own_process("/no/such/libopenblas.so")
    if sys.platform == "linux":
        assert code == 1
        assert "OSError" in errors


@pytest.mark.parametrize("choice", ["", "yes", "true", "2", "libopenblas.so.0", "./libopenblas.so"])
def test_other_values_of_the_variable_are_refused(choice):
    with pytest.raises(ValueError, match=f"MLX_TX_OPENBLAS must be 0, 1 or an absolute path; got {choice!r}"):
        openblas.preload({openblas.VARIABLE: choice})


class Library:
    """A loaded library with these symbols."""

    def __init__(self, symbols, config=None):
        for symbol in symbols:
            setattr(self, symbol, None)
        if config is not None:
            self.openblas_get_config = Function(config)


class Function:
    """A C function without arguments."""

    def __init__(self, value):
        self.value, self.restype = value, None

    def __call__(self):
        return self.value


@pytest.fixture
def loader(monkeypatch):
    """A stand-in for the system's loader: libraries by name, and the (name, global?) of what was loaded."""
    libraries, loaded = {}, []

    def load(name, mode):
        if name not in libraries:
            raise OSError(f"{name}: cannot open shared object file")
        loaded.append((name, bool(mode & os.RTLD_GLOBAL)))
        return Library(**libraries[name])

    monkeypatch.setattr(openblas.ctypes, "CDLL", load)
    monkeypatch.setattr(openblas.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(openblas.sys, "platform", "linux")
    monkeypatch.setattr(openblas.sys, "modules", {})
    return libraries, loaded


def test_first_library_that_serves_is_loaded_with_global_symbols(loader):
    libraries, loaded = loader
    libraries["libopenblas.so"] = {"symbols": openblas.NEEDED, "config": b"OpenBLAS 0.3.21"}
    libraries["libopenblasp.so.0"] = {"symbols": openblas.NEEDED}
    assert openblas.preload({}) == "libopenblas.so"
    assert loaded == [("libopenblas.so", False), ("libopenblas.so", True)]


def test_nothing_is_loaded_where_there_is_none(loader):
    assert openblas.preload({}) is None
    assert loader[1] == []


def test_library_without_the_functions_or_with_wide_integers_is_passed_over(loader):
    libraries, loaded = loader
    libraries["libopenblas.so.0"] = {"symbols": ["scipy_cblas_sgemm"]}
    libraries["libopenblas.so"] = {"symbols": openblas.NEEDED, "config": b"OpenBLAS 0.3.21 USE64BITINT"}
    assert openblas.preload({}) is None
    assert not any(everywhere for _, everywhere in loaded)
    libraries["/lib/x.so"] = {"symbols": []}
    with pytest.raises(OSError, match="lacks cblas_sgemm, cblas_dgemm, cblas_cgemm"):
        openblas.preload({openblas.VARIABLE: "/lib/x.so"})


def test_zero_another_system_or_a_late_call_load_nothing(loader, monkeypatch):
    libraries, loaded = loader
    libraries["libopenblas.so.0"] = {"symbols": openblas.NEEDED}
    assert openblas.preload({openblas.VARIABLE: "0"}) is None
    monkeypatch.setattr(openblas.sys, "modules", {"mlx.core": None})
    assert openblas.preload({}) is None
    monkeypatch.setattr(openblas.sys, "modules", {})
    monkeypatch.setattr(openblas.sys, "platform", "darwin")
    assert openblas.preload({}) is None
    assert loaded == []


def test_path_of_the_variable_is_loaded(loader):
    libraries, loaded = loader
    libraries["/opt/libopenblas.so"] = {"symbols": openblas.NEEDED}
    assert openblas.preload({openblas.VARIABLE: "/opt/libopenblas.so"}) == "/opt/libopenblas.so"
    assert loaded[-1] == ("/opt/libopenblas.so", True)


def test_name_that_the_system_knows_comes_first(monkeypatch):
    monkeypatch.setattr(openblas.ctypes.util, "find_library", lambda name: "libopenblas.so.9")
    assert openblas.candidates()[0] == "libopenblas.so.9"
    assert len(set(openblas.candidates())) == len(openblas.candidates())
