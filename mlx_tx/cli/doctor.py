"""``mlx-tx doctor``: what is here, what is missing, and what to install for it."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from . import device_doctor
from .common import UsageError, count

HELP = "versions, devices, BLAS, compiler; what is missing and what to install; whether the kernels hold on a device"

# Package, whether the suite needs it, and what it is for.
PACKAGES = (
    ("mlx", True, "everything that computes"),
    ("numpy", True, "the oracle"),
    ("pyyaml", True, "the spec"),
    ("jsonschema", True, "the spec"),
    ("ml_dtypes", True, "bfloat16"),
    ("rich", False, "colours and progress: mlx-tx[report]"),
    ("pytest", False, "the tests: mlx-tx[test]"),
    ("hypothesis", False, "the tests: mlx-tx[test]"),
    ("torch", False, "evidence for the oracle: mlx-tx[oracle]"),
    ("onnx", False, "evidence for the oracle: mlx-tx[oracle]"),
    ("mpmath", False, "evidence for the oracle: mlx-tx[oracle]"),
    ("mlx-lm", False, "evidence for the plugin"),
)
GEMM_SIZE = 512


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: what was looked at, what was found, and whether that is enough (``note`` if not)."""

    what: str
    found: str
    fine: bool = True
    note: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("--format", choices=("pretty", "json"), default="pretty")
    parser.add_argument(
        "--device",
        choices=device_doctor.DEVICES,
        help="compile every kernel family there and hold it to the composed path (exit status 1 where one does not)",
    )
    parser.add_argument("--trials", type=count, metavar="N", help="with --device: N calls of each family, not all")


def run(args: argparse.Namespace) -> int:
    """Look, print, and exit 3 where something that the suite needs is missing."""
    if args.device is not None:
        return device_doctor.run(args)
    if args.trials is not None:
        raise UsageError("--trials belongs to --device")
    found = [finding for look in LOOKS for finding in look()]
    if args.format == "json":
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        width = max(len(finding.what) for finding in found)
        for finding in found:
            mark = "ok " if finding.fine else "no "
            note = f"  ({finding.note})" if finding.note else ""
            print(f"{mark} {finding.what:{width}}  {finding.found}{note}")
    return 0 if all(finding.fine for finding in found if finding.what in _needed()) else 3


def _needed() -> set[str]:
    return {name for name, needed, _ in PACKAGES if needed} | {"spec"}


def packages() -> list[Finding]:
    """Versions of what the suite uses."""
    found = [Finding("python", platform.python_version()), Finding("platform", platform.platform())]
    for name, needed, purpose in PACKAGES:
        try:
            found.append(Finding(name, version(name)))
        except PackageNotFoundError:
            note = f"pip install {name}" if needed else f"optional, for {purpose}"
            found.append(Finding(name, "not installed", False, note))
    return found


def spec_files() -> list[Finding]:
    """Whether the clause files are where they should be."""
    from mlx_tx_conformance.data import spec_root

    try:
        root = spec_root()
    except FileNotFoundError as error:
        return [Finding("spec", "missing", False, str(error))]
    return [Finding("spec", f"{sum(1 for _ in root.rglob('*.yaml'))} files in {root}")]


def devices() -> list[Finding]:
    """What MLX computes on, with which BLAS, and how fast that multiplies."""
    from mlx_tx_conformance.runner.environment import device_name, preload_blas

    blas = preload_blas()
    try:
        import mlx.core as mx
    except ImportError as error:
        return [Finding("devices", "none", False, f"MLX does not import: {error}")]
    found = [Finding("cpu", device_name("cpu"))]
    if mx.is_available(mx.gpu):
        found.append(Finding("gpu", device_name("gpu")))
    else:
        found.append(Finding("gpu", "none that MLX can use", False, "the suite runs on the CPU"))
    loaded = "openblas" in blas.lower() or sys.platform == "darwin"
    found.append(emulated_device())
    found.append(
        Finding("blas", blas, loaded, "" if loaded else "apt install libopenblas0 makes MLX's products faster")
    )
    found.append(Finding("float32 product", f"{_gemm_gflops():.0f} GFLOP/s at {GEMM_SIZE}³ (CPU, median of 5)"))
    return found


def compiler() -> list[Finding]:
    """The C++ compiler, for the emulated Metal device."""
    path = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if path is None:
        return [Finding("c++", "none", False, "apt install g++; the emulated Metal device needs it, nothing else does")]
    first = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    return [Finding("c++", f"{path}: {first[0] if first else 'says no version'}")]


def emulated_device() -> Finding:
    """Whether Metal kernels can be run on the CPU here, and what is missing where not."""
    from mlx_tx_conformance import emulator

    missing = emulator.unavailable()
    if missing is not None:
        return Finding("emulated", "not here", False, missing)
    return Finding("emulated", "a Metal device on the CPU, for the kernels' sources")


def cache() -> list[Finding]:
    """Where compiled kernels and MLX's Metal headers are kept."""
    from mlx_tx_conformance.emulator import mlx_headers, toolchain

    folder = toolchain.cache_directory()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    headers = mlx_headers.installed_root() or next(folder.glob("mlx-metal/*/include"), None)
    from_wheel = "pip fetches the macOS wheel mlx-metal when a kernel is first compiled"
    return [
        Finding("compile cache", f"{folder}, {size / 2**20:.0f} MiB (MLX_TX_CACHE names another)"),
        Finding("metal headers", str(headers) if headers else f"not here yet: {from_wheel}"),
    ]


LOOKS: tuple[Callable[[], list[Finding]], ...] = (packages, spec_files, devices, compiler, cache)


def _gemm_gflops() -> float:
    import statistics
    import time

    import mlx.core as mx

    with mx.stream(mx.cpu):
        a = mx.random.normal((GEMM_SIZE, GEMM_SIZE))
        mx.eval(a @ a)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            mx.eval(a @ a)
            times.append(time.perf_counter() - start)
    return float(2 * GEMM_SIZE**3 / statistics.median(times) / 1e9)
