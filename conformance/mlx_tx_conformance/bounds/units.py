"""The units in which errors are counted: roundoff and underflow per dtype, and the accumulated factor gamma.

The derivation of every constant is in ``conformance/BOUNDS.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

# Unit roundoff of float32, in which every class of arithmetic considered here computes and accumulates.
U = 2.0**-24

# Standard deviations that a probabilistic bound allows.
LAMBDA = 4.0

# A float32 exponential may flush results below e^-87 to zero; 2^-124 is the first power of two above that.
EXP_FLOOR = 2.0**-124


@dataclass(frozen=True)
class Unit:
    """What one dtype can hold.

    ``u`` is the unit roundoff, ``tau`` the largest absolute error of a result that underflows (half the smallest
    subnormal in float16; the smallest normal number elsewhere, since hardware may flush subnormals), ``overflow``
    the least magnitude that rounds to infinity.
    """

    name: str
    dtype: np.dtype
    u: float
    tau: float
    overflow: float


UNITS: Mapping[str, Unit] = MappingProxyType(
    {
        "float32": Unit("float32", np.dtype(np.float32), 2.0**-24, 2.0**-126, (2 - 2.0**-24) * 2.0**127),
        "float16": Unit("float16", np.dtype(np.float16), 2.0**-11, 2.0**-25, (2 - 2.0**-11) * 2.0**15),
        "bfloat16": Unit("bfloat16", np.dtype(ml_dtypes.bfloat16), 2.0**-8, 2.0**-126, (2 - 2.0**-8) * 2.0**127),
    }
)


def unit(dtype: str) -> Unit:
    """The unit of a dtype by name. Raises ``ValueError`` for a dtype that the suite has no bound for."""
    if dtype not in UNITS:
        raise ValueError(f"[bounds] dtype must be one of {', '.join(UNITS)}; got {dtype!r}")
    return UNITS[dtype]


def gamma(n: Any) -> Any:
    """n u / (1 - n u): the largest relative error of n successive float32 roundings (Higham 2002, lemma 3.1)."""
    return n * U / (1 - n * U)
