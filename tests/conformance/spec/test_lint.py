import numpy as np
import pytest

from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.spec.lint import evaluate_with_oracle, lint

from .conftest import CAUSAL, WINDOW, clause_text, only


def findings(root, **rest):
    return [str(finding) for finding in lint(root, **rest)]


def about(write_spec, cases, defaults="", **rest):
    return findings(write_spec(test__tst_1=clause_text(cases, defaults)), **rest)


def test_a_spec_in_order_has_no_findings(root):
    assert findings(root) == []


def test_the_shipped_spec_has_no_findings():
    assert findings(spec_root()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("clause: MSK-1", "clause: Msk-1"),
            "spec/mask/msk-1.yaml:2: a clause's id is capitals, a hyphen and a number, as MSK-1; got 'Msk-1'",
        ),
        (("clause: MSK-1", "clause: MSK-01"), "as MSK-1; got 'MSK-01'"),
        (("clause: MSK-1", "clause: MSK-2"), "spec/mask/msk-1.yaml:2: the file of MSK-2 is called msk-2.yaml"),
        (("title: Causal mask", "title: Causal mask."), "spec/mask/msk-1.yaml:3: a title has no full stop"),
        (
            ("title: Causal mask", f"title: {'x' * 81}"),
            "spec/mask/msk-1.yaml:3: the title has 81 characters; at most 80",
        ),
        (
            ("document: notes", "document: noets"),
            "spec/mask/msk-1.yaml:5: unknown document 'noets'; did you mean 'notes'? (in sources.yaml)",
        ),
        (("statement: S-1", "statement: SS-1"), "notes has no statement 'SS-1'; did you mean 'S-1'?"),
        (("paper: vaswani-2017", "paper: vaswani-2071"), "unknown paper 'vaswani-2071'; did you mean 'vaswani-2017'?"),
        (
            ('report: "mlx#2"', 'report: "mlx#3"'),
            "spec/mask/msk-1.yaml:15: unknown report 'mlx#3'; did you mean 'mlx#1'?",
        ),
        (("T_q: [1, 9]", "T_q: [9]"), "spec/mask/msk-1.yaml:12: 'T_q' varies over one value only"),
        (
            ("T_q: [1, 9]", 'T_q: ["T_k", 9]'),
            "unknown name 'T_k' in 'T_k' in case 'equals-oracle'; did you mean 'T_kv'?",
        ),
        (
            ("j > i + T_kv - T_q", "j > i + T_kv - T_qq"),
            "spec/mask/msk-1.yaml:16: unknown name 'T_qq' in 'j > i + T_kv - T_qq', column 16, in case "
            "'later-keys-invisible'; did you mean 'T_q'?",
        ),
        (
            ("shapes:", "shpaes:"),
            "spec/mask/msk-1.yaml:7: unknown key 'shpaes' in the defaults; did you mean 'shapes'?",
        ),
    ],
)
def test_findings_have_file_line_and_suggestion(write_spec, change, message):
    text = CAUSAL.replace(*change)
    assert text != CAUSAL
    found = findings(write_spec(mask__msk_1=text))
    assert any(message in finding for finding in found), found


def test_a_clause_without_a_case_is_found(write_spec):
    text = WINDOW.partition("cases:")[0] + "cases: []\n"
    assert findings(write_spec(window__swa_1=text)) == ["spec/window/swa-1.yaml:6: no case checks SWA-1"]


def test_files_that_the_loader_does_not_see_are_found(root):
    (root / "mask" / "deep").mkdir()
    for name in ("top-1.yaml", "mask/msk-2.yml", "mask/deep/msk-3.yaml"):
        (root / name).write_text(CAUSAL)
    assert findings(root) == [
        "spec/mask/deep/msk-3.yaml:1: is not loaded; a clause lies in <subject>/<clause>.yaml",
        "spec/mask/msk-2.yml:1: is not loaded; its name must end in .yaml",
        "spec/top-1.yaml:1: is not loaded; a clause lies in <subject>/<clause>.yaml",
    ]


def test_broken_sources_do_not_hide_other_findings(write_spec):
    root = write_spec(sources="documents: 3", mask__msk_1=CAUSAL.replace("T_q: [1, 9]", "T_q: [9]"))
    assert len(findings(root)) == 2


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("{id: a, let: {r: {op: rope, x: q}}, check: finite}", "let 'r' is not used in case 'a'"),
        ("{id: a, let: {r: {op: rope, x: q}, s: {op: rope, x: r}}, check: finite}", "let 's' is not used"),
        (
            "{id: a, check: {same_for: {scal: [1, 2]}}}",
            "nothing uses the variable 'scal' of same_for in case 'a'; did you mean 'scale'?",
        ),
        ("{id: a, pairwise: {D: [8, 16]}, check: finite}", "pairwise of one key is the same as vary in case 'a'"),
        (
            "{id: a, inputs: {design: spikey}, check: finite}",
            "unknown design 'spikey' in case 'a'; did you mean 'spiky'?",
        ),
        (
            "{id: a, inputs: {design: {spiky: {sdt: 3}}}, check: finite}",
            "the design spiky has no parameter 'sdt' in case 'a'; did you mean 'std'?",
        ),
        ("{id: a, inputs: {mask: {where: 'j <= windw'}}, check: finite}", "unknown name in 'j <= windw': 'windw'"),
        (
            "{id: a, inputs: {mask: {where: 'j <= window'}}, check: finite}",
            "unknown name 'window' in 'j <= window', column 6",
        ),
        ("{id: a, check: {path_length: {expected: 'T_qq'}}}", "unknown name 'T_qq'"),
        (
            "{id: a, vary: {T_q: [0, 1], N_q: [3, 4]}, only_if: 'T_q > 5', check: finite}",
            "only_if leaves no combination",
        ),
    ],
)
def test_what_does_nothing_or_means_nothing_is_found(write_spec, case, message):
    found = about(write_spec, f"- {case}")
    assert any(message in finding and finding.startswith("spec/test/tst-1.yaml:6: ") for finding in found), found


def test_what_is_used_is_not_complained_about(write_spec):
    cases = """
    - id: a
      let: {r: {op: rope, x: q, offset: "s + 1"}, t: {op: rope, x: r}}
      call: {q: t}
      check: {same_for: {s: [0, 1]}}
    - {id: b, check: {same_for: {softcap: [1.0, 1.0]}}}
    - {id: c, call: {window: 2}, inputs: {mask: {where: "j <= window"}}, check: finite}
    """
    assert about(write_spec, cases) == []


BY_HAND = """
- id: by-hand
  call: {scale: 1.0, outputs: [out, lse]}
  inputs: {q: [[[[1.0]]]], k: [[[[0.0], [0.0]]]], v: [[[[4.0], [8.0]]]]}
  expect: {out: %s, lse: %s}
"""


@pytest.mark.parametrize(
    ("out", "lse", "message"),
    [
        ("[[[[6.0]]]]", "[[[0.69314718056]]]", None),
        ("[[[[6.0]]]]", '[[["log2(2) * 0.6931471805599453"]]]', None),
        (
            "[[[[6.01]]]]",
            "[[[0.69314718056]]]",
            "out[0,0,0,0] is written as 6.01; the oracle gives 6 in case 'by-hand'",
        ),
        ("[[[[6.0]]]]", "[[[0.6931]]]", "lse[0,0,0] is written as 0.6931; the oracle gives 0.693147181"),
        ("[[[6.0]]]", "[[[0.69314718056]]]", "the expected out has shape (1, 1, 1); the oracle's has (1, 1, 1, 1)"),
        ("[[[[.nan]]]]", "[[[0.69314718056]]]", "out[0,0,0,0] is written as nan"),
        ("[[[[6.0], []]]]", "[[[0.69314718056]]]", "the expected out is no array of numbers"),
        ("[[[[null]]]]", "[[[0.69314718056]]]", "out[0,0,0,0] is written as nan"),
    ],
)
def test_expected_values_are_held_to_the_oracle(write_spec, out, lse, message):
    found = about(write_spec, BY_HAND % (out, lse))
    if message is None:
        assert found == []
    else:
        assert len(found) == 1
        assert message in found[0]
        assert found[0].startswith("spec/test/tst-1.yaml:9: ")


def test_infinite_and_undefined_values_are_expected_as_such(write_spec):
    def oracle(case):
        return {"out": np.array([[[[np.nan]]]]), "lse": np.array([[[-np.inf]]])}

    assert about(write_spec, BY_HAND % ("[[[[.nan]]]]", "[[[-.inf]]]"), oracle=oracle) == []
    assert len(about(write_spec, BY_HAND % ("[[[[.nan]]]]", "[[[.inf]]]"), oracle=oracle)) == 1


def test_a_case_that_the_oracle_refuses_is_a_finding(write_spec):
    def oracle(case):
        raise ValueError("[attention] no")

    (finding,) = about(write_spec, BY_HAND % ("[[[[6.0]]]]", "[[[0.5]]]"), oracle=oracle)
    assert "the oracle refuses the case: [attention] no in case 'by-hand'" in finding


def test_the_oracle_evaluates_a_case_of_every_kind():
    case = only(BY_HAND % ("[[[[6.0]]]]", "[[[0.5]]]"))
    values = evaluate_with_oracle(case)
    assert values["out"].item() == 6.0
    assert values["lse"].item() == pytest.approx(np.log(2))
    slopes = evaluate_with_oracle(only("- {id: a, shapes: {N_q: 2}, call: {op: alibi_slopes}, expect: {out: [1, 2]}}"))
    assert slopes["out"].tolist() == [2.0**-4, 2.0**-8]


def test_a_fault_of_many_cases_is_reported_once(write_spec):
    found = about(write_spec, "- {id: a, vary: {D: [8, 16, 32]}, inputs: {design: spikey}, check: finite}")
    assert len(found) == 1
