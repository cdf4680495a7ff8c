"""From what stands after ``--target`` to a target."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ..call import Target
from .base import TargetError
from .function import OTHER_OPS, function_target

GROUP = "mlx_tx_conformance.targets"
BUILT_IN = ("mlx_tx", "mx.fast")


def expand_target(text: str, device: str = "auto") -> tuple[str, ...]:
    """The targets that one word means: plain ``mlx_tx`` is each path that runs on every device.

    On the emulated device it is the one path that has kernels to run there.
    """
    if text == "mlx_tx" and device == "emulated":
        return ("mlx_tx:fused",)
    if text == "mlx_tx":
        from .mlx_tx import PORTABLE_PATHS

        return tuple(f"mlx_tx:{path}" for path in PORTABLE_PATHS)
    return (text,)


def open_target(text: str, device: str = "cpu") -> Target:
    """The target that ``text`` names.

    ``mlx_tx``, ``mlx_tx:PATH``, ``mx.fast``, the name of an entry point, ``package.module:factory``, or a ``.py``
    file with a function ``attention`` (``file.py:name`` for another name). Raises TargetError with what is wrong.
    """
    head, _, tail = text.partition(":")
    if device == "emulated" and text != "mlx_tx:fused":
        raise TargetError(f"the emulated device runs Metal kernels, and {text} has none; use mlx_tx:fused")
    if head == "mlx_tx":
        from .mlx_tx import MlxTx

        return MlxTx(tail or "auto", device)
    if text == "mx.fast":
        from .mx_fast import MxFast

        return MxFast(device)
    file, name = file_and_name(text)
    if file is not None:
        return _from_module(
            _load_file(file), name or "attention", device, label=f"{file.name}:{name}" if name else file.name
        )
    for entry in entry_points(group=GROUP):
        if entry.name == text:
            return _from_object(_loading(text, entry.load), device, text)
    if tail:
        module = _loading(text, lambda: _import(head))
        if not hasattr(module, tail.split(".", maxsplit=1)[0]):
            raise TargetError(
                f"module {head} has no {tail}{_suggestion(tail, [n for n in vars(module) if n[0] != '_'])}"
            )
        return _from_module(module, tail, device, label=text)
    known = [
        *BUILT_IN,
        *(f"mlx_tx:{p}" for p in ("composed", "blockwise")),
        *(e.name for e in entry_points(group=GROUP)),
    ]
    raise TargetError(
        f"no target {text!r}{_suggestion(text, known)}; a target is {', '.join(BUILT_IN)}, mlx_tx:PATH, "
        "package.module:factory, or a .py file with a function attention"
    )


def file_and_name(text: str) -> tuple[Path | None, str]:
    """The file and the function that a target's text names, or ``None`` where it names no file."""
    if text.endswith(".py"):
        return Path(text), ""
    head, _, tail = text.rpartition(":")
    return (Path(head), tail) if head.endswith(".py") else (None, "")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"no file {path}")
    resolved = path.resolve()
    name = f"mlx_tx_target_{resolved.stem}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    module.__mlx_tx_from_file__ = True  # type: ignore[attr-defined]
    sys.modules[name] = module
    # Its neighbours are importable, as if the file had been run.
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    loader = spec.loader
    _loading(str(path), lambda: loader.exec_module(module))
    return module


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _loading(text: str, load: Callable[[], Any]) -> Any:
    """Run a user's import; whatever it raises is said with the target's name."""
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise TargetError(f"target {text} cannot be loaded: {type(error).__name__}: {error}") from error


def _from_module(module: ModuleType, name: str, device: str, label: str) -> Target:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            functions = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
            raise TargetError(
                f"{label} has no function {name}{_suggestion(name, functions)}; it has "
                f"{', '.join(functions) or 'none at all'}"
            )
        found = getattr(found, part)
    return _from_object(found, device, label, vars(module))


def _from_object(found: Any, device: str, label: str, settings: dict[str, Any] | None = None) -> Target:
    """A target from a target, an attention function, or a factory of either."""
    if not inspect.isclass(found) and isinstance(found, Target):
        return found
    if not callable(found):
        raise TargetError(f"{label} is {_kind(found)}, expected a function or a target")
    if _is_factory(found):
        made = _loading(label, found)
        if isinstance(made, Target):
            return made
        if not callable(made):
            raise TargetError(f"{label}() gave {_kind(made)}, expected a function or a target")
        found = made
    settings = settings or {}
    try:
        return function_target(
            found,
            name=label,
            device=device,
            array_library=settings.get("array_library"),
            precision=settings.get("precision"),
            dtypes=tuple(settings["dtypes"]) if "dtypes" in settings else None,
            others={op: settings[op] for op in OTHER_OPS if callable(settings.get(op)) and settings[op] is not found},
        )
    except (TypeError, ValueError) as error:
        raise TargetError(f"{label}: {error}") from error


def _is_factory(found: Callable[..., Any]) -> bool:
    """Something to call without arguments first: a class, or a function that takes nothing it must be given."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return False
    # An attention may take its three arrays as *args, or give them defaults.
    arrays = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return inspect.isclass(found) or (len(arrays) < 3 and not any(p.kind is p.VAR_POSITIONAL for p in parameters))


def _kind(found: Any) -> str:
    name = type(found).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _suggestion(text: str, known: list[str]) -> str:
    close = difflib.get_close_matches(text, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
