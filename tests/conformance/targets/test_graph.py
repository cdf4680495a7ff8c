"""Operation counts and depth of graphs that are small enough to count by hand."""

from __future__ import annotations

import mlx.core as mx
import pytest

from mlx_tx_conformance.targets.graph import Node, export, flops_of


def graph(function, *shapes):
    return export(function, [mx.ones(shape) for shape in shapes])


def test_a_product_costs_two_m_n_k():
    found = graph(lambda a, b: a @ b, (3, 5), (5, 7))
    assert found.flops() == found.matmul_flops() == 2 * 3 * 5 * 7
    assert found.depth() == 1


def test_a_batched_product_costs_each_of_its_parts():
    assert graph(lambda a, b: a @ b, (2, 4, 3, 5), (2, 4, 5, 7)).flops() == 2 * 4 * 2 * 3 * 5 * 7


def test_elementwise_reduction_and_softmax():
    assert graph(mx.exp, (3, 5)).flops() == 15
    assert graph(lambda a: mx.sum(a, axis=1), (3, 5)).flops() == 15
    assert graph(lambda a: mx.softmax(a, axis=-1), (3, 5)).flops() == 60


def test_moving_data_is_free_but_counts_as_a_step():
    found = graph(lambda a: a.swapaxes(0, 1).reshape(3, 5), (3, 5))
    assert found.flops() == 0
    assert found.depth() >= 1


def test_contiguous_is_seen_through_and_restored():
    original = mx.contiguous
    assert graph(lambda a, b: mx.contiguous(a.swapaxes(0, 1)) @ b, (5, 3), (5, 7)).flops() == 2 * 3 * 5 * 7
    assert mx.contiguous is original


def test_a_custom_function_is_seen_through_unless_something_is_differentiated():
    def double(x):
        @mx.custom_function
        def inner(x):
            return mx.exp(x)

        @inner.vjp
        def rule(primal, cotangent, output):
            return cotangent

        return inner(x)

    original = mx.custom_function
    assert graph(double, (3, 5)).flops() == 15
    with pytest.raises(ValueError, match="CustomTransforms"):
        export(double, [mx.ones((3, 5))], forward=False)
    assert mx.custom_function is original


@pytest.mark.parametrize("T", [16, 32, 64])
def test_attention_is_quadratic_and_its_depth_constant(T):
    def attention(q, k, v):
        return mx.softmax(q @ k.swapaxes(-1, -2), axis=-1) @ v

    found = graph(attention, *[(1, 1, T, 16)] * 3)
    assert found.matmul_flops() == 64 * T * T
    assert found.flops() == 68 * T * T
    assert found.depth() == 4


def test_the_depth_of_a_recurrence_grows_with_its_steps():
    def rnn(x):
        h = mx.zeros((4,))
        for t in range(x.shape[0]):
            h = mx.tanh(h + x[t])
        return h

    short, long = graph(rnn, (3, 4)).depth(), graph(rnn, (9, 4)).depth()
    assert long - short == 2 * 6


def test_parallel_branches_do_not_add_up():
    found = graph(lambda a: mx.exp(a) + mx.sin(a), (3,))
    assert found.depth() == 2
    assert found.count("Exp") == 1


def test_what_the_graph_does_not_tell_is_refused():
    with pytest.raises(ValueError, match="CustomKernel"):
        flops_of(Node("CustomKernel", (("a", (3,)),), (("b", (3,)),)))


def test_fused_attention_counts_as_its_products_and_softmax():
    shapes = [(1, 2, 8, 4), (1, 1, 6, 4), (1, 1, 6, 5)]
    node = Node("ScaledDotProductAttention", tuple(("x", s) for s in shapes), (("o", (1, 2, 8, 5)),))
    assert flops_of(node) == 2 * 2 * 8 * 6 * (4 + 5) + 4 * 2 * 8 * 6
