import pytest

from .conftest import faults


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("shapes: {T_k: 3}", "unknown dim 'T_k' in case 'a'; did you mean 'T_kv'?"),
        ("shapes: 3", "shapes must be a mapping; got 3"),
        ("dtype: float23", "unknown dtype 'float23' in case 'a'; did you mean 'float32'?"),
        ("dtype: [float32]", "unknown dtype ['float32']"),
        ("call: {op: atention}", "unknown op 'atention' in case 'a'; did you mean 'attention'?"),
        ("call: {casual: true}", "unknown option 'casual' in case 'a'; did you mean 'causal'?"),
        ("call: {outputs: [out, les]}", "unknown output 'les' in case 'a'; did you mean 'lse'?"),
        ("call: {outputs: out}", "outputs must be a list"),
        ("call: {op: rope, causal: true}", "unknown option 'causal'"),
        ("call: {kv_lengths: [1]}", "'kv_lengths' is an array: write it under inputs"),
        ("call: {q: rq}", "unknown value of let 'rq'"),
        ("call: causal", "call must be a mapping; got 'causal'"),
        ("inputs: {maks: [[true]]}", "unknown array 'maks' in case 'a'; did you mean 'mask'?"),
        ("inputs: {softcap: 3.0}", "'softcap' is an option: write it under call"),
        ("inputs: {mask: 3}", "an array is a list or a recipe"),
        ("inputs: {mask: {wher: j}}", "unknown key 'wher' in case 'a'; did you mean 'where'?"),
        ("inputs: {mask: {where: j, normal: 1.0}}", "a recipe has one of where"),
        ("inputs: {mask: {where: 'j <='}}", "column 5: a number, a name or '(' expected; found the end"),
        ("inputs: {mask: {where: 'j <= x'}}", "unknown name in 'j <= x': 'x'"),
        ("inputs: {mask: {where: [1]}}", "where must be an expression; got [1]"),
        ("inputs: {design: 3}", "a design is a word; got 3"),
        ("inputs: {design: {a: {}, b: {}}}", "a design is a word, or one word with its parameters"),
        ("layout: slcied", "unknown layout 'slcied' in case 'a'; did you mean 'sliced'?"),
        ("layout: {K: sliced}", "unknown array 'K' in case 'a'; did you mean 'k'?"),
        ("layout: {k: slcied}", "unknown layout 'slcied' in case 'a'; did you mean 'sliced'?"),
        ("layout: [sliced]", "layout must be a mapping"),
        ("let: {q: {op: rope, x: k}}", "a value of let cannot be called 'q', as an array is"),
        ("let: {r-q: {op: rope, x: k}}", "called by an identifier; got 'r-q'"),
        ("let: {r: {x: k}}", "let 'r' has no op"),
        ("let: {r: {op: rop, x: k}}", "unknown op 'rop' in case 'a'; did you mean 'rope'?"),
        ("let: {r: {op: rope}}", "let 'r' needs x"),
        ("let: {r: {op: rope, x: kk}}", "unknown array 'kk'"),
        ("let: {r: {op: rope, x: s}, s: {op: rope, x: k}}", "unknown array 's'"),
        (
            "let: {r: {op: rope, x: k, ofset: 3}}",
            "unknown argument of rope 'ofset' in case 'a'; did you mean 'offset'?",
        ),
        ("let: {r: {op: attention, q: q, k: k, v: v, outputs: [out, lse]}}", "is one array; outputs must name one"),
        ("only_if: 'T_q <'", "column 6"),
        ("only_if: [1]", "only_if must be an expression"),
        ("tags: slow", "tags must be a list of words in kebab-case; got 'slow'"),
        ("tags: [Slow]", "tags must be a list of words"),
        ("seed: -1", "seed must be an integer from 0"),
        ("seed: x", "seed must be an integer from 0"),
        ("path: 3", "path must be a text; got 3"),
        ("vary: [1]", "vary must be a mapping"),
        ("vary: {dtype: float32}", "dtype must be a list of at least one value; got 'float32'"),
        ("vary: {dtype: []}", "dtype must be a list of at least one value; got []"),
        ("vary: {dtype: [float23]}", "unknown dtype 'float23'"),
        ("vary: {casual: [true]}", "unknown key 'casual' in case 'a'; did you mean 'causal'?"),
        ("vary: {layout: [slcied]}", "unknown layout 'slcied'"),
        ("vary: {design: [3]}", "a design is a word; got 3"),
        ("vary: {seed: [-1]}", "seed must be an integer"),
        ("vary: {form: [{name: a, cal: {}}]}", "unknown key 'cal' in variant 'a' in case 'a'; did you mean 'call'?"),
        (
            "vary: {form: [{name: a, call: {casual: true}}]}",
            "unknown option 'casual' in variant 'a' in case 'a'; did you mean 'causal'?",
        ),
        ("vary: {form: [{name: a, tags: slow}]}", "tags must be a list of words"),
        ("pairwise: {DD: [1, 2]}", "did you mean 'D'?"),
    ],
)
def test_a_wrong_name_or_kind_is_answered_with_line_and_suggestion(part, message):
    found = faults(f"- id: a\n  check: finite\n  {part}")
    assert len(found) == 1, found
    assert found[0].startswith("spec/test/tst-1.yaml:8: ")
    assert message in found[0]
    assert "in case 'a'" in found[0]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("equal_oracle", "unknown check 'equal_oracle' in case 'a'; did you mean 'equals_oracle'?"),
        ("[finite]", "check is one name, or one name with its arguments"),
        ("{finite: {}, linear: {}}", "check is one name, or one name with its arguments"),
        ("{exactly: {upl: 1}}", "unknown argument of exactly 'upl' in case 'a'; did you mean 'ulp'?"),
        ("{exactly: 3}", "check exactly must be a mapping; got 3"),
        ("{exactly: {outputs: [les]}}", "unknown output 'les' in case 'a'; did you mean 'lse'?"),
        ("{unchanged: {perturb: [kk], where: j}}", "unknown array 'kk'"),
        ("{unchanged: {perturb: k, where: j}}", "perturb must be a list"),
        ("{unchanged: {perturb: [k], where: 'j >'}}", "column 4"),
        ("{unchanged: {perturb: [k], where: j, at: t}}", "at must be one of b, h, i, j; got 't'"),
        ("{unchanged: {perturb: [k], where: j, by: zero}}", "by must be value (other finite values), nan or inf"),
        (
            "{equivariant: {permute: head}}",
            "permute must be one of heads, keys, batch, positions; got 'head' in case 'a'; did you mean 'heads'?",
        ),
        ("{agrees: {transform: repeat_vk}}", "did you mean 'repeat_kv'?"),
        ("{agrees: {with: {cal: {}}}}", "unknown key 'cal' in case 'a'; did you mean 'call'?"),
        ("{agrees: {with: {call: {casual: true}}}}", "unknown option 'casual' in case 'a'; did you mean 'causal'?"),
        ("{agrees: {with: {inputs: {maks: null}}}}", "unknown array 'maks' in case 'a'; did you mean 'mask'?"),
        ("{agrees: {with: {layout: {k: slcied}}}}", "unknown layout 'slcied'"),
        ("{same_for: {layout: [slcied]}}", "unknown layout 'slcied'"),
        ("{agrees: {with: null}}", "a change must be a mapping; got nothing"),
        ("{same_for: {s: 3}}", "s must be a list of at least one value"),
        ("{same_for: {s: [1], t: [2]}}", "same_for takes one variable; got s, t"),
    ],
)
def test_a_wrong_check_or_argument_is_answered_with_line_and_suggestion(check, message):
    found = faults(f"- id: a\n  check: {check}")
    assert len(found) == 1, found
    assert found[0].startswith("spec/test/tst-1.yaml:7: ")
    assert message in found[0]


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ("{}", "expect must hold outputs with their values, or raises"),
        ("{outt: [1]}", "unknown output 'outt' in case 'a'; did you mean 'out'?"),
        ("{raises: {type: ValueError}, out: [1]}", "expect holds either raises or outputs"),
        ("{raises: {typ: ValueError}}", "unknown key 'typ' in case 'a'; did you mean 'type'?"),
        ("{raises: ValueError}", "raises must be a mapping"),
    ],
)
def test_a_wrong_expectation_is_answered(expect, message):
    found = faults(f"- id: a\n  expect: {expect}")
    assert message in found[0]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ("{figure: flosp, T: [1, 2]}", "unknown figure 'flosp' in case 'a'; did you mean 'flops'?"),
        ("{T: [1, 2]}", "over takes figure and one variable with its values"),
        ("{figure: flops, T: [1], D: [2]}", "over takes figure and one variable with its values"),
        ("{figure: flops, TT: [1]}", "unknown dim 'TT'"),
        ("{figure: flops, T: 3}", "T must be a list of at least one value"),
    ],
)
def test_a_wrong_measure_is_answered(over, message):
    found = faults(f"- id: a\n  over: {over}\n  check: {{law: {{at_most: 3}}}}")
    assert message in found[0]


def test_steps_are_held_to_the_same_names():
    found = faults("- {id: a, steps: [{call: {casual: true}}], check: order_does_not_matter}")
    assert "unknown option 'casual' in case 'a'; did you mean 'causal'?" in found[0]
    assert "steps must be a list" in faults("- {id: a, steps: {random: {n: 3}}, check: order_does_not_matter}")[0]


def test_defaults_are_checked_once_and_may_serve_several_ops():
    assert faults("- {id: a, call: {op: rope}, check: finite}", "call: {traditional: true}") == []
    (fault,) = faults("- {id: a, check: finite}\n- {id: b, check: finite}", "call: {traditionl: true}")
    assert fault.startswith("spec/test/tst-1.yaml:6: ")
    assert "in the defaults; did you mean 'traditional'?" in fault


def test_a_variant_may_use_the_values_of_let():
    case = "{id: a, let: {r: {op: rope, x: q}}, vary: {form: [{name: on, call: {q: r}}, {name: off}]}, check: finite}"
    assert faults(f"- {case}") == []
    (fault,) = faults(f"- {case.replace('q: r}', 'q: s}')}")
    assert "unknown value of let 's' in variant 'on' in case 'a'; known: r" in fault


def test_values_of_let_may_come_from_the_defaults():
    assert (
        faults("- {id: a, let: {t: {op: rope, x: r}}, call: {q: t}, check: finite}", "let: {r: {op: rope, x: q}}") == []
    )
    assert "let must be a mapping" in faults("- {id: a, check: finite}", "let: [r]")[0]
