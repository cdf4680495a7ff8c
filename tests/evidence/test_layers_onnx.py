"""The oracle's norms and activations against the node tests of ONNX, recorded and evaluated in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

from mlx_tx_conformance.oracle import mlp, norms
from mlx_tx_conformance.oracle.rnn import rnn
from mlx_tx_conformance.oracle.softmax import softmax

OPERATORS = ("RMSNormalization", "LayerNormalization", "Gelu", "Relu", "Swish", "Softmax", "RNN")


def collect() -> dict[str, Any]:
    """The node tests by name. ONNX draws their inputs anew each time: the seed makes them the same."""
    state = np.random.get_state()
    np.random.seed(20170612)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other operators' tests divide by zero on purpose
            tests = collect_testcases()
    finally:
        np.random.set_state(state)
    return {
        test.name: test
        for test in tests
        if len(test.model.graph.node) == 1 and test.model.graph.node[0].op_type in OPERATORS
    }


NODES = collect()


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def last_axes(x: np.ndarray, first: int) -> np.ndarray:
    """The axes from ``first`` on as one, over which ONNX norms."""
    return x.reshape(*x.shape[:first], -1) if first < x.ndim else x


def oracle(node: onnx.NodeProto, inputs: list[np.ndarray]) -> np.ndarray:
    """The first output of a node, computed by the oracle."""
    attributes, x = attributes_of(node), inputs[0]
    if node.op_type in ("RMSNormalization", "LayerNormalization"):
        axis = attributes.get("axis", -1) % x.ndim
        eps = attributes.get("epsilon", 1e-5)
        flat, *parameters = last_axes(x, axis), *(p.reshape(-1) for p in inputs[1:])
        norm = norms.rms_norm if node.op_type == "RMSNormalization" else norms.layer_norm
        return norm(flat, *parameters, eps=eps).reshape(x.shape)
    if node.op_type == "Gelu":
        return (mlp.gelu_tanh if attributes.get("approximate") == b"tanh" else mlp.gelu)(x)
    if node.op_type == "Swish":
        alpha = attributes.get("alpha", 1.0)
        return mlp.silu(alpha * x.astype(np.float64)) / alpha
    if node.op_type == "Softmax":
        return softmax(x, attributes.get("axis", -1))
    if node.op_type == "RNN":
        return recurrent(node, inputs)
    return mlp.relu(x)


def recurrent(node: onnx.NodeProto, inputs: list[np.ndarray]) -> np.ndarray:
    """The last state of a plain RNN in each direction, [directions * B, H]: the only output that ONNX records."""
    attributes = attributes_of(node)
    x = inputs[0] if attributes.get("layout") else inputs[0].swapaxes(0, 1)
    orders = {b"forward": [x], b"reverse": [x[:, ::-1]], b"bidirectional": [x, x[:, ::-1]]}
    last = []
    for n, ordered in enumerate(orders[attributes.get("direction", b"forward")]):
        bias = inputs[3][n].astype(np.float64).reshape(2, -1).sum(axis=0) if len(inputs) > 3 else None
        last.append(rnn(ordered, inputs[1][n], inputs[2][n], bias)[:, -1])
    return np.concatenate(last)


def first_output(node: onnx.NodeProto, outputs: list[np.ndarray]) -> np.ndarray:
    if node.op_type != "RNN":
        return outputs[0]
    return outputs[-1].reshape(-1, outputs[-1].shape[-1])


@pytest.mark.parametrize("name", list(NODES))
def test_recorded_outputs(name):
    test = NODES[name]
    node = test.model.graph.node[0]
    inputs, recorded = test.data_sets[0]
    expected = first_output(node, recorded)
    unit = {"float32": 2.0**-24, "float16": 2.0**-11, "float64": 2.0**-50, "bfloat16": 2.0**-8}[expected.dtype.name]
    got = oracle(node, inputs)
    np.testing.assert_allclose(got, expected.astype(np.float64), rtol=32 * unit, atol=32 * unit)


@pytest.mark.parametrize("name", [n for n, t in NODES.items() if "Normalization" in t.model.graph.node[0].op_type])
def test_reference_evaluator_in_float64(name):
    model = NODES[name].model
    inputs = [x.astype(np.float64) for x in NODES[name].data_sets[0][0]]
    feeds = dict(zip(model.graph.node[0].input, inputs, strict=True))
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    got = oracle(model.graph.node[0], inputs)
    # LayerNormalization's evaluator returns float32 statistics but computes the output as given.
    np.testing.assert_allclose(got, expected, rtol=1e-11 if expected.dtype == np.float64 else 1e-6, atol=1e-12)


def test_onnx_has_these_node_tests():
    """At least as many as onnx 1.23.2 generates: the tests above are made from this list."""
    counts = dict.fromkeys(OPERATORS, 0)
    for test in NODES.values():
        counts[test.model.graph.node[0].op_type] += 1
    least = {"RMSNormalization": 19, "LayerNormalization": 19, "Gelu": 4, "Relu": 1, "Swish": 1, "Softmax": 7, "RNN": 6}
    assert all(counts[operator] >= number for operator, number in least.items()), counts
