import copy
import os
import random
import subprocess
import sys
import time

import pytest

from mlx_tx_conformance.spec import SpecError, load_spec
from mlx_tx_conformance.spec.expand import expand
from mlx_tx_conformance.spec.grammar import read_clause
from mlx_tx_conformance.spec.loader import spec_hash
from mlx_tx_conformance.spec.reader import Document, parse

from .conftest import CAUSAL, SOURCES, WINDOW, clause_text


def refusal(root):
    with pytest.raises(SpecError) as caught:
        load_spec(root)
    return str(caught.value)


def test_a_spec_is_its_clauses_in_the_order_of_their_paths(spec):
    assert [clause.id for clause in spec.clauses] == ["MSK-1", "SWA-1"]
    assert [case.id for case in spec.cases] == [
        "MSK-1/equals-oracle[float32,T_q=1]",
        "MSK-1/equals-oracle[float32,T_q=9]",
        "MSK-1/equals-oracle[bfloat16,T_q=1]",
        "MSK-1/equals-oracle[bfloat16,T_q=9]",
        "MSK-1/later-keys-invisible",
        "SWA-1/window-zero",
    ]
    assert spec.clause("SWA-1").subject == "window"
    assert repr(spec).endswith("2 clauses)")


def test_files_are_in_the_order_of_their_numbers(write_spec):
    names = {f"a__tst_{n}": WINDOW.replace("SWA-1", f"TST-{n}") for n in (1, 2, 10, 0)}
    spec = load_spec(write_spec(**names))
    assert [clause.id for clause in spec.clauses] == ["TST-0", "TST-1", "TST-2", "TST-10"]


def test_a_case_is_found_by_its_id_and_a_near_one_is_suggested(spec):
    assert spec.case("MSK-1/equals-oracle[bfloat16,T_q=9]").dims["T_q"] == 9
    with pytest.raises(SpecError, match="no clause 'MSK-2'; did you mean 'MSK-1'"):
        spec.clause("MSK-2")
    with pytest.raises(SpecError, match=r"did you mean 'MSK-1/equals-oracle\[bfloat16,T_q=9\]'"):
        spec.case("MSK-1/equals-oracle[bfloat16,T_q=8]")


@pytest.mark.parametrize(
    ("globs", "count"),
    [
        ([], 6),
        (["MSK-1"], 5),
        (["msk-*"], 5),
        (["*"], 6),
        (["MSK-1/equals-oracle"], 4),
        (["MSK-1/equals-oracle[bfloat16,T_q=9]"], 1),
        (["MSK-1/equals-oracle[bfloat16*"], 2),
        (["*/window-zero"], 1),
        (["MSK-1/*T_q=?]"], 4),
        (["SWA-1", "MSK-1/later*", "SWA-1"], 2),
    ],
)
def test_globs_select_clauses_and_cases(spec, globs, count):
    chosen = spec.select(globs)
    assert len(chosen) == count
    order = [case.id for case in spec.cases]
    assert [case.id for case in chosen] == sorted((case.id for case in chosen), key=order.index)


@pytest.mark.parametrize(("glob", "hint"), [("MSK-11", "MSK-1"), ("MSK-1/equals-oracel", "MSK-1/equals-oracle")])
def test_a_glob_that_selects_nothing_is_refused(spec, glob, hint):
    with pytest.raises(SpecError) as caught:
        spec.select(["*", glob])
    assert f"no case matches {glob!r}; did you mean {hint!r}?" == str(caught.value)


def test_all_faults_of_all_files_are_reported_at_once(write_spec):
    root = write_spec(
        sources=SOURCES.replace("title: Notes", "titel: Notes"),
        mask__msk_1=CAUSAL.replace("shapes:", "shpaes:"),
        window__swa_1=WINDOW.replace("window: 0", "widnow: 0"),
    )
    lines = refusal(root).splitlines()
    assert any(line.startswith("spec/sources.yaml:") for line in lines)
    assert "spec/mask/msk-1.yaml:7: unknown key 'shpaes' in the defaults; did you mean 'shapes'?" in lines
    assert "spec/window/swa-1.yaml:8: unknown option 'widnow' in case 'window-zero'; did you mean 'window'?" in lines


def test_a_clause_that_is_there_twice_is_refused(write_spec):
    root = write_spec(mask__msk_1=CAUSAL, mask__msk_2=CAUSAL)
    assert refusal(root) == "spec/mask/msk-2.yaml:2: the clause MSK-1 is there twice (first in spec/mask/msk-1.yaml:2)"


def test_cases_that_cannot_be_expanded_are_reported_together(write_spec):
    root = write_spec(
        mask__msk_1=CAUSAL.replace("N_q: 4, N_kv: 2", "N_q: 4, N_kv: 3"),
        window__swa_1=WINDOW.replace("expect: {raises: {type: ValueError, names: window}}", "check: finite"),
    )
    spec = load_spec(root)
    with pytest.raises(SpecError) as caught:
        _ = spec.cases
    assert len(caught.value.findings) == 3
    with pytest.raises(SpecError, match="no multiple of N_kv = 3"):
        spec.cases_of("MSK-1")


def test_links_are_refused_wherever_they_are(write_spec, tmp_path):
    root = write_spec(mask__msk_1=CAUSAL)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "swa-1.yaml").write_text(WINDOW)
    (root / "mask" / "swa-1.yaml").symlink_to(outside / "swa-1.yaml")
    (root / "window").symlink_to(outside)
    assert refusal(root).splitlines() == [
        "spec/mask/swa-1.yaml:1: is a symbolic link; the spec takes plain files only",
        "spec/window/swa-1.yaml:1: lies in a folder that is a symbolic link",
    ]


def test_a_spec_without_sources_or_folder_is_refused(root):
    (root / "sources.yaml").unlink()
    assert refusal(root) == "spec/sources.yaml:1: cannot be read: No such file or directory"
    with pytest.raises(SpecError, match="no folder"):
        load_spec(root / "nowhere")


def test_hidden_files_are_not_clauses(root):
    (root / "mask" / ".#msk-1.yaml").symlink_to("user@host.1:2")
    assert len(load_spec(root).clauses) == 2


def test_messages_name_the_folder_also_for_a_relative_root(root, monkeypatch):
    (root / "mask" / "bad-1.yaml").write_text("[")
    monkeypatch.chdir(root)
    assert refusal(".").startswith("spec/mask/bad-1.yaml:")


def test_the_hash_follows_names_and_bytes(root):
    before = spec_hash(root)
    assert spec_hash(root) == before
    (root / "mask" / "msk-1.yaml").rename(root / "mask" / "msk-2.yaml")
    renamed = spec_hash(root)
    (root / "sources.yaml").write_text(SOURCES + "\n")
    assert len({before, renamed, spec_hash(root)}) == 3


RICH = clause_text(
    """
    - id: varied
      shapes: {T_q: "T_kv // 2", T_kv: 8}
      inputs: {design: {spiky: {std: 16}}, mask: {where: "j <= i", additive: -1.0, shape: [1, 1, T_q, T_kv]}}
      layout: {k: sliced}
      vary: {dtype: [float32, float16], form: [{name: a, call: {causal: true}}, {name: b, inputs: {sinks: [1, 2]}}]}
      pairwise: {D: [8, 16], window: [null, 2, [1, 2]]}
      only_if: "D > 8 or a"
      check: {unchanged: {perturb: [k], where: "j > i", at: j, by: nan}}
      tags: [slow]
      seed: 3
    - id: by-hand
      inputs: {q: [[[[1.0]]]], k: [[[[1.0]]]], v: [[[[1.0]]]]}
      expect: {out: [[[[1.0]]]]}
    - {id: refused, call: {window: 0}, expect: {raises: {type: ValueError, names: [window]}}}
    - id: chain
      let: {r: {op: rope, x: q, offset: "s + 1"}}
      call: {q: r, outputs: [lse]}
      check: {same_for: {s: [0, 17]}}
    - {id: sizes, over: {figure: flops, T: [4, 8, 16]}, check: {law: {exponent_at_most: 2.0}}}
    - {id: order, steps: [{call: {causal: true}}, {inputs: {mask: {where: j}}}], check: order_does_not_matter}
    - {id: forms, check: {agrees: {with: {call: {causal: true}, layout: {q: offset}}}}}
    """,
    "call: {op: attention, scale: 0.5}",
)
ODD = [None, 3, -1, 2.5, True, float("nan"), "x", "", "j <= i", "q", "rope", [], [1], [[1]], [None], {}, {"a": 1}]
ODD += [{"name": "x"}, {"name": "x", "value": 3}, {"where": "j"}, {"op": "rope"}, {"op": {}}, [{}], 2**40]


def _places(value, place=()):
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*place, key))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_written_is_a_spec_or_a_finding(seed):
    rng = random.Random(seed)
    loaded = refused = 0
    for _ in range(250):
        value = copy.deepcopy(parse(RICH, "f").value)
        *above, last = rng.choice([place for place in _places(value) if place])
        inner = value
        for key in above:
            inner = inner[key]
        inner[last] = copy.deepcopy(rng.choice(ODD))
        clause, findings = read_clause(Document("f", value, {(): 1}), "test")
        assert (clause is None) == bool(findings)
        for template in clause.templates if clause else ():
            try:
                loaded += len(expand(template))
            except SpecError as error:
                refused += len(error.findings)
    assert loaded > 100
    assert refused > 10


def test_loading_and_listing_imports_no_mlx():
    code = (
        "import sys\n"
        "from mlx_tx_conformance.spec import load_spec\n"
        "print(len(load_spec().cases))\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('mlx', 'mlx_tx', 'jsonschema')))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    count, modules = result.stdout.splitlines()
    assert int(count) > 0
    assert modules == "[]"


def test_the_shipped_spec_loads_with_unique_ids():
    start = time.perf_counter()
    cases = load_spec().cases
    assert len({case.id for case in cases}) == len(cases) > 500
    assert time.perf_counter() - start < 60  # far beyond what it takes; a runaway would not end
