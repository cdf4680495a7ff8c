"""The C++ runtime's own tests, plain and under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mlx_tx_conformance.emulator import toolchain

SOURCES = Path(__file__).parent / "runtime"
BUILDS = {
    "plain": ("-O2", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"),
    # Fibers change stacks under the address sanitizer; a fault leaves frames without unwinding them.
    "address": ("-O1", "-g1", "-fsanitize=address"),
    "undefined": ("-O1", "-g1", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
}


@pytest.mark.parametrize("build", BUILDS)
def test_runtime(build: str, tmp_path: Path) -> None:
    program = tmp_path / "test_runtime"
    sources = [str(path) for path in [*sorted(toolchain.RUNTIME.glob("*.cpp")), *sorted(SOURCES.glob("*.cpp"))]]
    flags = ["-std=c++20", *toolchain.machine_flags(), *BUILDS[build], "-I", str(toolchain.RUNTIME), "-I", str(SOURCES)]
    subprocess.run([*toolchain.compiler().command, *flags, *sources, "-o", str(program), "-ldl"], check=True)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0"}
    done = subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "ok\n"
