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

HELP = "versions, devices, BLAS, compiler; what is missing and what to install"

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


def run(args: argparse.Namespace) -> int:
    """Look, print, and exit 3 where something that the suite needs is missing."""
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


LOOKS: tuple[Callable[[], list[Finding]], ...] = (packages, spec_files, devices, compiler)


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
