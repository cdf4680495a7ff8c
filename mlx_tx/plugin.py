"""Our attention in the place of ``mx.fast.scaled_dot_product_attention``, for all MLX code of the process.

.. code-block:: python

    mlx_tx.plugin.install()                 # from here on mlx.nn, mlx_lm, ... call ours
    with mlx_tx.plugin.installed(): ...     # or for a block

What is replaced: the attribute of ``mx.fast``, which is looked up at every call by most code, and every name in an
imported module that holds the function itself (``from mlx.core.fast import scaled_dot_product_attention``). Our own
packages keep the original. A reference that is neither (a default argument, a closure, a list) keeps the original too.
Names imported while ours is installed reach the original again once it is not.

What changes for the caller: only what our function answers otherwise (SEM-1, SEM-2, SEM-3, PRC-1): rows without a
visible key give 0. Integer masks (which ours refuses and the original adds) and float64 (CPU only) go to
the original with a warning, so that a program that ran still runs.
"""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import mlx.core as mx

from mlx_tx.attention import scaled_dot_product_attention
from mlx_tx.paths import PATHS
from mlx_tx.values import FUNCTION

__all__ = ["install", "installed", "is_installed", "uninstall"]

_NAME = "scaled_dot_product_attention"
_OWN = ("mlx_tx", "mlx_tx_conformance")
_INSTALL = 0  # the key of install(); blocks have higher ones


class _Plugin:
    """Who asked for the replacement, and what was replaced. The last one who asked decides on the path."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.paths: dict[int, str] = {}
        self.keys = itertools.count(_INSTALL + 1)
        self.original: Any = None
        self.rebound: list[tuple[ModuleType, str]] = []
        self.running = threading.local()

    def hold(self, key: int, path: str) -> None:
        with self.lock:
            self.paths.pop(key, None)
            self.paths[key] = path
            if len(self.paths) == 1:
                # Another replacement than ours may be in place: that is then what we stand in for.
                if getattr(mx.fast, _NAME) is not _replacement:
                    self.original = getattr(mx.fast, _NAME)
                setattr(mx.fast, _NAME, _replacement)
            self._rebind()

    def release(self, key: int) -> None:
        with self.lock:
            if self.paths.pop(key, None) is None or self.paths:
                return
            if getattr(mx.fast, _NAME) is _replacement:
                setattr(mx.fast, _NAME, self.original)
            for module, name in self.rebound:
                if vars(module).get(name) is _replacement:
                    setattr(module, name, self.original)
            self.rebound = []

    def _rebind(self) -> None:
        for module_name, module in list(sys.modules.items()):
            if module_name.partition(".")[0] in _OWN or not isinstance(module, ModuleType) or module is mx.fast:
                continue
            # The dictionary, not getattr: some modules import others when they are asked for a name.
            for name, value in list(vars(module).items()):
                if value is self.original:
                    setattr(module, name, _replacement)
                    self.rebound.append((module, name))

    @property
    def path(self) -> str | None:
        with self.lock:
            return next(reversed(self.paths.values()), None)


_PLUGIN = _Plugin()


def install(path: str = "auto") -> None:
    """Puts ours in the place of ``mx.fast``'s, for all threads, until :func:`uninstall`.

    A second call changes the path and takes in modules imported since. ``path`` is that of
    :func:`mlx_tx.scaled_dot_product_attention`; a path other than ``"auto"`` raises where it does not take a call.

    Raises:
        ValueError: There is no such path.
    """
    _PLUGIN.hold(_INSTALL, _checked(path))


def uninstall() -> None:
    """Takes :func:`install` back; nothing happens where it was not called. Blocks of :func:`installed` stay as is."""
    _PLUGIN.release(_INSTALL)


@contextmanager
def installed(path: str = "auto") -> Iterator[None]:
    """Inside the ``with`` block ours is in place, for all threads; what was before comes back, errors or not.

    Blocks may be nested, and overlap in several threads: ours goes when the last one ends. The block that began last
    decides on the path.
    """
    checked = _checked(path)
    key = next(_PLUGIN.keys)
    _PLUGIN.hold(key, checked)
    try:
        yield
    finally:
        _PLUGIN.release(key)


def is_installed() -> bool:
    """Whether ours is in the place of ``mx.fast``'s now."""
    return _PLUGIN.path is not None


def _checked(path: str) -> str:
    if path not in ("auto", *PATHS):
        names = ", ".join(f'"{name}"' for name in ("auto", *PATHS))
        raise ValueError(f"[mlx_tx.plugin] path must be one of {names}; got {path!r}")
    return path


def _replacement(q: Any, k: Any, v: Any, **arguments: Any) -> Any:
    """``mlx_tx.scaled_dot_product_attention`` while the plugin is installed, the original otherwise."""
    path = _PLUGIN.path
    # A path of ours may itself call mx.fast.
    if path is None or getattr(_PLUGIN.running, "inside", False):
        return _PLUGIN.original(q, k, v, **arguments)
    reason = _left_to_the_original(q, arguments.get("mask"))
    if reason is not None:
        warnings.warn(f"{FUNCTION} {reason}; mx.fast computes this call", RuntimeWarning, stacklevel=2)
        return _PLUGIN.original(q, k, v, **arguments)
    _PLUGIN.running.inside = True
    try:
        return scaled_dot_product_attention(q, k, v, **{"path": path, **arguments})
    finally:
        _PLUGIN.running.inside = False


_replacement.__name__ = _replacement.__qualname__ = _NAME


def _left_to_the_original(q: Any, mask: Any) -> str | None:
    """Why ours refuses a call that ``mx.fast`` takes, or ``None``."""
    if isinstance(q, mx.array) and q.dtype == mx.float64:
        return "float64 stays with the original"
    if isinstance(mask, mx.array) and mx.issubdtype(mask.dtype, mx.integer):
        dtype = str(mask.dtype).removeprefix("mlx.core.")
        return f"mask has dtype {dtype}, which mlx_tx refuses and mx.fast adds to the scores"
    return None
