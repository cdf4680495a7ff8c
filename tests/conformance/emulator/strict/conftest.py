from __future__ import annotations

from pathlib import Path

import pytest

from mlx_tx_conformance.emulator import mlx_headers


@pytest.fixture(scope="session")
def mlx_include() -> Path:
    """MLX's Metal headers: from the installed wheel, else from the macOS wheel, fetched once into the cache."""
    return mlx_headers.installed_root() or mlx_headers.wheel_root()
