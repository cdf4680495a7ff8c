"""MLX's own kernel headers, from the wheel that MLX publishes for macOS: fetched once, by package name, into a cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

_PACKAGE = "mlx-metal"
_HEADERS = "mlx/include/mlx/backend/metal/kernels/"


class WheelUnavailableError(Exception):
    """The wheel could not be fetched; the message is pip's reason."""


def cache_dir() -> Path:
    """Where fetched files are kept: ``$MLX_TX_CACHE``, else ``mlx-tx`` in the user's cache folder."""
    if chosen := os.environ.get("MLX_TX_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlx-tx"


def mlx_include(version: str | None = None) -> Path:
    """The include folder of MLX's macOS wheel: ``<it>/mlx/backend/metal/kernels`` holds the headers.

    ``version`` defaults to that of the installed MLX. Only the headers are kept (1.4 of the wheel's 45 MB).
    Raises WheelUnavailableError when pip cannot fetch it.
    """
    version = version or metadata.version("mlx")
    kept = cache_dir() / f"{_PACKAGE}-{version}"
    include = kept / "mlx" / "include"
    if not (include / "mlx/backend/metal/kernels/utils.h").is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            wheel = _download(version, Path(folder))
            unpacked = Path(folder) / "unpacked"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked, [n for n in archive.namelist() if n.startswith(_HEADERS)])
            try:
                unpacked.rename(kept)
            except OSError:
                # Another process was first; what it put there is the same.
                if not include.is_dir():
                    raise
    return include


def _download(version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", f"{_PACKAGE}=={version}", "--no-deps", "--quiet"]
    command += ["--platform", "macosx_14_0_arm64", "--only-binary=:all:", "--dest", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = done.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise WheelUnavailableError(f"{_PACKAGE} {version} for macOS could not be fetched: {reason[0]}")
    return wheels[0]
