"""What a design is given, what it makes, and the registry of designs."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Setting:
    """The case a design makes q, k and v for.

    ``dims`` has B, N_q, N_kv, T_q, T_kv, D, D_v; ``dtype`` is that of q, k and v; ``options`` are the options of the
    call, and ``given`` the names of arrays that the case itself brings (a design adds no mask beside a given one).
    """

    dims: Mapping[str, int]
    dtype: np.dtype
    options: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def __getattr__(self, name: str) -> int:
        if name in ("B", "N_q", "N_kv", "T_q", "T_kv", "D", "D_v"):
            return self.dims[name]
        raise AttributeError(name)

    @property
    def scale(self) -> float:
        """The scale of the scores."""
        scale = self.options.get("scale")
        return float(np.float32(1 / math.sqrt(self.dims["D"]) if scale is None else scale))

    @property
    def restricted(self) -> bool:
        """Whether the case itself says which keys a query sees."""
        rules = ("causal", "window", "mask", "kv_lengths", "segments", "q_segments")
        return any(self.options.get(rule) for rule in rules) or bool(self.given.intersection(rules))

    def queries(self, rng: np.random.Generator, std: float = 1.0) -> np.ndarray:
        """Normal numbers ``[B, N_q, T_q, D]``."""
        return rng.standard_normal((self.B, self.N_q, self.T_q, self.D)) * std

    def keys(self, rng: np.random.Generator, std: float = 1.0) -> np.ndarray:
        """Normal numbers ``[B, N_kv, T_kv, D]``."""
        return rng.standard_normal((self.B, self.N_kv, self.T_kv, self.D)) * std

    def values(self, rng: np.random.Generator) -> np.ndarray:
        """Normal numbers ``[B, N_kv, T_kv, D_v]``."""
        return rng.standard_normal((self.B, self.N_kv, self.T_kv, self.D_v))

    def rounded(self, array: np.ndarray) -> np.ndarray:
        """float64 with the values that the dtype can hold."""
        with np.errstate(over="ignore"):
            return array.astype(self.dtype).astype(np.float64)


Arrays = dict[str, np.ndarray]
Make = Callable[..., Arrays]


@dataclass(frozen=True)
class Design:
    """A way to make q, k and v (and sometimes a mask) that makes faults show.

    ``shows`` says which faults; ``exact`` says where an exact answer exists and what it is (empty: nowhere). The
    expected values of a case come from the oracle all the same. ``parameters`` are its parameters with defaults.
    """

    name: str
    make: Make
    shows: str
    exact: str
    parameters: Mapping[str, Any]

    def __call__(self, rng: np.random.Generator, setting: Setting, **parameters: Any) -> Arrays:
        """Arrays by name, rounded to the dtype of the setting. Raises ``ValueError`` for an unknown parameter."""
        for name in parameters:
            if name not in self.parameters:
                raise ValueError(
                    f"[{self.name}] parameter must be one of {', '.join(self.parameters) or 'none'}; got {name!r}"
                )
        arrays = self.make(rng, setting, **{**self.parameters, **parameters})
        with np.errstate(over="ignore"):
            return {name: x if x.dtype == bool else x.astype(setting.dtype) for name, x in arrays.items()}


_REGISTRY: dict[str, Design] = {}
DESIGNS: Mapping[str, Design] = MappingProxyType(_REGISTRY)


def design(shows: str, exact: str = "") -> Callable[[Make], Make]:
    """Register a function ``(rng, setting, **parameters)`` as the design of its name."""

    def register(make: Make) -> Make:
        signature = inspect.signature(make).parameters.values()
        parameters = {p.name: p.default for p in signature if p.default is not inspect.Parameter.empty}
        _REGISTRY[make.__name__] = Design(make.__name__, make, shows, exact, MappingProxyType(parameters))
        return make

    return register


def find_design(name: str) -> Design:
    """The design of that name. Raises ``ValueError`` with the nearest name for an unknown one."""
    if name not in DESIGNS:
        near = difflib.get_close_matches(name, DESIGNS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"[design] name must be one of {', '.join(DESIGNS)}; got {name!r}{hint}")
    return DESIGNS[name]
