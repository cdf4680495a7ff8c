import math

import pytest

from mlx_tx_conformance.spec.errors import SpecError
from mlx_tx_conformance.spec.expand import at

from .conftest import expanded, only


def refusal(cases, defaults=""):
    with pytest.raises(SpecError) as caught:
        expanded(cases, defaults)
    return str(caught.value)


def test_a_case_that_must_be_refused_may_have_any_heads_and_values():
    case = only(
        "- {id: a, shapes: {N_q: 6, N_kv: 4}, call: {window: -3, scale: .nan}, expect: {raises: {type: ValueError}}}"
    )
    assert case.check == "raises"
    assert case.call["window"] == -3
    assert case.check_args == {"type": "ValueError"}


def test_options_are_evaluated_and_typed():
    case = only('- {id: a, call: {scale: "1 / 4", window: "T_kv // 2", q_offset: "T_kv - T_q"}, check: finite}')
    assert case.call == {"op": "attention", "scale": 0.25, "window": 4, "q_offset": 0, "outputs": ("out",)}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("{window: 0}", "window must be an integer of at least 1, or a pair"),
        ("{window: 2.5}", "window must be an integer"),
        ("{window: [1, 2, 3]}", "window must be an integer"),
        ("{window: [-1, 2]}", "window must be an integer"),
        ("{causal: 1}", "causal must be true or false; got 1"),
        ('{causal: "maybe"}', "unknown name 'maybe'"),
        ("{scale: true}", "scale must be a number"),
        ("{q_offset: 1.5}", "q_offset must be an integer"),
        ("{mask: casual}", "mask must be one of causal"),
        ('{scale: "1 / 0"}', "division by zero"),
    ],
)
def test_options_of_another_kind_are_refused_with_the_line(call, words):
    message = refusal(f"- id: a\n  check: finite\n  call: {call}")
    assert message.startswith("spec/test/tst-1.yaml:8: ")
    assert words in message


@pytest.mark.parametrize("window", ["5", "[3, 2]", "[null, 2]", "[0, 0]"])
def test_windows_are_a_count_or_a_pair_with_open_sides(window):
    case = only(f"- {{id: a, call: {{window: {window}}}, check: finite}}")
    assert case.call["window"] in (5, [3, 2], [None, 2], [0, 0])


def test_options_that_are_always_given_follow_the_dims():
    assert only("- {id: a, shapes: {N_q: 12}, call: {op: alibi_slopes}, check: finite}").call["n_heads"] == 12
    layer = only("- {id: a, shapes: {N_q: 4, N_kv: 2}, call: {op: attention_layer}, check: finite}")
    assert (layer.call["N_q"], layer.call["N_kv"]) == (4, 2)


def test_numbers_in_recipes_are_evaluated_and_expressions_over_elements_stay():
    case = only(
        """
        - id: a
          shapes: {B: 3, T: 5}
          inputs:
            design: {spiky: {std: "2 ** 4", side: left}}
            mask: {where: "j <= i", additive: "-inf", shape: [1, 1, T_q, "T_kv"]}
            bias: {uniform: ["-1 / 2", 0.5]}
            segments: {lengths: [1, "T_q - 1"]}
            sinks: [1, "1 / 2"]
          check: finite
        """
    )
    assert case.inputs["design"] == {"spiky": {"std": 16, "side": "left"}}
    assert case.inputs["mask"] == {"where": "j <= i", "additive": float("-inf"), "shape": [1, 1, 5, 5]}
    assert case.inputs["bias"] == {"uniform": [-0.5, 0.5]}
    assert case.inputs["segments"] == {"lengths": [1, 4]}
    assert case.inputs["sinks"] == [1, 0.5]


def test_one_layout_is_meant_for_every_main_array():
    assert only("- {id: a, layout: sliced, check: finite}").layout == {"q": "sliced", "k": "sliced", "v": "sliced"}
    assert only("- {id: a, layout: {mask: sliced}, check: finite}").layout == {"mask": "sliced"}
    assert only("- {id: a, call: {op: rope}, layout: offset, check: finite}").layout == {"x": "offset"}


def test_expected_values_are_held_to_the_oracle_and_say_which_outputs_are_wanted():
    case = only('- {id: a, shapes: {N_q: 2}, call: {op: alibi_slopes}, expect: {out: ["1 / 16", "2 ** -8"]}}')
    assert case.expect == {"out": [1 / 16, 2**-8]}
    assert (case.check, case.check_args) == ("equals_oracle", {"outputs": ["out"]})
    assert only("- {id: a, expect: {lse: [[[-inf]]], out: [[[[0]]]]}}").call["outputs"] == ("lse", "out")
    assert only("- {id: a, expect: {lse: [[[-inf]]]}}").expect == {"lse": [[[float("-inf")]]]}


def test_arguments_of_checks_are_evaluated_over_dims_and_options():
    case = only(
        """
        - id: a
          shapes: {T: 20}
          call: {window: 5, causal: true}
          check: {path_length: {expected: "ceil((T_kv - 1) / (window - 1))"}}
        """
    )
    assert case.check_args == {"expected": "ceil((T_kv - 1) / (window - 1))"}
    assert case.names["window"] == 5
    case = only('- {id: a, shapes: {T: 20}, check: {chunk_invariant: {chunks: [1, "T_q // 2"]}}}')
    assert case.check_args == {"chunks": [1, 10]}


def test_a_law_s_limit_is_evaluated_at_the_largest_size():
    case = only('- {id: a, over: {figure: flops, T: [4, 8, "4 * 4"]}, check: {law: {at_most: "T * T_kv * D"}}}')
    assert case.over == {"figure": "flops", "T": [4, 8, 16]}
    assert case.check_args == {"at_most": 16 * 16 * 32}


def test_changes_are_evaluated_and_their_nulls_stay():
    case = only(
        """
        - id: a
          call: {causal: true}
          check:
            agrees:
              with:
                call: {causal: null, q_offset: "T_kv - T_q"}
                inputs: {mask: {where: "j <= i", shape: [T_q, T_kv]}, bias: null}
        """
    )
    assert case.check_args["with"] == {
        "call": {"causal": None, "q_offset": 0},
        "inputs": {"mask": {"where": "j <= i", "shape": [8, 8]}, "bias": None},
    }


def test_steps_are_changes_too():
    case = only(
        '- {id: a, steps: [{call: {window: "T_kv // 2"}}, {call: {window: null}}], check: order_does_not_matter}',
        "call: {window: 2}",
    )
    assert case.steps == ({"call": {"window": 4}}, {"call": {"window": None}})


LET = """
- id: a
  shapes: {T: 9}
  let:
    rq: {op: rope, x: q, offset: "s + T_kv"}
    rk: {op: rope, x: k, offset: s, base: "10 ** 4"}
  call: {op: attention, q: rq, k: rk, window: "s + 1", outputs: [lse]}
  check: {same_for: {s: [0, "2 ** 4"]}}
"""


def test_what_uses_the_free_variable_stays_a_string_until_it_is_set():
    case = only(LET)
    assert case.let == {
        "rq": {"op": "rope", "x": "q", "offset": "s + T_kv", "outputs": ("out",)},
        "rk": {"op": "rope", "x": "k", "offset": "s", "base": 10_000, "outputs": ("out",)},
    }
    assert case.call["q"] == "rq"
    assert case.call["window"] == "s + 1"
    assert case.check_args == {"s": [0, 16]}
    bound = at(case, s=17)
    assert (bound.let["rq"]["offset"], bound.call["window"], bound.id) == (26, 18, case.id)


def test_the_variable_of_same_for_may_be_an_option_or_the_layout():
    assert only("- {id: a, check: {same_for: {scale: [0.5, 0.5]}}}").check_args == {"scale": [0.5, 0.5]}
    case = only("- {id: a, check: {same_for: {layout: [contiguous, sliced]}}}")
    assert case.check_args == {"layout": ["contiguous", "sliced"]}


def test_not_a_number_is_a_number():
    case = only("- {id: a, call: {scale: .nan}, expect: {raises: {type: ValueError, names: scale}}}")
    assert math.isnan(case.call["scale"])
