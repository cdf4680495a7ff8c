"""Metal kernels and how they are launched."""

from __future__ import annotations

from .executor import Executor, Kernel, Launch, current_executor, kernels_available, use_executor

__all__ = ["Executor", "Kernel", "Launch", "current_executor", "kernels_available", "use_executor"]
