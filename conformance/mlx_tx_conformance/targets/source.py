"""What code a target is, as a hash: parts of a run may be put together only where it is the same."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from .registry import GROUP, file_and_name

# What our own attention is made of.
SOURCES = (".py", ".metal", ".h", ".cpp")


def source_hash(text: str) -> str:
    """A sha256 of the source behind the target that ``text`` names, once it is open; empty where there is none to read.

    ``mlx_tx``: every Python and Metal file of the package. ``mx.fast``: MLX's version. A file, a module or an entry
    point: its own file, and those of the modules that it had imported from its package or folder.
    """
    head, _, tail = text.partition(":")
    if head == "mlx_tx":
        return _hash(_package_files("mlx_tx"))
    if text == "mx.fast":
        try:
            return hashlib.sha256(f"mlx {version('mlx')}".encode()).hexdigest()
        except PackageNotFoundError:
            return ""
    file, _ = file_and_name(text)
    if file is not None:
        return _hash(_with_neighbours(file.resolve(), ""))
    modules = [entry.module for entry in entry_points(group=GROUP) if entry.name == text] or [head] * bool(tail)
    path = getattr(sys.modules.get(modules[0]), "__file__", None) if modules else None
    return _hash(_with_neighbours(Path(path).resolve(), modules[0])) if path else ""


def _package_files(name: str) -> dict[str, Path]:
    spec = importlib.util.find_spec(name)
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec is not None else []
    return {
        path.relative_to(root).as_posix(): path for root in roots for path in root.rglob("*") if path.suffix in SOURCES
    }


def _with_neighbours(path: Path, module: str) -> dict[str, Path]:
    """A module's file and the loaded ones of the same package, or, of a module without one, of the same folder."""
    package = module.partition(".")[0] if "." in module else None
    files = {path.name: path}
    for name, loaded in list(sys.modules.items()):
        file = str(getattr(loaded, "__file__", None) or "")
        if not file.endswith(".py") or name == "__main__":
            continue
        if package is not None and name.partition(".")[0] == package:
            files[name] = Path(file)
        elif package is None and Path(file).resolve().parent == path.parent:
            files[Path(file).name] = Path(file)
    return files


def _hash(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        if path.is_file():
            digest.update(name.encode("utf-8", "surrogateescape") + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
