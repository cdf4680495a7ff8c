"""Where the suite's data lies: inside the package in a wheel, at the top of the tree in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def spec_root() -> Path:
    """The folder with the clause files, ``schema.json`` and ``sources.yaml``."""
    for candidate in (_PACKAGE / "_data" / "spec", _PACKAGE.parent.parent / "spec"):
        if (candidate / "sources.yaml").is_file():
            return candidate
    raise FileNotFoundError(
        "the spec files are missing: neither a wheel's data nor a checkout's spec/ folder was found"
    )
