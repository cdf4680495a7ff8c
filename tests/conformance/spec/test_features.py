import pytest

from mlx_tx_conformance.spec.ops import OPS

from .conftest import only


def found(feature, text, op="attention"):
    case = only(f"- {{id: a, {text}, check: finite}}")
    (match,) = (item for item in OPS[op].features if item.name == feature)
    return sorted(match.found(case))


FULL = "shapes: {B: 2, N_q: 4, T_q: 5, T_kv: 7}"


@pytest.mark.parametrize(
    ("feature", "text", "values"),
    [
        ("dtype", "dtype: float16", ["float16"]),
        ("causal", "call: {causal: true}", ["true"]),
        ("causal", "tags: [x]", ["false"]),
        ("window", "tags: [x]", ["none"]),
        ("window", "call: {window: 3}", ["int"]),
        ("window", "call: {window: [3, null]}", ["pair"]),
        ("q_offset", "call: {q_offset: 0}", ["int"]),
        ("q_offset", "inputs: {q_offset: [0]}", ["array"]),
        ("alibi", "call: {alibi: true}", ["standard"]),
        ("alibi", "call: {alibi: false}", ["none"]),
        ("alibi", "inputs: {alibi: [0.5, 0.25]}", ["slopes"]),
        ("alibi", "inputs: {alibi: {uniform: [0, 1], shape: [B, N_q]}}", ["slopes by batch"]),
        ("segments", "inputs: {segments: {lengths: [3, 5]}}", ["self"]),
        ("segments", "inputs: {q_segments: {lengths: [8]}, kv_segments: {lengths: [8]}}", ["pair"]),
        ("heads", "shapes: {N_q: 4}", ["mha"]),
        ("heads", "shapes: {N_q: 4, N_kv: 2}", ["gqa"]),
        ("heads", "shapes: {N_q: 4, N_kv: 1}", ["mqa"]),
        ("heads", "shapes: {N_q: 1}", []),
        ("value size", "shapes: {D_v: 8}", ["D_v < D"]),
        ("head size", "shapes: {D: 20}", ["not a multiple of 8"]),
        ("lengths", "shapes: {T_q: 1, T_kv: 3}", ["T_q < T_kv", "T_q = 1"]),
        ("lengths", "shapes: {T_q: 3, T_kv: 1}", ["T_q > T_kv"]),
        ("batch", "shapes: {B: 2}", ["many"]),
        ("mask", "inputs: {mask: {where: j}}", ["boolean"]),
        ("mask", "inputs: {mask: {where: j, additive: -1.0}}", ["additive"]),
        ("mask", "inputs: {mask: {normal: 1.0}}", ["additive"]),
        ("mask", "inputs: {mask: [[true]]}", ["boolean"]),
        ("mask", "inputs: {mask: {values: [[0.5]]}}", ["additive"]),
        ("mask", "call: {mask: causal}", ["causal"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j}}}}", ["full"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j, shape: [T_q, T_kv]}}}}", ["2-D"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j, shape: [N_q, T_q, T_kv]}}}}", ["3-D"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j, shape: [1, 1, T_q, T_kv]}}}}", ["shared"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j, shape: [B, 1, T_q, T_kv]}}}}", ["by batch"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j, shape: [1, N_q, T_q, T_kv]}}}}", ["by head"]),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{where: j, shape: [B, 1, 1, T_kv]}}}}", ["one row of keys"]),
        (
            "boolean mask shape",
            f"{FULL}, inputs: {{mask: {{where: j, shape: [B, 1, T_q, 1]}}}}",
            ["one column of queries"],
        ),
        ("boolean mask shape", f"{FULL}, inputs: {{mask: {{normal: 1.0}}}}", []),
        ("additive mask shape", f"{FULL}, inputs: {{mask: {{normal: 1.0}}}}", ["full"]),
        ("boolean mask shape", "inputs: {mask: [[[[true]]]]}", ["one row of keys"]),
        ("boolean mask shape", "shapes: {B: 1, N_q: 4}, inputs: {mask: {where: j}}", ["by head"]),
        ("boolean mask shape", "shapes: {B: 1, N_q: 1}, inputs: {mask: {where: j}}", ["shared"]),
        ("boolean mask shape", "shapes: {B: 2, N_q: 1}, inputs: {mask: {where: j}}", ["by batch"]),
        ("layout", "layout: {k: sliced}", ["contiguous", "sliced"]),
        ("outputs", "call: {outputs: [lse]}", ["lse"]),
        ("softcap", "call: {softcap: 3.0}", ["given"]),
        ("sinks", "inputs: {sinks: {normal: 1.0}}", ["given"]),
        ("sinks", "inputs: {sinks: null}", ["none"]),
    ],
)
def test_what_a_case_of_attention_exercises(feature, text, values):
    assert found(feature, text) == values


@pytest.mark.parametrize(
    ("op", "feature", "text", "values"),
    [
        ("rope", "offset", "call: {op: rope, offset: 3}", ["int"]),
        ("rope", "offset", "call: {op: rope}, inputs: {offset: [3]}", ["array"]),
        ("rope", "dims", "call: {op: rope, dims: 16}", ["some"]),
        ("rope", "dims", "call: {op: rope, dims: 32}", ["all"]),
        ("alibi_slopes", "head count", "call: {op: alibi_slopes, n_heads: 6}", ["not a power of two"]),
        ("alibi_slopes", "head count", "call: {op: alibi_slopes, n_heads: 8}", ["a power of two"]),
        ("attention_layer", "biases", "call: {op: attention_layer}, inputs: {b_k: {normal: 1.0}}", ["given"]),
        ("attention_layer", "memory", "call: {op: attention_layer}, inputs: {memory: {normal: 1.0}}", ["given"]),
        ("softmax", "axis", "call: {op: softmax, axis: 2}", ["another"]),
        ("softmax", "axis", "call: {op: softmax, axis: 3}", ["last"]),
        ("attention_gradients", "d_lse", "call: {op: attention_gradients}, inputs: {d_lse: {normal: 1.0}}", ["given"]),
    ],
)
def test_what_cases_of_other_ops_exercise(op, feature, text, values):
    assert found(feature, text, op) == values


def test_an_array_from_let_counts_as_given():
    case = only("- {id: a, let: {r: {op: rope, x: q}}, call: {q: r, bias: r}, check: finite}")
    (bias,) = (item for item in OPS["attention"].features if item.name == "bias")
    assert list(bias.found(case)) == ["given"]
