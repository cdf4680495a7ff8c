"""The plugin: what it replaces, what it puts back, and what it leaves to the original."""

from __future__ import annotations

import sys
import threading
import types

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import mlx_tx
from mlx_tx import attention, plugin

ORIGINAL = mx.fast.scaled_dot_product_attention
OUT_OF_REACH = (ORIGINAL,)  # the plugin rebinds the name above, as in every module


@pytest.fixture(autouse=True)
def untouched():
    yield
    left = plugin.is_installed()
    plugin.uninstall()
    assert not left
    assert mx.fast.scaled_dot_product_attention is ORIGINAL


def inputs(T_q=5, T_kv=7, dtype=mx.float32):
    shapes = ((1, 4, T_q, 8), (1, 2, T_kv, 8), (1, 2, T_kv, 8))
    keys = mx.random.split(mx.random.key(3), 3)
    return tuple(mx.random.normal(shape, key=key).astype(dtype) for shape, key in zip(shapes, keys, strict=True))


def call(**rest):
    return mx.fast.scaled_dot_product_attention(*inputs(), scale=0.3, **rest)


def ours_ran(function=call, **rest) -> bool:
    with mlx_tx.record_paths() as calls:
        mx.eval(function(**rest))
    return len(calls) == 1


def close(x, y) -> None:
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=2e-6)


@pytest.fixture
def importer():
    """A module that holds the function itself, as after `from mlx.core.fast import scaled_dot_product_attention`."""
    module = types.ModuleType("module_that_imports_attention")
    module.sdpa = ORIGINAL
    module.attend = lambda: module.sdpa(*inputs(), scale=0.3)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_installed_it_is_ours_and_afterwards_the_original():
    assert not ours_ran()
    plugin.install()
    assert ours_ran()
    plugin.uninstall()
    assert not ours_ran()


def test_install_twice_and_uninstall_twice_are_as_good_as_once():
    plugin.install()
    plugin.install()
    plugin.uninstall()
    assert mx.fast.scaled_dot_product_attention is ORIGINAL
    plugin.uninstall()
    assert mx.fast.scaled_dot_product_attention is ORIGINAL


@pytest.mark.parametrize("rest", [{}, {"mask": "causal"}, {"mask": mx.zeros((5, 7))}, {"sinks": mx.zeros((4,))}])
def test_results_are_those_of_the_original(rest):
    expected = call(**rest)
    with plugin.installed():
        assert ours_ran(**rest)
        close(call(**rest), expected)


def test_names_that_modules_imported_are_rebound_and_restored(importer):
    with plugin.installed():
        assert ours_ran(importer.attend)
    assert importer.sdpa is ORIGINAL


def test_a_module_imported_since_is_taken_in_by_another_install(importer):
    plugin.install()
    importer.sdpa = ORIGINAL
    plugin.install()
    assert ours_ran(importer.attend)
    plugin.uninstall()
    assert importer.sdpa is ORIGINAL


def test_a_name_imported_meanwhile_reaches_the_original_afterwards():
    with plugin.installed():
        kept = mx.fast.scaled_dot_product_attention
    assert not ours_ran(lambda: kept(*inputs(), scale=0.3))
    close(kept(*inputs(), scale=0.3), call())


def test_our_own_packages_keep_the_original():
    probe = types.ModuleType("mlx_tx_conformance.probe")
    probe.kept = ORIGINAL
    sys.modules[probe.__name__] = probe
    try:
        with plugin.installed():
            assert probe.kept is OUT_OF_REACH[0]
    finally:
        del sys.modules[probe.__name__]


def test_blocks_nest_and_install_outlives_them():
    with plugin.installed():
        with plugin.installed():
            assert ours_ran()
        assert ours_ran()
        plugin.install()
    assert ours_ran()
    plugin.uninstall()


def test_uninstall_inside_a_block_takes_back_install_only():
    plugin.install()
    with plugin.installed():
        plugin.uninstall()
        assert ours_ran()
    assert not plugin.is_installed()


def test_an_error_inside_a_block_restores():
    with pytest.raises(KeyError), plugin.installed():
        raise KeyError
    assert mx.fast.scaled_dot_product_attention is ORIGINAL


def test_blocks_that_overlap_in_threads_do_not_take_ours_from_one_another():
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with plugin.installed():
            inside.set()
            leave.wait(10)
            seen.append(plugin.is_installed())

    thread = threading.Thread(target=other)
    with plugin.installed():
        thread.start()
        assert inside.wait(10)
    assert plugin.is_installed()
    leave.set()
    thread.join(10)
    assert seen == [True]


def test_the_path_is_that_of_the_innermost_block():
    with plugin.installed("composed"):
        for path in ("blockwise", "composed"):
            with plugin.installed(path), mlx_tx.record_paths() as calls:
                call()
            assert [entry.path for entry in calls] == [path]
        with mlx_tx.record_paths() as calls:
            call()
        assert calls[0].path == "composed"


def test_an_unknown_path_is_named_before_anything_is_replaced():
    with pytest.raises(ValueError, match=r"path must be one of .*; got 'fusd'"):
        plugin.install("fusd")
    with pytest.raises(ValueError, match="got 'fusd'"), plugin.installed("fusd"):
        raise AssertionError
    assert mx.fast.scaled_dot_product_attention is ORIGINAL


def test_integer_masks_go_to_the_original_and_say_so():
    mask = mx.ones((5, 7), dtype=mx.int32)
    expected = call(mask=mask)
    with plugin.installed(), pytest.warns(RuntimeWarning, match="mask has dtype int32"):
        close(call(mask=mask), expected)


def test_float64_goes_to_the_original_and_says_so():
    with mx.stream(mx.cpu), plugin.installed():
        x = inputs(7)[1].astype(mx.float64)
        with pytest.warns(RuntimeWarning, match="float64"):
            out = mx.fast.scaled_dot_product_attention(x, x, x, scale=1.0)
        assert out.dtype == mx.float64


def test_what_both_refuse_is_an_error_and_leaves_ours_in_place():
    with plugin.installed():
        with pytest.raises(ValueError, match="mask"):
            call(mask="sideways")
        assert ours_ran()


def test_a_path_that_calls_mx_fast_gets_the_original(monkeypatch):
    def run(spec, arrays, stream=None):
        return mx.fast.scaled_dot_product_attention(arrays.q, arrays.k, arrays.v, scale=spec.scale), None

    delegating = types.SimpleNamespace(name="composed", run=run, is_fused=False, refuses=lambda *_: None)
    monkeypatch.setattr(attention, "PATHS", {"composed": delegating})
    expected = call()
    with plugin.installed("composed"), mlx_tx.record_paths() as calls:
        close(call(), expected)
    assert len(calls) == 1


def test_layers_of_mlx_run_on_ours():
    layer = nn.MultiHeadAttention(16, 4)
    x = mx.random.normal((2, 6, 16), key=mx.random.key(5))
    mask = nn.MultiHeadAttention.create_additive_causal_mask(6)
    expected = layer(x, x, x, mask)
    with plugin.installed():
        assert ours_ran(lambda: layer(x, x, x, mask))
        close(layer(x, x, x, mask), expected)


def test_gradients_and_compile_go_through_ours():
    q, k, v = inputs()

    def loss(q):
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask="causal").square().sum()

    expected = mx.grad(loss)(q)
    with plugin.installed():
        close(mx.grad(loss)(q), expected)
        close(mx.compile(mx.grad(loss))(q), expected)
