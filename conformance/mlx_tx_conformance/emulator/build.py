"""From C++ text to a loaded-on-demand kernel library, by way of a precompiled header and a cache keyed by content."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import toolchain
from .errors import KernelError

ENTRY = "mlx_tx_kernel"

_COMMON = (
    "-std=c++20",
    "-fPIC",
    "-w",
    "-fno-strict-aliasing",  # kernels reinterpret memory freely
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-finite-loops",  # a loop without end must not be optimised away
    "-fwrapv",  # signed overflow and shifts as hardware does them
)
_FAST = ("-O2",)
# The hooks need every access in the code: no vectoriser, and -O1, at which counts are those of the source.
_CHECKED = ("-O1", "-g1", "-fno-tree-vectorize", "-fsanitize=thread")
_CHECKED_GCC = ("--param", "tsan-instrument-func-entry-exit=0")
_CHECKED_CLANG = (
    "-mllvm",
    "-tsan-instrument-read-before-write=1",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
)


@dataclass(frozen=True)
class Variant:
    """The build of a kernel: with hooks or not, contracted or not."""

    checked: bool = False
    fma: bool = False

    def flags(self, cxx: toolchain.Compiler) -> list[str]:
        flags = [*_COMMON, *(_CHECKED if self.checked else _FAST), *toolchain.machine_flags()]
        if self.checked:
            flags += _CHECKED_CLANG if cxx.is_clang else _CHECKED_GCC
        # GCC's `on` means `off`; both compilers contract across an expression with `fast`.
        return [*flags, f"-ffp-contract={'fast' if self.fma else 'off'}"]


@dataclass(frozen=True)
class Headers:
    """The headers a kernel is compiled with: the text of the precompiled prelude, and where to look for includes.

    ``extra`` are directories searched before the emulator's own; ``key`` identifies their contents.
    """

    prelude: str
    extra: tuple[Path, ...] = ()
    key: str = ""

    def search(self) -> list[str]:
        directories = [*self.extra, toolchain.INCLUDE]
        return [argument for directory in directories for argument in ("-I", str(directory))]


def _headers_key(headers: Headers) -> str:
    contents = toolchain.tree_digest(toolchain.INCLUDE)
    shared = (toolchain.RUNTIME / "abi.h").read_bytes()
    return toolchain.digest([headers.prelude, headers.key, *map(str, headers.extra), contents, shared])


@functools.lru_cache(maxsize=64)
def _prelude(headers: Headers, variant: Variant, root: Path, cxx: toolchain.Compiler) -> tuple[Path, str]:
    """The prelude header with its precompiled form beside it, and the key of both."""
    flags = variant.flags(cxx)
    key = toolchain.digest([_headers_key(headers), " ".join(flags), cxx.version])
    header = root / "prelude" / key / "prelude.h"
    toolchain.publish(header, lambda target: _write(target, headers.prelude))

    def precompile(target: Path) -> None:
        cxx.run([*flags, *headers.search(), "-x", "c++-header", str(header), "-o", str(target)])

    toolchain.publish(header.with_name("prelude.h.gch"), precompile)
    return header, key


def _write(target: Path, text: str) -> None:
    target.write_text(text, encoding="utf-8")


@functools.lru_cache(maxsize=4096)
def _library(text: str, headers: Headers, variant: Variant, kernel: str, root: Path, cxx: toolchain.Compiler) -> Path:
    prelude, prelude_key = _prelude(headers, variant, root, cxx)
    target = root / "kernels" / f"{toolchain.digest([text, prelude_key])}.so"

    def build(made: Path) -> None:
        source = made.with_suffix(".cpp")
        _write(source, text)
        # Undefined symbols are the runtime's and, in checked builds, the hooks': the worker has them loaded.
        flags = [flag for flag in variant.flags(cxx) if flag != "-fsanitize=thread"]
        object_file = made.with_suffix(".o")
        cxx.run(
            [
                *variant.flags(cxx),
                *headers.search(),
                "-include",
                str(prelude),
                "-c",
                str(source),
                "-o",
                str(object_file),
            ],
            kernel,
        )
        cxx.run([*flags, "-shared", str(object_file), "-o", str(made)], kernel)

    return toolchain.publish(target, build)


def kernel_library(text: str, headers: Headers, variant: Variant, kernel: str = "") -> Path:
    """Compiles ``text``, which defines the entry function, unless it is in the cache.

    Raises KernelError: compile with the compiler's errors, unsupported without a compiler.
    """
    return _library(text, headers, variant, kernel, toolchain.cache_directory(), toolchain.compiler())


def source_line(library: Path, pc: int, files: tuple[str, ...]) -> tuple[str, int] | None:
    """File and line of an instruction: the innermost inlined frame that lies in one of the kernel's own ``files``."""
    if not pc:
        return None
    try:
        # The hook's return address is the instruction after the call.
        done = subprocess.run(
            ["addr2line", "-i", "-e", str(library), hex(pc - 1)],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for frame in done.stdout.splitlines():
        path, _, number = frame.partition(":")
        digits = number.split(" ")[0]
        if digits.isdigit() and any(path == name or path.endswith("/" + name) for name in files):
            return next(name for name in files if path.endswith(name)), int(digits)
    return None


__all__ = ["ENTRY", "Headers", "KernelError", "Variant", "kernel_library", "source_line"]
