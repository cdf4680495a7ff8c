"""Which path every attention call took: :func:`record_paths` collects one record for each call in its block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class PathRecord:
    """One call: the path that was asked for, the path that ran, why, and the shapes and dtype it ran on."""

    path: str
    reason: str
    requested: str
    q_shape: tuple[int, ...]
    k_shape: tuple[int, ...]
    v_shape: tuple[int, ...]
    dtype: str


_listeners: ContextVar[tuple[list[PathRecord], ...]] = ContextVar("mlx_tx_path_listeners", default=())


@contextmanager
def record_paths() -> Iterator[list[PathRecord]]:
    """Records the attention calls made inside the block, in order.

    A call inside ``mx.compile`` is recorded when it is traced, not when it runs again. Blocks may be nested: each
    sees the calls made inside it.

    Example:

    .. code-block:: python

        with mlx_tx.record_paths() as calls:
            mlx_tx.scaled_dot_product_attention(q, k, v, causal=True)
        print(calls[0].path, calls[0].reason)
    """
    calls: list[PathRecord] = []
    token = _listeners.set((*_listeners.get(), calls))
    try:
        yield calls
    finally:
        _listeners.reset(token)


def note(record: PathRecord) -> None:
    """Hands a record to every block that is open around the call."""
    for calls in _listeners.get():
        calls.append(record)
