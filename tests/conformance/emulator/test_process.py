"""Workers, the compiler and the cache: what a crash, a missing compiler or a second process changes, and what not."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mlx_tx_conformance import emulator
from mlx_tx_conformance.emulator import KernelError, Options, mlx_headers, toolchain
from tests.conformance.emulator.run_kernel import launch

COPY = "uint i = thread_position_in_grid.x; out[i] = x[i];"
X = np.arange(64, dtype=np.float32)


def copy(options: Options | None = None) -> np.ndarray:
    return launch(COPY, {"x": X}, {"out": ((64,), "float32")}, 64, 32, options=options)[0][0]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("device float* p = 0; p[0] = 1;", "out-of-bounds"),
        ("out[0] = x[size_t(1) << 60];", "out-of-bounds"),
        ("out[thread_position_in_grid.x] = 7 / int(x[0]);", "crash"),
        ("for (;;) { if (x[0] > 1) break; } out[thread_position_in_grid.x] = 1;", "deadlock"),
        ("__builtin_trap();", "crash"),
    ],
)
@pytest.mark.parametrize("checked", [False, True])
def test_a_kernel_that_ends_its_process_ends_only_that(body: str, kind: str, checked: bool) -> None:
    with pytest.raises(KernelError) as caught:
        launch(body, {"x": X}, {"out": ((64,), "float32")}, options=Options(checked=checked, time_limit=0.3))
    assert caught.value.kind == kind
    assert caught.value.kernel == "probe"
    np.testing.assert_array_equal(copy(), X)


def test_red_zones_see_writes_past_the_end_without_hooks() -> None:
    with pytest.raises(KernelError, match="a byte outside the buffer was written") as caught:
        launch("uint i = thread_position_in_grid.x; out[i + 1] = x[i];", {"x": X}, {"out": ((64,), "float32")}, 64, 32)
    assert (caught.value.kind, caught.value.buffer, caught.value.offset) == ("out-of-bounds", "out", 256)
    body = "threadgroup float t[30]; t[thread_index_in_threadgroup] = 1; out[0] = 0;"
    with pytest.raises(KernelError, match="behind the threadgroup array") as caught:
        launch(body, {"x": X}, {"out": ((64,), "float32")})
    assert (caught.value.kind, caught.value.buffer, caught.value.offset) == ("out-of-bounds", "t", 120)


def test_what_is_never_written_is_nan() -> None:
    out = launch("if (thread_position_in_grid.x == 0) out[0] = 1;", {}, {"out": ((4,), "float32")}, 4)[0][0]
    assert out[0] == 1
    assert np.isnan(out[1:]).all()


def test_the_checked_build_counts_what_is_never_written() -> None:
    body = "uint i = thread_position_in_grid.x; if (i % 2) out[i] = 1; all[i] = 2;"
    outputs = {"out": ((8,), "float32"), "all": ((8,), "float32")}
    counts = launch(body, {}, outputs, 8, options=Options(checked=True))[1]
    assert counts.bytes_unwritten == {"out": 16}


def test_groups_run_in_the_order_asked_for() -> None:
    body = "order[atomic_fetch_add_explicit(&next[0], 1, memory_order_relaxed)].value = threadgroup_position_in_grid.x;"
    seen = {}
    for order in ("forward", "reverse", "random"):
        outputs = {"next": ((1,), "int32"), "order": ((16,), "int32")}
        options = Options(order=order, seed=1)
        seen[order] = launch(body, {}, outputs, 16, 1, options=options, init_value=0, atomic=True)[0][1].tolist()
    assert seen["forward"] == list(range(16))
    assert seen["reverse"] == list(range(16))[::-1]
    assert sorted(seen["random"]) == list(range(16))
    assert seen["random"] not in (seen["forward"], seen["reverse"])


def test_threads_launch_side_by_side() -> None:
    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(lambda _: copy(), range(16)):
            np.testing.assert_array_equal(out, X)


def test_without_a_compiler_the_device_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = emulator.unavailable()
    assert missing is not None
    assert "apt install g++" in missing
    with pytest.raises(KernelError, match=r"apt install g\+\+") as caught, emulator.device():
        pass
    assert caught.value.kind == "unsupported"


def test_with_a_compiler_nothing_is_missing() -> None:
    assert emulator.unavailable() is None


def test_the_cache_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLX_TX_CACHE", str(tmp_path / "a"))
    assert toolchain.cache_directory() == tmp_path / "a"
    monkeypatch.delenv("MLX_TX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert toolchain.cache_directory() == tmp_path / "b" / "mlx-tx"


def test_a_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # In a process of its own, so that nothing is remembered: the second run must find everything in the cache.
    program = (
        "import sys\n"
        "from mlx_tx_conformance.emulator import toolchain\n"
        "run, calls = toolchain.Compiler.run, []\n"
        "def counted(self, arguments, kernel=''):\n"
        "    calls.append(kernel)\n"
        "    return run(self, arguments, kernel)\n"
        "toolchain.Compiler.run = counted\n"
        "from tests.conformance.emulator.test_process import copy\n"
        "copy()\n"
        "print(len(calls))\n"
    )
    environment = {**os.environ, "MLX_TX_CACHE": str(tmp_path)}
    root = Path(__file__).resolve().parents[3]
    compilations = [
        int(
            subprocess.run(
                [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(2)
    ]
    assert compilations == [4, 0]  # the runtime, the prelude, the kernel, its link


def test_half_made_files_never_take_the_final_name(tmp_path: Path) -> None:
    def fails(target: Path) -> None:
        target.write_text("half")
        raise KernelError("compile", "no")

    with pytest.raises(KernelError):
        toolchain.publish(tmp_path / "library.so", fails)
    assert list(tmp_path.iterdir()) == []


def test_the_macos_wheel_is_fetched_by_name_with_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "mlx_metal.whl", "w") as wheel:
            wheel.writestr(f"mlx/include/{mlx_headers.UTILS}", "// utils\n")
            wheel.writestr("mlx/lib/mlx.metallib", "not wanted")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("MLX_TX_CACHE", str(tmp_path))
    monkeypatch.setattr(mlx_headers.subprocess, "run", pip)
    for _ in range(2):
        root = mlx_headers.wheel_root("1.2.3")
        assert (root / mlx_headers.UTILS).read_text() == "// utils\n"
    assert len(commands) == 1
    assert {"mlx-metal==1.2.3", "--no-deps", "macosx_14_0_arm64", "--only-binary=:all:"} <= set(commands[0])
    assert not list(tmp_path.rglob("*.metallib"))


def test_a_wheel_that_cannot_be_fetched_is_unsupported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "no network")

    monkeypatch.setenv("MLX_TX_CACHE", str(tmp_path))
    monkeypatch.setattr(mlx_headers.subprocess, "run", pip)
    with pytest.raises(KernelError, match="no network") as caught:
        mlx_headers.wheel_root("1.2.3")
    assert caught.value.kind == "unsupported"


@pytest.mark.parametrize("wrong", [{"order": "sideways"}, {"time_limit": 0.0}, {"seed": -1}])
def test_wrong_options_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)  # type: ignore[arg-type]
