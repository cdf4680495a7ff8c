"""A mutant: one planted fault in the source of an implementation, and the clause that must name it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

# The module that reads the sources of kernels, when it is imported or later.
_READER_OF_KERNELS = "mlx_tx.kernels.chassis"


class StaleMutant(Exception):
    """The text that a mutant replaces is no longer (or more than once) in the source."""


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new`` in the source of ``module``; cases of ``clause`` posed to ``target`` must then fail.

    ``module`` is a dotted name, or the path of a Metal source in its package (``mlx_tx/kernels/....metal``), which
    the kernels' host code then reads with the fault in it. ``clause`` is a glob over case ids (``MSK-1/*``), narrow
    enough that a kill names the fault. ``device`` is where the target runs.
    """

    name: str
    module: str
    old: str
    new: str
    clause: str
    target: str = "mlx_tx:composed"
    about: str = ""
    device: str = "cpu"

    @property
    def is_kernel(self) -> bool:
        """Whether the fault is in the source of a Metal kernel."""
        return self.module.endswith(".metal")

    def apply(self, source: str) -> str:
        """The mutated source. Raises :class:`StaleMutant` unless ``old`` occurs exactly once."""
        count = source.count(self.old)
        if count != 1:
            raise StaleMutant(f"mutant {self.name}: {self.old!r} occurs {count} times in {self.module}, expected once")
        return source.replace(self.old, self.new)

    def check(self) -> None:
        """Raises :class:`StaleMutant` if the mutant no longer applies, and ``SyntaxError`` if it does not compile.

        Whether a Metal source compiles is seen when it is run.
        """
        path = _source_of(self.module)
        mutated = self.apply(path.read_text(encoding="utf-8"))
        if not self.is_kernel:
            compile(mutated, str(path), "exec")

    def plant(self) -> None:
        """Make this process import the mutated module, or read the mutated source. Call before it is first used."""
        first_user = _READER_OF_KERNELS if self.is_kernel else self.module
        if first_user in sys.modules:
            raise RuntimeError(f"mutant {self.name}: {first_user} is imported already")
        if self.is_kernel:
            self._plant_kernel()
        else:
            sys.meta_path.insert(0, _Finder(self))

    def _plant_kernel(self) -> None:
        from mlx_tx.kernels import sources

        read = sources.read_source
        faulty = Path(self.module).name
        sources.read_source = lambda file: self.apply(read(file)) if file == faulty else read(file)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module from mutated source, past the byte-code cache."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = Path(path).read_text(encoding="utf-8")
        return compile(self.mutant.apply(source), path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=_Loader(fullname, spec.origin, self.mutant),
            submodule_search_locations=spec.submodule_search_locations,
        )


def _source_of(module: str) -> Path:
    if module.endswith(".metal"):
        package, _, file = module.rpartition("/")
        return _source_of(f"{package.replace('/', '.')}.sources").with_name(file)
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise StaleMutant(f"there is no module {module}")
    return Path(spec.origin)
