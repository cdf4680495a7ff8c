"""The machine and the software that a run rests on, as its header says them."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("mlx", "numpy", "ml_dtypes")
DEVICES = ("cpu", "gpu", "emulated")


class DeviceError(ValueError):
    """A device that this machine does not have; the message says what there is."""


def preload_blas() -> str:
    """Load an OpenBLAS before MLX, where there is one, and say what MLX multiplies with on the CPU.

    Raises DeviceError where the environment asks for a library that does not serve.
    """
    if sys.platform == "darwin":
        return "Accelerate"
    if "mlx.core" in sys.modules:
        return "as the process has it"
    from mlx_tx import openblas

    try:
        found = openblas.preload()
    except (OSError, ValueError) as error:
        raise DeviceError(str(error)) from error
    return f"OpenBLAS ({found})" if found else "MLX's own"


def choose_device(wanted: str) -> str:
    """The device to run on: the one asked for, or (``auto``) the GPU where there is one.

    Raises DeviceError for a device that this machine does not have.
    """
    if wanted == "emulated":
        from .. import emulator

        if not hasattr(emulator, "device"):
            raise DeviceError("the emulated device is not part of this installation")
        return wanted
    import mlx.core as mx

    available = mx.is_available(mx.gpu)
    if wanted == "gpu" and not available:
        raise DeviceError("there is no GPU that MLX can use here; --device cpu and --device emulated need none")
    if wanted == "auto":
        return "gpu" if available else "cpu"
    return wanted


def versions() -> dict[str, str | None]:
    """Versions of the packages that a result depends on, without importing them."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def device_name(device: str) -> str:
    """What the hardware calls itself."""
    if device == "emulated":
        return f"emulated on {platform.machine()}"
    import mlx.core as mx

    info: dict[str, Any] = mx.device_info(mx.gpu if device == "gpu" else mx.cpu)
    return str(info.get("device_name") or platform.processor() or platform.machine())


def describe(device: str, blas: str) -> dict[str, Any]:
    """The facts of the header that only the process with MLX in it knows."""
    return {
        "device": device,
        "device_name": device_name(device),
        "blas": blas,
        "platform": platform.platform(terse=True),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions(),
    }
