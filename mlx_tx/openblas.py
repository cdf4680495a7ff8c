"""A fast BLAS for MLX on Linux CPUs.

MLX's Linux wheel carries the reference BLAS, some ten times slower than OpenBLAS. ``libmlx`` looks ``cblas_sgemm`` and
its sisters up by name, so an OpenBLAS that is loaded with global symbols before ``mlx.core`` takes their place.
Importing ``mlx_tx`` does nothing of the kind: the command line and the pytest plugin call :func:`preload`.

The environment variable ``MLX_TX_OPENBLAS`` decides: ``1`` or unset, take the system's OpenBLAS where there is one;
``0``, leave MLX's own; an absolute path, load that library or fail. PyPI's ``scipy-openblas32`` does not serve: its
symbols carry a prefix.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "MLX_TX_OPENBLAS"
NEEDED = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")  # what libmlx imports
SONAMES = ("libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0", "libopenblas-r0.so", "libopenblaso.so.0")


def preload(environment: Mapping[str, str] | None = None) -> str | None:
    """Loads an OpenBLAS for MLX and returns its name or path, or ``None`` where MLX keeps its own BLAS.

    To have an effect it must run before ``mlx.core`` is imported anywhere in the process; afterwards it does nothing
    and returns ``None``. Raises ``ValueError`` for a bad value of ``MLX_TX_OPENBLAS``, and ``OSError`` where a path
    given there cannot be loaded or lacks what MLX needs.
    """
    choice = (os.environ if environment is None else environment).get(VARIABLE, "1")
    if choice not in ("0", "1") and not Path(choice).is_absolute():
        raise ValueError(f"[openblas] {VARIABLE} must be 0, 1 or an absolute path; got {choice!r}")
    if choice == "0" or sys.platform != "linux" or "mlx.core" in sys.modules:
        return None
    if choice != "1":
        _load(choice)
        return choice
    for name in candidates():
        try:
            _load(name)
        except OSError:
            continue
        return name
    return None


def candidates() -> tuple[str, ...]:
    """Names under which the system's loader may know an OpenBLAS, best first, without repetition."""
    found = ctypes.util.find_library("openblas")
    return tuple(dict.fromkeys([*([found] if found else []), *SONAMES]))


def _load(name: str) -> None:
    # Looked at with local symbols first: a library that lacks a function must not be left over MLX's own.
    library = ctypes.CDLL(name, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    missing = [symbol for symbol in NEEDED if not hasattr(library, symbol)]
    if missing:
        raise OSError(f"[openblas] {name} lacks {', '.join(missing)}")
    if hasattr(library, "openblas_get_config"):
        library.openblas_get_config.restype = ctypes.c_char_p
        if b"USE64BITINT" in library.openblas_get_config():
            raise OSError(f"[openblas] {name} takes 64-bit integers; MLX passes 32-bit ones")
    ctypes.CDLL(name, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
