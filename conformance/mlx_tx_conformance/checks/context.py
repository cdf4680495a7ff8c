"""One case posed to one target: running calls, with what every run must satisfy whatever the clause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..bounds import Bound, bound_call
from ..call import Call, Result, Target, Unsupported


class Departure(Exception):
    """The implementation broke a rule that holds for every run; the message says which."""


@dataclass
class Context:
    """A case, the target that it is posed to, and the call that the case describes."""

    case: Any
    target: Target
    call: Call
    path: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    def run(self, call: Call | None = None) -> Result:
        """Run a call (by default the case's own).

        Raises :class:`Unsupported` when the target declares that it does not do this, and :class:`Departure` when
        the result has a wrong name, shape or dtype, when an input was changed, or when another path than the one
        the case asks for ran.
        """
        call = self.call if call is None else call
        self.require(call)
        kept = {name: array.copy() for name, array in call.arrays.items()}
        result = self.target.run(call)
        self.path = result.path or self.path
        for name, array in kept.items():
            if name in result.mutated or not _same_bytes(array, call.arrays[name]):
                raise Departure(f"the call changed its input {name!r}")
        for name in call.outputs:
            if name not in result.outputs:
                raise Departure(f"no output {name!r}; the call gave {', '.join(result.outputs) or 'nothing'}")
        if self.case.path and self.case.path != result.path:
            raise Departure(f"path {self.case.path!r} was asked for and {result.path or 'an unnamed path'!r} ran")
        return result

    def require(self, call: Call) -> None:
        """Raise :class:`Unsupported` where the target does not do this, or not by the path that the case is about."""
        reason = self.target.supports(call)
        if reason is None and self.case.path:
            # A target of somebody's own may not know paths at all: then the case is not for it.
            refusal = getattr(self.target, "path_refusal", lambda path: f"no path {path}")
            reason = refusal(self.case.path)
        if reason is not None:
            raise Unsupported(reason)

    def kernel_counts(self, call: Call | None = None) -> Any:
        """What the kernels of a call do (figures, tile sizes, path).

        Raises :class:`Unsupported` where the target counts none, and :class:`Departure` for another path than the
        case asks for.
        """
        call = self.call if call is None else call
        self.require(call)
        count = getattr(self.target, "kernel_counts", None)
        if count is None:
            raise Unsupported("no counts of kernels")
        found = count(call)
        self.path = found.path or self.path
        if self.case.path and self.case.path != found.path:
            raise Departure(f"path {self.case.path!r} was asked for and {found.path or 'an unnamed path'!r} ran")
        return found

    def bounds(self, call: Call | None = None, input_error: Mapping[str, np.ndarray] | None = None) -> dict[str, Bound]:
        """The oracle's values and error bounds for a call, in the precision class that the target declares."""
        call = self.call if call is None else call
        return bound_call(call, self.target.precision(call.dtype), input_error=input_error)


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
