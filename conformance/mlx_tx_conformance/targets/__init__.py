"""Implementations under test: the adapters, and how they are named on the command line."""

from .base import BaseTarget, Capabilities, TargetError
from .function import function_target
from .registry import GROUP, expand_target, open_target
from .source import source_hash

__all__ = [
    "GROUP",
    "BaseTarget",
    "Capabilities",
    "TargetError",
    "expand_target",
    "function_target",
    "open_target",
    "source_hash",
]
