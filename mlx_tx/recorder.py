"""The stages of a model while it runs: :func:`record_stages` collects every intermediate array by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import mlx.core as mx


class Stages(dict[str, mx.array]):
    """Name to array, in the order of the computation. With ``weights`` it also holds the attention weights."""

    def __init__(self, *, weights: bool = False) -> None:
        super().__init__()
        self.weights = weights


_open: ContextVar[tuple[Stages, ...]] = ContextVar("mlx_tx_stages", default=())


@contextmanager
def record_stages(*, weights: bool = False) -> Iterator[Stages]:
    """Collects the stages of every model that runs inside the block; a later run replaces those of an earlier one.

    With ``weights`` it computes and adds ``layers.{n}.self_attn.weights`` ``[B, N_q, T_q, T_kv]`` and the same of
    cross-attention.

    Example:

    .. code-block:: python

        with mlx_tx.record_stages() as stages:
            model(tokens)
        print(list(stages))
    """
    stages = Stages(weights=weights)
    token = _open.set((*_open.get(), stages))
    try:
        yield stages
    finally:
        _open.reset(token)


def note(name: str, value: mx.array | Callable[[], mx.array]) -> mx.array:
    """Hands stage ``name`` to every open recorder; a function is called only where there is one."""
    recorders = _open.get()
    if callable(value):
        if not recorders:
            return mx.zeros(())
        value = value()
    for stages in recorders:
        stages[name] = value
    return value


def wants_weights() -> bool:
    """Whether an open recorder asks for attention weights."""
    return any(stages.weights for stages in _open.get())
