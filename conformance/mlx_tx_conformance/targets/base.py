"""What an implementation declares before it runs, and what every adapter shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..call import DEFAULT_PRECISION, DTYPES, Call, Result, Unsupported

# Options that the adapter itself carries out, whatever the implementation.
ADAPTER_OPTIONS = frozenset({"compiled"})
# Ops that an adapter makes of an attention function.
ATTENTION_OPS = frozenset({"attention", "attention_gradients", "attention_jvp", "attention_hvp", "attention_vmap"})
# Arrays that belong to the op and are no argument of the implementation's.
CORE_ARRAYS = frozenset({"q", "k", "v", "d_out", "d_lse", "t_q", "t_k", "t_v"})


class TargetError(ValueError):
    """A target that cannot be found, imported or built; the message says what to change."""


@dataclass(frozen=True)
class Capabilities:
    """What an implementation does: argument names by op (``None``: any), its dtypes, and whether it gives the LSE."""

    arguments: Mapping[str, frozenset[str] | None]
    dtypes: frozenset[str] = frozenset(DTYPES)
    lse: bool = False
    compiles: bool = True
    transforms: bool = True
    figures: frozenset[str] = field(default_factory=frozenset)

    def refusal(self, call: Call) -> str | None:
        """Why a call is outside the capabilities, or ``None``."""
        op = "attention" if call.op in ATTENTION_OPS else call.op
        if op not in self.arguments:
            return f"no op {op}"
        if op != call.op and not self.transforms:
            return f"no {call.op.removeprefix('attention_')} of a function that is not MLX's"
        if call.dtype not in self.dtypes:
            return f"no dtype {call.dtype}"
        if op == "attention" and not self.lse and ("lse" in call.outputs or "d_lse" in call.arrays):
            return "no log-sum-exp output"
        if call.options.get("compiled") and not self.compiles:
            return "does not run under mx.compile"
        taken = self.arguments[op]
        if taken is None:
            return None
        given = set(argument_names(call)) - CORE_ARRAYS - ADAPTER_OPTIONS
        missing = sorted(given - taken)
        return f"no argument {', '.join(missing)}" if missing else None


@dataclass(frozen=True)
class Reproduction:
    """A call as plain Python: lines of imports, and an expression over arrays named as in ``call``.

    ``call`` is the call as the implementation gets it (an argument may have been posed through another), ``library``
    what its arrays are made of, ``mlx`` or ``numpy``.
    """

    library: str
    imports: tuple[str, ...]
    expression: str
    call: Call


def keyword_text(call: Call, skip: tuple[str, ...] = ("q", "k", "v", "d_out", "d_lse")) -> dict[str, str]:
    """The arguments of a call beyond q, k and v as Python text: options as literals, arrays by their names."""
    given = {name: value for name, value in call.options.items() if name not in ADAPTER_OPTIONS and value is not None}
    text = {name: repr(tuple(value) if isinstance(value, list) else value) for name, value in given.items()}
    text |= {name: name for name in call.arrays if name not in skip}
    if "q_segments" in text:
        text["segments"] = f"({text.pop('q_segments')}, {text.pop('kv_segments')})"
    return text


def argument_names(call: Call) -> list[str]:
    """The arguments that a call gives, by the name that an implementation would know them by.

    A pair of segment arrays is one argument, and a False flag or a None is as good as absent.
    """
    names = [name for name, value in call.options.items() if value is not None and value is not False]
    for name in call.arrays:
        known = "segments" if name in ("q_segments", "kv_segments") else name
        if known not in names:
            names.append(known)
    return names


class BaseTarget:
    """The target protocol with the parts that do not depend on the array library."""

    def __init__(
        self,
        name: str,
        capabilities: Capabilities,
        *,
        device: str = "cpu",
        precision: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.device = device
        self.capabilities = capabilities
        self._precision = {**DEFAULT_PRECISION, **(precision or {})}

    def precision(self, dtype: str) -> str:
        """The class of roundings that the implementation declares for a dtype."""
        return self._precision[dtype]

    def supports(self, call: Call) -> str | None:
        """``None``, or the reason why this call is outside the declared capabilities."""
        return self.capabilities.refusal(call)

    def path_refusal(self, path: str) -> str | None:
        """Why a case that asks for a path is not for this target, or ``None``."""
        return f"no path {path}"

    def run(self, call: Call) -> Result:
        """Run a call. Raises Unsupported outside the capabilities, and whatever the implementation raises."""
        raise NotImplementedError

    def figure(self, call: Call, figure: str) -> float:
        """Measure a call. Raises Unsupported for a figure that this target does not have."""
        raise Unsupported(f"no figure {figure} for {call.op}")

    def reproduce(self, call: Call) -> Reproduction | None:
        """How to make the call in plain Python, or ``None`` where that cannot be said (a closure, another op)."""
        del call
        return None
