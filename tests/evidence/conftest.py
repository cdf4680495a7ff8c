"""Evidence from other people's software, for the oracle and the plugin, each file collected only where it is installed.

The suite and its tests need none of it: ``pip install mlx-tx[oracle] mlx-lm`` brings it.
"""

from __future__ import annotations

from importlib.util import find_spec

import pytest

NEEDS = {
    "test_oracle_torch.py": "torch",
    "test_models_torch.py": "torch",
    "test_oracle_onnx.py": "onnx",
    "test_layers_onnx.py": "onnx",
    "test_oracle_mpmath.py": "mpmath",
    "test_layers_mpmath.py": "mpmath",
    "test_plugin_mlx_lm.py": "mlx_lm",
}

MISSING = {file: package for file, package in NEEDS.items() if find_spec(package) is None}

collect_ignore = list(MISSING)


def report_line() -> str:
    """What a run says about the evidence."""
    if not MISSING:
        return f"evidence from {', '.join(dict.fromkeys(NEEDS.values()))}"
    return "evidence not run: " + ", ".join(f"{file} (needs {package})" for file, package in MISSING.items())


def pytest_report_header(config: pytest.Config) -> str:
    config.stash[SAID] = True
    return report_line()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    # pytest prints headers of folders named on the command line only; a run of all tests says it at the end.
    if not config.stash.get(SAID, False):
        terminalreporter.write_line(report_line())


SAID = pytest.StashKey[bool]()
