"""The conformance suite: is this attention right, and which clause does it break?"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .holding import Nonconforming, hold

__version__ = "0.1.0"
__all__ = ["Nonconforming", "__version__", "hold"]


def __getattr__(name: str) -> Any:
    # `from mlx_tx_conformance import hold` gives the function; imported late, so that listing the spec stays fast.
    if name in ("hold", "Nonconforming"):
        from importlib import import_module

        return getattr(import_module(".holding", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
