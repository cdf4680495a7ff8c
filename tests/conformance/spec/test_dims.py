import pytest

from mlx_tx_conformance.spec.errors import SpecError

from .conftest import expanded, only


def refusal(cases, defaults=""):
    with pytest.raises(SpecError) as caught:
        expanded(cases, defaults)
    return str(caught.value)


def test_dims_have_defaults_that_follow_from_one_another():
    case = only("- {id: a, check: finite}")
    of_attention = {"B": 1, "N_q": 2, "N_kv": 2, "T_q": 8, "T_kv": 8, "D": 32, "D_v": 32}
    assert case.dims == {**of_attention, "d_model": 64, "d_ff": 128, "vocab": 16, "experts": 4}
    case = only("- {id: a, shapes: {N_q: 6, T_q: 5, D: 16}, check: finite}")
    assert (case.dims["N_kv"], case.dims["T_kv"], case.dims["D_v"], case.dims["d_model"]) == (6, 5, 16, 96)


def test_dims_may_be_expressions_over_others_in_any_order():
    case = only('- {id: a, shapes: {T_q: "T_kv // 2 + 1", T_kv: "4 * N_q", N_q: 3}, check: finite}')
    assert (case.dims["T_q"], case.dims["T_kv"]) == (7, 12)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ('{T_q: "T_kv", T_kv: "T_q"}', "given by one another"),
        ('{T_q: "T_k + 1"}', "unknown name 'T_k' in 'T_k + 1' in case 'a'; did you mean 'T_kv'?"),
        ('{T_q: "7 / 2"}', "T_q must be an integer from 0"),
        ("{T_q: -1}", "T_q must be an integer from 0"),
        ("{T_q: 2.5}", "T_q must be an integer from 0"),
        ("{T_q: true}", "T_q must be an integer from 0"),
        ("{T_q: [1]}", "T_q must be an integer from 0"),
        ('{T_q: "2 ** 40"}', "T_q must be an integer from 0"),
        ("{N_q: 6, N_kv: 4}", "N_q = 6 is no multiple of N_kv = 4"),
    ],
)
def test_dims_that_make_no_call_are_refused_with_the_line(shapes, words):
    message = refusal(f"- id: a\n  shapes: {shapes}\n  check: finite")
    assert message.startswith("spec/test/tst-1.yaml:7: ")
    assert words in message
    assert "in case 'a'" in message


def test_written_arrays_fix_the_dims_before_the_defaults_of_the_clause():
    case = only(
        """
        - id: a
          inputs: {q: [[[[1.0]]]], k: [[[[0.0], [1.0]]]], v: [[[[4.0, 0.0], [0.0, 8.0]]]]}
          expect: {out: [[[[1.0, 6.0]]]]}
        """,
        "shapes: {B: 2, N_q: 4, N_kv: 2, T_q: 33, T_kv: 47, D: 32}",
    )
    dims = case.dims
    assert [dims[d] for d in ("B", "N_q", "N_kv", "T_q", "T_kv", "D", "D_v")] == [1, 1, 1, 1, 2, 1, 2]


def test_written_arrays_must_agree_with_the_dims_of_their_case():
    message = refusal("- {id: a, shapes: {T_q: 3}, inputs: {q: [[[[1.0]]]]}, check: finite}")
    assert "q as written has T_q = 1, elsewhere it is 3" in message
    message = refusal("- {id: a, inputs: {k: [[[[1.0], [2.0]]]], v: [[[[1.0]]]]}, check: finite}")
    assert "v as written has T_kv = 1, elsewhere it is 2" in message
    message = refusal("- {id: a, inputs: {kv_lengths: [3, 4]}, check: finite}", "shapes: {B: 3}")
    assert "kv_lengths as written has B = 2" in message
    assert "q has 4 axes; written with 1" in refusal("- {id: a, inputs: {q: [1.0]}, check: finite}")


def test_written_arrays_that_are_optional_fix_what_nothing_else_does():
    assert only("- {id: a, inputs: {kv_lengths: [3, 4]}, check: finite}").dims["B"] == 2


def test_a_case_that_must_be_refused_may_have_arrays_of_the_wrong_shape():
    case = only("- {id: a, shapes: {N_q: 4}, inputs: {sinks: [1.0, 2.0]}, expect: {raises: {type: ValueError}}}")
    assert case.dims["N_q"] == 4


def test_rows_of_different_lengths_are_refused():
    message = refusal("- {id: a, inputs: {sinks: [1.0, [2.0]]}, check: finite}")
    assert "the rows of sinks have different lengths in case 'a'" in message
    message = refusal("- {id: a, inputs: {mask: [[true, false], [true]]}, check: finite}")
    assert "the rows of mask have different lengths" in message


def test_an_empty_array_has_an_axis_of_length_zero():
    assert only("- {id: a, inputs: {kv_lengths: []}, check: finite}").dims["B"] == 0
