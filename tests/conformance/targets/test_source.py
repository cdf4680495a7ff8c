"""The hash of a target's code: what changes it and what does not."""

from __future__ import annotations

import sys

import pytest

from mlx_tx_conformance.targets import open_target, source_hash
from mlx_tx_conformance.targets import source as module_under_test

ATTENTION = "import helper\n\ndef attention(q, k, v):\n    return v\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper.py").write_text("x = 1\n")
    (tmp_path / "sourced.py").write_text(ATTENTION)
    (tmp_path / "unrelated.py").write_text("y = 1\n")
    package = tmp_path / "packaged"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("z = 1\n")
    (package / "mine.py").write_text("from . import part\n\ndef attention(q, k, v):\n    return v\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("helper", "sourced", "packaged")]:
        sys.modules.pop(name)
    sys.modules.pop("mlx_tx_target_sourced", None)


@pytest.mark.parametrize(
    ("text", "own", "imported"),
    [
        ("sourced.py", "sourced.py", "helper.py"),
        ("sourced.py:attention", "sourced.py", "helper.py"),
        ("sourced:attention", "sourced.py", "helper.py"),
        ("packaged.mine:attention", "packaged/mine.py", "packaged/part.py"),
    ],
)
def test_it_follows_the_file_and_what_it_imported_from_beside_it(text, own, imported, folder):
    open_target(text)
    first = source_hash(text)
    assert len(first) == 64
    (folder / "unrelated.py").write_text("y = 2\n")
    assert source_hash(text) == first
    (folder / imported).write_text("changed = 1\n")
    second = source_hash(text)
    (folder / own).write_text(ATTENTION + "# more\n")
    assert len({first, second, source_hash(text)}) == 3


def test_our_own_attention_is_all_of_its_python_and_metal(folder, monkeypatch):
    for name in ("a.py", "kernels/b.metal", "kernels/c.h", "notes.md"):
        path = folder / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    (folder / "own" / "__init__.py").write_text("")
    sys.path.insert(0, str(folder))
    found = module_under_test._package_files("own")
    assert sorted(found) == ["__init__.py", "a.py", "kernels/b.metal", "kernels/c.h"]
    assert source_hash("mlx_tx:composed") == source_hash("mlx_tx:blockwise") != source_hash("mx.fast")


def test_what_has_no_source_has_no_hash():
    assert source_hash("nothing") == ""
    assert source_hash("no_such_module:attention") == ""
