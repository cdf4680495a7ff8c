"""The texts of the Metal kernels, which lie beside this module."""

from __future__ import annotations

from pathlib import Path

COMMON = "attention_common.metal"


def read_source(file: str) -> str:
    """The text of a ``.metal`` file of this package. Everything that launches a kernel gets its text here."""
    return Path(__file__).with_name(file).read_text(encoding="ascii")
