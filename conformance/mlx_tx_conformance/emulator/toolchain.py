"""The system's C++ compiler, the cache of what it built, and the runtime library."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .errors import KernelError, unsupported

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "runtime"
INCLUDE = HERE / "include"
OVERLAY = HERE / "overlay"

_PLACE = re.compile(r"^([\w.]+\.(?:metal|h)):(\d+):", re.M)  # a compiler message about a kernel's own source
_INSTALL_HINT = (
    "the emulated Metal device compiles kernels with the system's C++ compiler and found none; install one "
    "(Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; Alpine: apk add g++; macOS: xcode-select "
    "--install), or name one in the environment variable CXX"
)


def cache_directory() -> Path:
    """Where built kernels, the runtime and MLX's headers are kept: MLX_TX_CACHE, else the XDG cache directory."""
    chosen = os.environ.get("MLX_TX_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mlx-tx"


def check_cache() -> None:
    """Raises KernelError (unsupported) where the cache directory cannot be made or written."""
    folder = cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".trying-", dir=folder):
            pass
    except OSError as error:
        raise KernelError(
            "unsupported",
            f"the emulated Metal device keeps what it builds in {folder}, which cannot be used ({error.strerror}); "
            "name another folder in the environment variable MLX_TX_CACHE",
        ) from error


def publish(target: Path, make: Callable[[Path], None]) -> Path:
    """Makes ``target`` unless it is there: ``make`` writes a file aside, which then takes the name in one step."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as aside:
        made = Path(aside) / target.name
        make(made)
        os.replace(made, target)  # noqa: PTH105 - atomic, also over a file another process made meanwhile
    return target


def digest(parts: Iterable[str | bytes]) -> str:
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()[:24]


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: its command, what `--version` says, and whether it is clang."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version

    def run(self, arguments: Iterable[str], kernel: str = "") -> None:
        """Raises KernelError (compile) with the compiler's own errors."""
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            shown = [line for line in done.stderr.splitlines() if "error" in line or "note:" in line]
            place = _PLACE.search("\n".join(shown))
            raise KernelError(
                "compile",
                "\n".join(shown[:12]) or done.stderr[-2000:],
                kernel,
                file=place.group(1) if place else "",
                line=int(place.group(2)) if place else None,
            )


@functools.lru_cache(maxsize=8)
def _compiler(choice: str | None, _path: str | None) -> Compiler:
    candidates = [choice] if choice else ["c++", "g++", "clang++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return Compiler(tuple(command), done.stdout.splitlines()[0])
    raise unsupported(_INSTALL_HINT)


def compiler() -> Compiler:
    """The compiler named by CXX, or the first of c++, g++, clang++ on the path. KernelError (unsupported) if none."""
    return _compiler(os.environ.get("CXX"), os.environ.get("PATH"))


@functools.lru_cache(maxsize=1)
def machine_flags() -> tuple[str, ...]:
    """Instruction set: AVX2, FMA and F16C where the processor has them, the baseline elsewhere."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        try:
            flags = (
                Path("/proc/cpuinfo")
                .read_text(encoding="utf-8", errors="replace")
                .partition("flags")[2]
                .split("\n")[0]
                .split()
            )
        except OSError:
            flags = []
        return ("-march=x86-64-v3",) if {"avx2", "fma", "f16c", "bmi2"} <= set(flags) else ("-march=x86-64",)
    if machine in ("aarch64", "arm64"):
        return ()
    raise unsupported(f"the emulated Metal device knows x86-64 and aarch64; this machine is {machine}")


@functools.lru_cache(maxsize=4)
def tree_digest(*roots: Path) -> str:
    """Of all files below, names and contents: a change in a header makes every kernel that saw it new."""
    files = sorted(path for root in roots for path in root.rglob("*") if path.is_file())
    return digest(part for path in files for part in (str(path), path.read_bytes()))


def runtime_library() -> Path:
    """The runtime, built on first use."""
    cxx = compiler()
    flags = [
        "-std=c++20",
        "-O3",
        "-fPIC",
        "-shared",
        "-fvisibility=default",
        "-ffp-contract=off",
        "-w",
        *machine_flags(),
    ]
    key = digest([tree_digest(RUNTIME), " ".join(flags), cxx.version])
    sources = sorted(str(path) for path in RUNTIME.glob("*.cpp"))

    def build(target: Path) -> None:
        cxx.run([*flags, *sources, "-o", str(target), "-ldl"])

    return publish(cache_directory() / "runtime" / key / "libmlx_tx_emulator.so", build)
