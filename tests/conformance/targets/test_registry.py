"""Targets by name: built in, modules, files, factories, entry points; and what is said when there is none."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mlx_tx_conformance.call import Call, Target
from mlx_tx_conformance.targets import TargetError, expand_target, open_target

FILE = """
import mlx.core as mx

def attention(q, k, v, scale, mask=None):
    s = (q @ k.swapaxes(-1, -2)) * scale
    s = s if mask is None else mx.where(mask, s, -mx.inf)
    return mx.softmax(s, axis=-1) @ v

def first_value(q, k, v):
    return v

def factory():
    return attention

def alibi_slopes(n_heads):
    return mx.ones((n_heads,))

array_of_nothing = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A file of implementations in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(FILE)
    yield "mine"
    for name in ("mine", "mlx_tx_target_mine"):
        sys.modules.pop(name, None)


def call(**options) -> Call:
    return Call("attention", {n: np.ones((1, 2, 3, 4), np.float32) for n in ("q", "k", "v")}, options)


@pytest.mark.parametrize(
    "text", ["mx.fast", "mlx_tx", "mlx_tx:composed", "mine.py", "mine.py:first_value", "mine:attention", "mine:factory"]
)
def test_a_target_opens_and_runs(text, module):
    target = open_target(text)
    assert isinstance(target, Target)
    assert target.supports(call()) is None
    assert np.array_equal(target.run(call()).outputs["out"], np.ones((1, 2, 3, 4)))


def test_plain_mlx_tx_is_each_path_that_runs_everywhere():
    assert expand_target("mlx_tx") == ("mlx_tx:composed", "mlx_tx:blockwise")
    assert expand_target("mlx_tx:mlx") == ("mlx_tx:mlx",)
    assert expand_target("mx.fast") == ("mx.fast",)
    assert expand_target("mlx_tx", "emulated") == ("mlx_tx:fused",)


def test_the_emulated_device_is_for_kernels_alone():
    with pytest.raises(TargetError, match=r"mx\.fast has none"):
        open_target("mx.fast", "emulated")


def test_other_ops_of_a_file_are_offered(module):
    target = open_target("mine.py")
    assert np.array_equal(target.run(Call("alibi_slopes", {}, {"n_heads": 3})).outputs["out"], np.ones(3))
    assert target.supports(Call("rope", {})) == "no op rope"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mx.fats", r"did you mean 'mx.fast'"),
        ("mlx_tx:blokwise", "composed, blockwise"),
        ("none.py", r"no file none\.py"),
        ("mine.py:atention", "did you mean 'attention'"),
        ("mine:atention", "did you mean 'attention'"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("mine:array_of_nothing", "is an int, expected"),
        ("broken.py", r"broken\.py cannot be loaded: SyntaxError"),
        ("builtin.py", r"cannot be read, since it is built in; wrap it in a function: def attention\(q, k, v"),
        ("giving.py", r"giving\.py\(\) gave an int, expected"),
        ("leaving.py", r"leaving\.py cannot be loaded: SystemExit: 3"),
        ("empty.py", "has no function attention; it has none"),
    ],
)
def test_what_does_not_open_says_why(text, said, module, tmp_path):
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "builtin.py").write_text("import mlx.core as mx\nattention = mx.fast.scaled_dot_product_attention")
    (tmp_path / "giving.py").write_text("def attention(): return 3")
    (tmp_path / "leaving.py").write_text("raise SystemExit(3)")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(TargetError, match=said):
        open_target(text)


def test_settings_of_a_file_hold(module, tmp_path):
    (tmp_path / "theirs.py").write_text(
        "array_library = 'numpy'\nprecision = {'float16': 'split'}\ndtypes = ['float32', 'float16']\n"
        "def attention(q, k, v):\n    assert type(q).__module__ == 'numpy'\n    return v\n"
    )
    target = open_target("theirs.py")
    assert target.precision("float16") == "split"
    assert target.precision("float32") == "f32-internal"
    assert target.supports(Call("attention", {}, {})) is None
    target.run(call())


def test_an_entry_point_is_a_target(module, monkeypatch):
    class Entry:
        name = "theirs"

        @staticmethod
        def load():
            return lambda q, k, v: v

    monkeypatch.setattr("mlx_tx_conformance.targets.registry.entry_points", lambda group: [Entry])
    assert open_target("theirs").name == "theirs"


@pytest.mark.parametrize(
    "text",
    [
        "def attention(*a, **kw): return a[2]",
        "def attention(*a): return a[2]",
        "def attention(q, *rest): return rest[1]",
    ],
)
def test_a_function_of_any_arguments_is_an_attention_and_no_factory(text, module, tmp_path):
    (tmp_path / "any.py").write_text(text)
    target = open_target("any.py")
    assert np.array_equal(target.run(call()).outputs["out"], np.ones((1, 2, 3, 4)))
    assert (target.supports(call(softcap=2.0)) is None) == ("kw" in text)
    assert target.supports(call(scale=0.5)) == (None if "kw" in text else "no argument scale")
