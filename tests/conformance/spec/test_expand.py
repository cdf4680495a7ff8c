import pickle
from itertools import combinations

import pytest

from mlx_tx_conformance.spec import SpecError
from mlx_tx_conformance.spec.expand import at, changed, forms

from .conftest import expanded, only


def ids(cases, defaults=""):
    return [case.id.removeprefix("TST-1/") for case in expanded(cases, defaults)]


def refusal(cases, defaults=""):
    with pytest.raises(SpecError) as caught:
        expanded(cases, defaults)
    return str(caught.value)


def test_a_case_without_variation_has_a_bare_id():
    case = only("- {id: by-hand, check: finite, tags: [slow], path: fused, seed: 7, note: why}")
    assert (case.id, case.clause, case.name, case.params) == ("TST-1/by-hand", "TST-1", "by-hand", {})
    assert (case.tags, case.path, case.seed, case.note) == (("slow",), "fused", 7, "why")
    assert (case.file, case.line, case.dtype) == ("spec/test/tst-1.yaml", 6, "float32")
    assert [str(source) for source in case.source] == ["notes S-1"]


def test_vary_is_a_product_in_the_order_of_the_file():
    assert ids("- {id: a, vary: {dtype: [float32, bfloat16], T_q: [1, 9]}, check: finite}") == [
        "a[float32,T_q=1]",
        "a[float32,T_q=9]",
        "a[bfloat16,T_q=1]",
        "a[bfloat16,T_q=9]",
    ]


def test_values_reach_the_case():
    case = expanded("- {id: a, vary: {dtype: [float16], T: [5], window: [[2, null]], design: [tiny]}, check: finite}")[
        0
    ]
    assert (case.dtype, case.dims["T_q"], case.dims["T_kv"]) == ("float16", 5, 5)
    assert (case.call["window"], case.inputs["design"]) == ([2, None], "tiny")
    assert case.params == {"dtype": "float16", "T": 5, "window": [2, None], "design": "tiny"}


def test_named_variants_change_several_things_at_once():
    cases = expanded(
        """
        - id: a
          vary:
            form:
              - {name: plain}
              - {name: masked, shapes: {T_q: 3}, inputs: {mask: {where: "j <= i"}}, call: {softcap: 5.0}}
              - {name: nan, check: {unchanged: {by: nan}}}
          check: {unchanged: {perturb: [k], where: "j > i"}}
        """
    )
    assert [case.id for case in cases] == ["TST-1/a[plain]", "TST-1/a[masked]", "TST-1/a[nan]"]
    assert cases[1].dims["T_q"] == 3
    assert cases[1].inputs == {"mask": {"where": "j <= i"}}
    assert cases[1].call["softcap"] == 5.0
    assert cases[2].check_args == {"perturb": ["k"], "where": "j > i", "by": "nan"}


def test_defaults_lie_under_every_case_and_a_null_takes_one_away():
    defaults = "shapes: {T_q: 3, T_kv: 7}\ncall: {causal: true}\nvary: {dtype: [float32, float16]}\ncheck: finite"
    cases = expanded(
        "- {id: a}\n- {id: b, shapes: {T: 5}, call: {causal: null}, vary: {dtype: null, B: [1, 2]}}", defaults
    )
    assert [case.id for case in cases] == ["TST-1/a[float32]", "TST-1/a[float16]", "TST-1/b[B=1]", "TST-1/b[B=2]"]
    assert cases[0].call["causal"] is True
    assert "causal" not in cases[2].call
    assert (cases[2].dims["T_q"], cases[2].dims["T_kv"]) == (5, 5)


def test_a_case_of_another_op_takes_what_its_op_has():
    case = only(
        "- {id: a, call: {op: alibi_slopes}, check: finite}", "call: {op: attention, alibi: true, outputs: [out, lse]}"
    )
    assert case.call == {"op": "alibi_slopes", "n_heads": 2, "outputs": ("out",)}


def test_only_if_drops_combinations():
    text = "- {id: a, vary: {T_q: [1, 9], T_kv: [4, 12]}, only_if: '%s', check: finite}"
    assert ids(text % "T_q <= T_kv") == ["a[T_q=1,T_kv=4]", "a[T_q=1,T_kv=12]", "a[T_q=9,T_kv=12]"]
    assert ids(text % "T_q == 9 and not causal") == ["a[T_q=9,T_kv=4]", "a[T_q=9,T_kv=12]"]


def test_only_if_knows_options_absent_ones_and_bare_labels():
    text = "- {id: a, vary: {dtype: [float32, float16], window: [null, 2, 5]}, only_if: '%s', check: finite}"
    assert ids(text % "window > 2") == ["a[float32,window=5]", "a[float16,window=5]"]
    assert ids(text % "float16 or window == 2") == [
        "a[float32,window=2]",
        "a[float16,window=none]",
        "a[float16,window=2]",
        "a[float16,window=5]",
    ]
    variants = "- {id: a, vary: {form: [{name: one}, {name: two}], B: [1, 2]}, only_if: 'one or B == 1', check: finite}"
    assert ids(variants) == ["a[one,B=1]", "a[one,B=2]", "a[two,B=1]"]


def test_only_if_that_leaves_nothing_or_cannot_be_read_is_refused():
    text = "- id: a\n  vary: {T_q: [1, 9]}\n  check: finite\n  only_if: '%s'"
    assert refusal(text % "T_q > 9") == "spec/test/tst-1.yaml:9: only_if leaves no combination in case 'a'"
    assert "unknown name 'T_qq'; did you mean 'T_q'?" in refusal(text % "T_qq > 9")


PAIRWISE = "pairwise: {D: [8, 64, 80], dtype: [float32, float16, bfloat16], causal: [false, true], T_q: [1, 7]}"


def _pairs(cases):
    return {pair for case in cases for pair in combinations(sorted((k, str(v)) for k, v in case.params.items()), 2)}


def test_pairwise_has_every_pair_in_fewer_cases():
    cases = expanded(f"- {{id: a, {PAIRWISE}, check: finite}}")
    product = expanded(f"- {{id: a, {PAIRWISE.replace('pairwise', 'vary')}, check: finite}}")
    assert _pairs(cases) == _pairs(product)
    assert len(cases) <= 11 < len(product) == 36


def test_pairwise_stands_beside_vary_as_a_product():
    cases = expanded(f"- {{id: a, vary: {{B: [1, 2]}}, {PAIRWISE}, check: finite}}")
    half = [case for case in cases if case.params["B"] == 1]
    assert len(half) * 2 == len(cases)
    assert cases[0].id == "TST-1/a[B=1,D=8,float32,causal=false,T_q=1]"


def test_pairwise_covers_every_pair_that_only_if_allows():
    cases = expanded(f"- {{id: a, {PAIRWISE}, only_if: 'D != 80 or not causal', check: finite}}")
    product = expanded(
        f"- {{id: a, {PAIRWISE.replace('pairwise', 'vary')}, only_if: 'D != 80 or not causal', check: finite}}"
    )
    assert _pairs(cases) == _pairs(product)
    assert all(case.params["D"] != 80 or not case.params["causal"] for case in cases)
    assert len(cases) <= 12


def test_expansion_is_the_same_every_time():
    text = f"- {{id: a, vary: {{B: [1, 2]}}, {PAIRWISE}, check: finite}}"
    assert ids(text) == ids(text)


def test_too_many_cases_are_an_error_before_they_are_made():
    many = ", ".join(map(str, range(1, 102)))
    message = refusal(f"- {{id: a, vary: {{B: [{many}], D: [{many}]}}, check: finite}}")
    assert message == "spec/test/tst-1.yaml:6: more than 2,000 combinations in case 'a'"
    huge = ", ".join(map(str, range(1, 1001)))
    vary = ", ".join(f"{dim}: [{huge}]" for dim in ("B", "N_q", "T_q", "T_kv", "D"))
    assert "1,000,000,000,000,000 combinations" in refusal(f"- {{id: a, vary: {{{vary}}}, check: finite}}")
    assert "need more than 2,000 cases" in refusal(f"- {{id: a, pairwise: {{{vary}}}, check: finite}}")


def test_exactly_as_many_cases_as_allowed_are_made():
    values = [", ".join(map(str, range(1, n + 1))) for n in (50, 40)]
    assert len(ids(f"- {{id: a, vary: {{B: [{values[0]}], D: [{values[1]}]}}, check: finite}}")) == 2000


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ('{"inputs.maks.where": ["j"]}', "attention has no array 'maks' in case 'a'; did you mean 'mask'?"),
        ('{"inputs.mask.wher": ["j"]}', "unknown key 'wher' in mask in case 'a'; did you mean 'where'?"),
        ('{"call.casual": [true]}', "attention takes no option 'casual' in case 'a'; did you mean 'causal'?"),
        ('{"shapes.T_k": [1]}', "unknown dim 'T_k' in case 'a'; did you mean 'T_kv'?"),
        (
            '{"check.unchanged.pertub": [[k]]}',
            "unchanged takes no argument 'pertub' in case 'a'; did you mean 'perturb'?",
        ),
        ('{"check.changed": [{name: x, value: {}}]}', "a case has one check; got unchanged, changed"),
        ('{"layout.q": [slcied]}', "unknown layout 'slcied' in case 'a'; did you mean 'sliced'?"),
        ("{form: [{name: a, inputs: {mask: {shape: [1]}}}, {name: a, inputs: {}}]}", "two values of 'form'"),
        ('{"call.scale.x": [1]}', "'call.scale.x' leads nowhere: 'scale' is no mapping"),
        ("{D: [8, 8]}", "two values of 'D' are called 'D=8'"),
    ],
)
def test_values_that_do_not_fit_are_refused(vary, words):
    case = "- id: a\n  shapes: {D: 4}\n  call: {scale: 2.0}\n  inputs: {mask: {where: j}}\n  layout: {k: sliced}\n"
    case += f"  vary: {vary}\n"
    message = refusal(case + '  check: {unchanged: {perturb: [k], where: "j > i"}}')
    assert words in message
    assert message.startswith("spec/test/tst-1.yaml:")
    assert "in case 'a'" in message


def test_a_dotted_key_varies_one_value():
    cases = expanded(
        '- {id: a, inputs: {mask: {where: j}}, vary: {"inputs.mask.where": ["j <= i", "j < i"]}, check: finite}'
    )
    assert [case.id for case in cases] == ["TST-1/a[where=j<=i]", "TST-1/a[where=j<i]"]
    assert [case.inputs["mask"]["where"] for case in cases] == ["j <= i", "j < i"]


def test_a_case_at_another_size_has_everything_evaluated_anew():
    case = only('- {id: a, call: {window: "T_kv // 2"}, inputs: {mask: {where: j, shape: [1, T_kv]}}, check: finite}')
    large = at(case, T=64)
    assert (large.id, large.dims["T_q"], large.dims["T_kv"]) == (case.id, 64, 64)
    assert large.call["window"] == 32
    assert large.inputs["mask"]["shape"] == [1, 64]
    assert at(case, D=128).dims["D_v"] == 128
    assert case.dims["T_kv"] == 8
    with pytest.raises(SpecError, match="no dim or free variable 'Tq'"):
        at(case, Tq=3)


def test_a_changed_case_is_the_case_with_a_change():
    case = only("- {id: a, shapes: {T_kv: 12}, call: {causal: true, window: 3}, check: finite}")
    other = changed(case, {"call": {"causal": None, "window": [1, 2]}, "inputs": {"mask": {"where": "j"}}})
    assert other.call == {"op": "attention", "window": [1, 2], "outputs": ("out",)}
    assert other.inputs == {"mask": {"where": "j"}}
    assert (other.dims, other.id) == (case.dims, case.id)


def test_every_form_of_a_call_is_found():
    case = only("- {id: a, steps: [{call: {causal: false}}, {call: {window: 3}}], check: order_does_not_matter}")
    assert [form.call.get("window") for form in forms(case)] == [None, None, 3]
    case = only("- {id: a, check: {same_for: {layout: [contiguous, sliced]}}}")
    assert [form.layout.get("k") for form in forms(case)] == [None, "contiguous", "sliced"]
    case = only("- {id: a, check: {same_for: {softcap: [5.0, 6.0]}}}")
    assert [form.call.get("softcap") for form in forms(case)] == [None, 5.0, 6.0]
    case = only("- {id: a, check: {agrees: {with: {inputs: {mask: {where: j}}}}}}")
    assert ["mask" in form.inputs for form in forms(case)] == [False, True]
    case = only("- {id: a, let: {r: {op: rope, x: q}}, call: {q: r}, check: finite}")
    assert [form.call["op"] for form in forms(case)] == ["attention", "rope"]


def test_cases_go_to_another_process_whole():
    case = expanded("- {id: a, vary: {dtype: [float32], T_q: [3]}, inputs: {mask: {where: j}}, check: finite}")[0]
    copy = pickle.loads(pickle.dumps(case))
    assert (copy.id, copy.dims, copy.call, copy.inputs) == (case.id, case.dims, case.call, case.inputs)
    assert at(copy, T=5).dims["T_q"] == 5
