"""MLX's Metal headers, rewritten for the emulator: what `mx.fast.metal_kernel` puts before every kernel, and MLX's own
kernels, with which the emulator is tested.

They come with the installed `mlx` wheel, or from the macOS wheel `mlx-metal`, which pip fetches by name into the cache.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from . import toolchain
from .build import Headers
from .errors import unsupported
from .rewrite import to_cpp

KERNELS = "mlx/backend/metal/kernels"
UTILS = f"{KERNELS}/utils.h"
_PLATFORM = "macosx_14_0_arm64"


def installed_root() -> Path | None:
    """The include directory of the installed MLX, if its Metal headers are there."""
    spec = importlib.util.find_spec("mlx")
    for location in (spec.submodule_search_locations or []) if spec else []:
        root = Path(location) / "include"
        if (root / UTILS).is_file():
            return root
    return None


def wheel_root(version: str | None = None) -> Path:
    """The include directory of the macOS wheel of ``mlx-metal``, fetched with pip into the cache on first use.

    ``version`` is the installed MLX's when None. Raises KernelError (unsupported) with pip's message if it fails.
    """
    version = version or importlib.metadata.version("mlx")
    target = toolchain.cache_directory() / "mlx-metal" / version / "include"
    if (target / UTILS).is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as aside:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            f"mlx-metal=={version}",
            "--no-deps",
            "--platform",
            _PLATFORM,
        ]
        command += ["--only-binary=:all:", "--dest", aside, "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(aside).glob("*.whl"))
        if done.returncode or not wheels:
            raise unsupported(f"pip could not fetch the macOS wheel mlx-metal=={version}: {done.stderr.strip()[-500:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(f"mlx/include/{KERNELS}/")]
            wheel.extractall(Path(aside) / "unpacked", names)
        try:
            (Path(aside) / "unpacked" / "mlx" / "include").rename(target)
        except OSError:  # another process was first
            if not (target / UTILS).is_file():
                raise
    return target


@functools.lru_cache(maxsize=8)
def _rewritten(root: Path, cache: Path) -> Path:
    """A copy of the headers below ``root`` as C++, with the emulator's replacements laid over."""
    source = root / KERNELS
    rules = (toolchain.HERE / "rewrite.py").read_bytes()
    key = toolchain.digest([toolchain.tree_digest(source), toolchain.tree_digest(toolchain.OVERLAY), rules])
    target = cache / "mlx-headers" / key
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as aside:
        made = Path(aside) / "include"
        for header in source.rglob("*.h"):
            copy = made / header.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            # Guards, not #pragma once: these headers are precompiled.
            guard = "MLX_TX_" + "".join(c if c.isalnum() else "_" for c in str(header.relative_to(root))).upper()
            text = to_cpp(header.read_text(encoding="utf-8")).replace("#pragma once", "", 1)
            copy.write_text(
                f'#ifndef {guard}\n#define {guard}\n#line 1 "{header.name}"\n{text}\n#endif\n', encoding="utf-8"
            )
        shutil.copytree(toolchain.OVERLAY, made, dirs_exist_ok=True)
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    return target


def headers(root: Path, *includes: str) -> Headers:
    """Metal's and MLX's headers: ``utils.h``, as before every custom kernel, and further ones by name."""
    directory = _rewritten(root, toolchain.cache_directory())
    lines = ["#include <metal_stdlib>", *(f'#include "{name}"' for name in (UTILS, *includes))]
    text = "#ifndef MLX_TX_PRELUDE_H\n#define MLX_TX_PRELUDE_H\n" + "\n".join(lines) + "\n#endif\n"
    return Headers(text, (directory,), directory.name)


def prelude() -> Headers:
    """What stands before a kernel of `mx.fast.metal_kernel`: from the installed MLX, else from the macOS wheel."""
    return headers(installed_root() or wheel_root())
