"""A user's own function ``attention(q, k, v, scale, mask=None, ...)`` as a target.

Its arguments are its capabilities: what it does not take is what it does not support. A causal mask, a window or
segments reach a function that takes only ``mask`` as the boolean mask that they are.
"""

from __future__ import annotations

import inspect
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ..call import Call, Result, Unsupported
from .arrays import paired
from .base import ATTENTION_OPS, BaseTarget, Capabilities, Reproduction, keyword_text
from .derive import Arrays
from .forms import BOTH, form_of, forms_taken, is_sound_pair
from .mlx_target import FIGURES, MLXTarget, native
from .posing import BOOLEAN, pose_as_mask, spelled_out

LIBRARIES = ("mlx", "numpy")
OTHER_OPS = ("rope", "alibi_slopes", "softmax", "attention_layer")
CORE = 3  # q, k and v come first, whatever they are called


class UserFunction:
    """What a function takes, and how a call becomes its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        name = getattr(function, "__name__", "it")
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except ValueError:
            raise TypeError(
                f"the arguments of {name} cannot be read, since it is built in; wrap it in a function: "
                f"def attention(q, k, v, scale, mask=None): return {name}(q, k, v, scale=scale, mask=mask)"
            ) from None
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if len(positional) < CORE and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
            raise TypeError(
                f"an attention takes q, k and v first; {name} takes {', '.join(p.name for p in named) or 'nothing'}"
            )
        self.anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.extra = {p.name: p for p in named if p not in positional[:CORE]}
        self.windows = forms_taken(function, self.extra.get("window"))

    @property
    def takes(self) -> frozenset[str] | None:
        """The names of the arguments beyond q, k and v (``None``: any)."""
        return None if self.anything else frozenset(self.extra) - {"return_lse"}

    @property
    def gives_lse(self) -> bool:
        return self.anything or "return_lse" in self.extra

    def posed(self, call: Call) -> frozenset[str]:
        """Which arguments of a call go in through ``mask``."""
        if self.anything or "mask" not in self.extra:
            return frozenset()
        given = set(BOOLEAN) & (
            set(call.arrays) | {n for n, v in call.options.items() if v is not None and v is not False}
        )
        if "q_segments" in call.arrays:
            given |= {"segments"}
        missing = given - set(self.extra)
        if self.window_refusal(call) is not None:
            missing.add("window")
        if "q_offset" in missing and {"causal", "window", "alibi"} & (given - missing):
            # The function would place its own causal mask or window without knowing where the queries stand.
            raise Unsupported("no argument q_offset")
        return frozenset(missing)

    def window_refusal(self, call: Call) -> str | None:
        """Why the function's own argument ``window`` does not take this one, or ``None``."""
        form = form_of(call.options.get("window"))
        if form is None or form in self.windows or "window" not in self.extra:
            return None
        return f"window takes {', '.join(self.windows)} alone, as it is annotated"

    def prepared(self, call: Call) -> Call:
        """The call as the function can be given it. Raises Unsupported where there is no such form."""
        if call.op not in ATTENTION_OPS:
            return call
        call = spelled_out(call)
        posed = self.posed(call)
        refusal = None if "window" in posed else self.window_refusal(call)
        if refusal is not None:
            raise Unsupported(refusal)
        return pose_as_mask(call, posed)

    def __call__(self, arrays: Mapping[str, Any], options: Mapping[str, Any], want_lse: bool) -> tuple[Any, Any]:
        # A flag that is off is as good as absent to a function that does not know it.
        keywords = {n: v for n, v in options.items() if v is not False or self.anything or n in self.extra}
        keywords |= paired(arrays)
        core = [keywords.pop(name) for name in ("q", "k", "v")]
        if want_lse:
            keywords["return_lse"] = True
        scale = self.extra.get("scale")
        if scale is not None and keywords.get("scale") is None and scale.default in (scale.empty, None):
            keywords["scale"] = float(np.float32(1 / np.sqrt(core[0].shape[-1])))
        for name, parameter in self.extra.items():
            if parameter.default is parameter.empty:
                keywords.setdefault(name, False if name in ("causal", "return_lse") else None)
        try:
            result = self.function(*core, **keywords)
        except TypeError as error:
            if "window" in self.extra and self.windows == BOTH and is_sound_pair(keywords.get("window")):
                raise TypeError(
                    f"{error} (window was the pair {keywords['window']}; a function that takes an integer alone "
                    "says so by the annotation window: int | None)"
                ) from error
            raise
        return result if want_lse else (result, None)


class MLXFunction(MLXTarget):
    """A function on MLX arrays."""

    def __init__(self, function: Callable[..., Any], others: Mapping[str, Callable[..., Any]], **rest: Any) -> None:
        self.user = UserFunction(function)
        self.others = dict(others)
        dtypes = rest.pop("dtypes")
        super().__init__(
            capabilities=_capabilities(self.user, self.others, dtypes, transforms=True, figures=FIGURES), **rest
        )

    def supports(self, call: Call) -> str | None:
        return _supports(self.capabilities, self.user, call)

    def prepare(self, call: Call) -> Call:
        return self.user.prepared(call)

    def attend(self, arrays: Arrays, options: Mapping[str, Any], want_lse: bool) -> tuple[Any, Any]:
        return self.user(arrays, options, want_lse)

    def other(self, op: str, arrays: Arrays, options: Mapping[str, Any]) -> Arrays:
        return _named(self.others[op](**arrays, **options))

    def reproduce(self, call: Call) -> Reproduction | None:
        return _reproduce(self.user, call, "mlx")


class NumPyFunction(BaseTarget):
    """A function on NumPy arrays. No gradients, no compile; memory is what NumPy allocates."""

    def __init__(self, function: Callable[..., Any], others: Mapping[str, Callable[..., Any]], **rest: Any) -> None:
        self.user = UserFunction(function)
        self.others = dict(others)
        dtypes = rest.pop("dtypes")
        super().__init__(
            capabilities=_capabilities(
                self.user, self.others, dtypes, transforms=False, figures=frozenset({"peak_bytes"})
            ),
            **rest,
        )

    def supports(self, call: Call) -> str | None:
        return _supports(self.capabilities, self.user, call)

    def run(self, call: Call) -> Result:
        posed = self.user.prepared(call)
        arrays = {name: _laid_out(array, posed.layout.get(name, "contiguous")) for name, array in posed.arrays.items()}
        results = self._results(posed, arrays)
        mutated = tuple(n for n, a in posed.arrays.items() if arrays[n].tobytes() != a.tobytes())
        return Result({name: np.array(value) for name, value in results.items()}, path="", mutated=mutated)

    def figure(self, call: Call, figure: str) -> float:
        if figure != "peak_bytes":
            raise Unsupported(f"no figure {figure} for a function on NumPy arrays")
        posed = self.user.prepared(call)
        arrays = {name: array.copy() for name, array in posed.arrays.items()}
        tracing = tracemalloc.is_tracing()
        if not tracing:
            tracemalloc.start()
        try:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            results = self._results(posed, arrays)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            if not tracing:
                tracemalloc.stop()
        return float(max(0, peak - before - sum(np.asarray(r).nbytes for r in results.values())))

    def reproduce(self, call: Call) -> Reproduction | None:
        return _reproduce(self.user, call, "numpy")

    def _results(self, call: Call, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
        options = {n: native(value) for n, value in call.options.items() if n != "compiled" and value is not None}
        if call.op == "attention":
            out, lse = self.user(arrays, options, "lse" in call.outputs)
            return {"out": out} if lse is None else {"out": out, "lse": lse}
        return _named(self.others[call.op](**arrays, **options))


def function_target(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    device: str = "cpu",
    array_library: str | None = None,
    precision: Mapping[str, str] | None = None,
    dtypes: tuple[str, ...] | None = None,
    others: Mapping[str, Callable[..., Any]] | None = None,
) -> MLXFunction | NumPyFunction:
    """A target from a function of q, k, v and whatever else it takes.

    ``array_library`` is ``"mlx"`` or ``"numpy"``; left out, the function's annotations and its module tell.
    Raises TypeError where the function does not take three arrays, ValueError for another library.
    """
    library = array_library or library_of(function)
    if library not in LIBRARIES:
        raise ValueError(f"[function_target] array_library must be one of {', '.join(LIBRARIES)}; got {library!r}")
    kind = NumPyFunction if library == "numpy" else MLXFunction
    return kind(
        function,
        others or {},
        name=name or getattr(function, "__qualname__", type(function).__name__),
        device=device if library == "mlx" else "cpu",
        precision=precision,
        dtypes=dtypes,
    )


def library_of(function: Callable[..., Any]) -> str:
    """Which arrays a function works on, from its module's setting, its annotations, or what its module imports."""
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    names = getattr(function, "__globals__", None) or (vars(module) if module else {})
    declared = names.get("array_library")
    if isinstance(declared, str):
        return declared
    annotations = " ".join(str(note) for note in getattr(function, "__annotations__", {}).values())
    if "ndarray" in annotations:
        return "numpy"
    if "mx.array" in annotations or "mlx" in annotations:
        return "mlx"
    modules = {value.__name__ for value in names.values() if isinstance(value, ModuleType)}
    if "numpy" in modules and not any(name.split(".")[0].startswith("mlx") for name in modules):
        return "numpy"
    return "mlx"


def _capabilities(
    user: UserFunction, others: Mapping[str, Any], dtypes: tuple[str, ...] | None, **rest: Any
) -> Capabilities:
    takes = user.takes
    posable = frozenset(BOOLEAN) if takes is not None and "mask" in takes else frozenset()
    arguments: dict[str, frozenset[str] | None] = {"attention": None if takes is None else takes | posable}
    arguments |= dict.fromkeys(others)
    if dtypes is not None:
        rest["dtypes"] = frozenset(dtypes)
    return Capabilities(arguments, lse=user.gives_lse, compiles=rest["transforms"], **rest)


def _supports(capabilities: Capabilities, user: UserFunction, call: Call) -> str | None:
    if call.op in ATTENTION_OPS:
        call = spelled_out(call)
    reason = capabilities.refusal(call)
    if reason is not None:
        return reason
    try:
        user.prepared(call)
    except Unsupported as error:
        return str(error)
    return None


def _named(result: Any) -> dict[str, Any]:
    return dict(result) if isinstance(result, Mapping) else {"out": result}


def _laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """A copy with the strides of a layout, as far as NumPy knows it."""
    if layout == "transposed" and array.ndim >= 2:
        one, other = (1, 2) if array.ndim == 4 else (array.ndim - 2, array.ndim - 1)
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, one, other)), one, other)
    if layout == "sliced" and array.ndim >= 1:
        base = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
        base[..., 1:-2] = array
        return base[..., 1:-2]
    return array.copy()


def _reproduce(user: UserFunction, call: Call, library: str) -> Reproduction | None:
    found = _importing(user.function)
    if call.op != "attention" or found is None:
        return None
    call = user.prepared(call)
    text = keyword_text(call)
    scale = user.extra.get("scale")
    if scale is not None and scale.default in (scale.empty, None):
        text.setdefault("scale", "q.shape[-1] ** -0.5")
    for name, parameter in user.extra.items():
        if parameter.default is parameter.empty:
            text.setdefault(name, "False" if name in ("causal", "return_lse") else "None")
    given = "".join(f", {name}={value}" for name, value in text.items())
    imports, name = found
    return Reproduction(library, tuple(imports), f"{name}(q, k, v{given})", call)


def _importing(function: Callable[..., Any]) -> tuple[list[str], str] | None:
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not function:
        return None
    path = getattr(module, "__file__", None)
    if getattr(module, "__mlx_tx_from_file__", False) or module.__name__ == "__main__":
        if path is None:
            return None
        return [
            "import importlib.util",
            f"spec = importlib.util.spec_from_file_location('implementation', {path!r})",
            "implementation = importlib.util.module_from_spec(spec)",
            "spec.loader.exec_module(implementation)",
        ], f"implementation.{name}"
    return [f"from {module.__name__} import {name}"], name
