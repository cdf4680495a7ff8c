"""The strict check for Metal kernel sources: what can be said about them without Apple's compiler.

It accepts the attention kernels that MLX ships and refuses what is known not to compile or not to be safe on some
Mac. That it accepts a source does not prove that Apple's compiler does.
"""

from .check import (
    check_kernel,
    check_paths,
    check_source,
    check_words,
    inspect_kernel,
    inspect_source,
    main_check,
)
from .compiler import LibclangMissingError, available
from .findings import Finding, Report
from .kernel import Instance, KernelInput, KernelOutput, KernelSource
from .rules import RULES

__all__ = [
    "RULES",
    "Finding",
    "Instance",
    "KernelInput",
    "KernelOutput",
    "KernelSource",
    "LibclangMissingError",
    "Report",
    "available",
    "check_kernel",
    "check_paths",
    "check_source",
    "check_words",
    "inspect_kernel",
    "inspect_source",
    "main_check",
]
