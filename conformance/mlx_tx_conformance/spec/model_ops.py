"""Whole models as ops."""

from __future__ import annotations

from .op import Op

MODEL_OPS: tuple[Op, ...] = ()
