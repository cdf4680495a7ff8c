"""explain: the stage that is named, and a snippet that runs where this package is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import mlx.core as mx
import numpy as np
import pytest

from mlx_tx_conformance.call import Call
from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.explain import explain, explain_call, find_case
from mlx_tx_conformance.explain.stages import STAGES, guilty_rules, probe, reduced
from mlx_tx_conformance.outcome import failed
from mlx_tx_conformance.runner import SelectionError
from mlx_tx_conformance.spec import load_spec
from mlx_tx_conformance.targets import function_target, open_target

from .checks.altered import Altered, stage
from .runner.miniatures import UPPER_LEFT, MiniCase, tiny_spec

# A plain attention with every feature, in which one line at a time goes wrong.
TEMPLATE = """
import mlx.core as mx

def attention(q, k, v, scale, mask=None, causal=False, window=None, softcap=None, bias=None, alibi=None, sinks=None,
              kv_lengths=None):
    k, v = (mx.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    q32, k32, v32 = (x.astype(mx.float32) for x in (q, k, v))
    i, j = mx.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], mx.arange(k.shape[2])
    s = (q32 @ k32.swapaxes(-1, -2)) * SCALE
    if softcap is not None:
        s = SOFTCAP
    if alibi is not None:
        n = q.shape[1]
        slopes = mx.array([2.0 ** (-8 * (h + 1) / n) for h in range(n)])[:, None, None]
        s = s - slopes * mx.abs(i - j)
    if bias is not None:
        s = s + BIAS
    if causal:
        s = mx.where(CAUSAL, s, -mx.inf)
    if window is not None:
        s = mx.where((j <= i) & (WINDOW), s, -mx.inf)
    if mask is not None:
        s = mx.where(mask, s, -mx.inf) if mask.dtype == mx.bool_ else s + mask.astype(mx.float32)
    if kv_lengths is not None:
        s = mx.where(j < kv_lengths[:, None, None, None], s, -mx.inf)
        v32 = mx.where(mx.isnan(v32), 0, v32)
    m = mx.max(s, axis=-1, keepdims=True)
    if sinks is not None:
        m = mx.maximum(m, sinks[None, :, None, None])
    p = mx.exp(s - m)
    total = mx.sum(p, axis=-1, keepdims=True)
    if sinks is not None:
        total = total + SINK
    return (OUT).astype(q.dtype)
"""
RIGHT_LINES = {
    "SCALE": "scale", "SOFTCAP": "softcap * mx.tanh(s / softcap)", "BIAS": "bias", "CAUSAL": "j <= i",
    "WINDOW": "i - j < window", "SINK": "mx.exp(sinks[None, :, None, None] - m)", "OUT": "(p / total) @ v32",
}  # fmt: skip
FEATURES = {"causal": True, "window": 6, "softcap": 3.0, "alibi": True}


def write(path: Path, **wrong: str) -> Path:
    text = TEMPLATE
    for name, line in {**RIGHT_LINES, **wrong}.items():
        text = text.replace(name, line)
    path.write_text(text)
    return path


def call(options=None, dtype=np.float32, B=2, **more) -> Call:
    rng = np.random.default_rng(1)
    shapes = {"q": (B, 4, 7, 16), "k": (B, 2, 9, 16), "v": (B, 2, 9, 16)}
    arrays = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return Call("attention", {**arrays, **more}, FEATURES if options is None else options)


def everything(dtype=np.float32) -> Call:
    rng = np.random.default_rng(2)
    mask = rng.random((2, 1, 7, 9)) < 0.8
    return call(
        dtype=dtype,
        bias=rng.standard_normal((1, 4, 7, 9)).astype(dtype),
        sinks=rng.standard_normal(4).astype(dtype),
        mask=mask,
        kv_lengths=np.array([9, 8], np.int32),
        q_offset=np.array([2, 2], np.int32),
    )


FAULTS = [
    ("scores", {"SCALE": "scale * 1.01"}),
    ("capped", {"SOFTCAP": "mx.clip(s, -softcap, softcap)"}),
    ("biased", {"BIAS": "2 * bias"}),
    ("masked", {"CAUSAL": "j < i"}),
    ("masked", {"WINDOW": "i - j <= window"}),
    ("weights", {"SINK": "0"}),
    # What scales every output scales what is read through V = identity as well: it shows at the first question.
    ("scores", {"OUT": "((p / total) @ v32) * 1.01"}),
]


def posed(case: Call) -> Call:
    """Without the arguments that the template does not take."""
    return case.with_arrays(q_offset=None, kv_lengths=None)


@pytest.mark.parametrize(("stage", "wrong"), FAULTS)
def test_the_first_stage_that_departs_is_named(tmp_path, stage, wrong):
    target = open_target(str(write(tmp_path / "mine.py", **wrong)))
    found = explain_call(posed(everything()), target, case="X-1/x", outcome=failed("off"))
    assert found.stage == stage
    assert f"First stage that departs: {stage}." in found.summary
    before = STAGES.index(stage)
    assert all(STAGES.index(f.stage) < before for f in found.findings if not f.departs)


def test_a_right_attention_departs_nowhere(tmp_path):
    target = open_target(str(write(tmp_path / "mine.py")))
    found = explain_call(posed(everything()), target, case="X-1/x", outcome=failed("off"))
    assert found.stage is None
    assert [finding.stage for finding in found.findings] == list(STAGES)
    assert found.snippet == ""
    assert "What is broken is what the case demands beyond them" in found.summary


def test_what_only_v_shows_departs_at_the_output(tmp_path):
    target = open_target(str(write(tmp_path / "mine.py", OUT="mx.clip((p / total) @ v32, -1.0, 1.0)")))
    found = explain_call(call({}), target, case="X-1/x", outcome=failed("off"))
    assert found.stage == "output"


def test_the_guilty_rule_is_named(tmp_path):
    target = open_target(str(write(tmp_path / "mine.py", WINDOW="i - j <= window")))
    assert guilty_rules(target, posed(everything())) == ["window"]
    found = explain_call(posed(everything()), target, case="X-1/x", outcome=failed("off"))
    assert "Alone, window departs too." in found.summary


def test_stages_add_arguments_in_the_order_in_which_they_act():
    given = everything()
    assert set(reduced(given, "scores").options) == set()
    assert set(reduced(given, "capped").options) == {"softcap"}
    assert {"bias", "q_offset"} <= set(reduced(given, "biased").arrays)
    assert not {"mask", "sinks", "kv_lengths"} & set(reduced(given, "biased").arrays)
    assert {"mask", "kv_lengths"} <= set(reduced(given, "masked").arrays)
    assert "sinks" not in reduced(given, "masked").arrays
    assert set(reduced(given, "weights").arrays) == set(given.arrays)


def test_an_additive_mask_is_a_bias_where_it_is_finite():
    mask = np.array([[0.5, -np.inf, 1.0]], np.float32)
    arrays = {n: np.ones((1, 1, 1 if n == "q" else 3, 4), np.float32) for n in ("q", "k", "v")}
    given = Call("attention", {**arrays, "mask": mask})
    assert "mask" not in reduced(given, "capped").arrays
    assert np.array_equal(reduced(given, "biased").arrays["mask"], [[0.5, 0, 1.0]])
    assert reduced(given, "masked").arrays["mask"] is mask


def test_a_call_that_raises_departs_where_it_raises():
    def attention(q, k, v, scale, causal=False):
        if causal:
            raise RuntimeError("no causal kernel")
        p = mx.softmax((q @ k.swapaxes(-1, -2)) * scale, axis=-1)
        return p @ v

    given = call({"causal": True})
    given = given.with_arrays(q=given.arrays["q"][:, :2])
    findings = probe(function_target(attention), given)
    assert (findings[-1].stage, findings[-1].departs) == ("masked", True)
    assert "no causal kernel" in findings[-1].remark


def test_long_rows_are_sampled_and_their_ends_seen():
    def drops_last(q, k, v, scale):
        s = (q @ k.swapaxes(-1, -2)) * scale
        return mx.softmax(s[..., :-1], axis=-1) @ v[..., :-1, :]

    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal((1, 1, 2 if n == "q" else 200, 4)).astype(np.float32) for n in ("q", "k", "v")}
    finding = probe(function_target(drops_last), Call("attention", arrays))[-1]
    assert finding.departs
    assert finding.worst.index[-1] == 199


# Runs snippets where this package cannot be imported, and prints the largest error and the shape of each.
GUARD = """
import contextlib, io, json, sys

class Hidden:
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "mlx_tx_conformance":
            raise ImportError("not here")

sys.meta_path.insert(0, Hidden())
for path in sys.argv[1:]:
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(open(path).read(), path, "exec"), names)
    assert "worst element" in said.getvalue()
    print(json.dumps([float(names["error"].max()), list(names["error"].shape)]))
"""


def executed(folder: Path, *snippets: str) -> list[tuple[float, list[int]]]:
    """The largest error that each snippet finds, and the shape of its result."""
    paths = [folder / f"snippet{number}.py" for number in range(len(snippets))]
    for path, snippet in zip(paths, snippets, strict=True):
        path.write_text(snippet)
    command = [sys.executable, "-P", "-c", GUARD, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_snippet_runs_without_this_package_and_shows_the_error(tmp_path, dtype):
    target = open_target(str(write(tmp_path / "mine.py", WINDOW="i - j <= window")))
    found = explain_call(posed(everything(dtype)), target, case="X-1/x", outcome=failed("off"))
    assert "mlx_tx_conformance" not in found.snippet
    ((error, shape),) = executed(tmp_path, found.snippet)
    assert error > 0.05
    assert shape[:2] == [1, 2], "cut to one batch row and one group of heads"


def test_the_snippet_s_own_reference_is_right(tmp_path):
    """Where the implementation is right, the snippet's float64 lines agree with it: every feature, each alone too."""
    from mlx_tx_conformance.explain.snippet import make_snippet

    target = open_target("mlx_tx:composed")
    rng = np.random.default_rng(5)
    more = {
        "bias": rng.standard_normal((1, 4, 7, 9)).astype(np.float32),
        "sinks": rng.standard_normal(4).astype(np.float32),
        "mask": rng.random((7, 9)) < 0.7,
        "alibi": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
    }
    calls = [
        everything(),
        call({"softcap": 2.0, "scale": 0.3}),
        call({"alibi": True}),
        call({"window": [2, 1]}),
        call({"window": [None, 3]}),
        call({"mask": "causal"}),
        call({"causal": True, "q_offset": 1}),
        call({}, segments=np.zeros((2, 9), np.int32)).with_arrays(q=np.ones((2, 4, 9, 16), np.float32)),
        call({}, q_segments=np.array([[0] * 4 + [1] * 3] * 2), kv_segments=np.array([[0] * 5 + [1] * 4] * 2)),
        call({}, mask=np.where(more["mask"], np.float32(0.5), np.float32(-np.inf))),
        *(call({}, **{name: array}) for name, array in more.items()),
    ]
    # `departs` decides where to cut and whether to draw anew; here the whole call is to be written down.
    snippets = [make_snippet(target, one, lambda c: False, "a right call") for one in calls]
    assert [error < 1e-5 for error, _ in executed(tmp_path, *snippets)] == [True] * len(calls)


def test_the_worst_element_stands_with_its_neighbours(tmp_path):
    target = open_target(str(write(tmp_path / "mine.py", CAUSAL="j < i")))
    text = explain_call(call({"causal": True}), target, case="X-1/x", outcome=failed("off")).text()
    (worst,) = [line for line in text.splitlines() if line.endswith("<- worst")]
    assert worst.startswith("out[")
    assert sum(line.startswith("out[") for line in text.splitlines()) >= 4
    assert "V = identity" in text


def test_a_case_of_the_spec_is_replayed(tmp_path):
    cases = load_spec(tiny_spec(tmp_path / "spec")).cases
    (tmp_path / "wrong.py").write_text(UPPER_LEFT)
    target = open_target(str(tmp_path / "wrong.py"))
    found = explain(find_case(cases, "MSK-1/equals-oracle[float16]"), target)
    assert found.outcome.verdict == "fail"
    assert found.stage == "masked"
    assert executed(tmp_path, found.snippet)[0][0] > 0.05
    assert "nothing to take apart" in explain(find_case(cases, "MSK-1/window-zero"), target).summary
    assert explain(find_case(cases, "ATT-3/equals-oracle"), target).stage is None


def test_a_case_about_an_error_has_no_stages(tmp_path):
    cases = load_spec(tiny_spec(tmp_path / "spec")).cases
    found = explain(find_case(cases, "MSK-1/window-zero"), open_target("mlx_tx:composed"))
    assert "about an error" in found.summary
    assert found.outcome.verdict == "pass"


def test_a_wrong_backward_pass_is_told_from_a_wrong_forward_pass():
    @mx.custom_function
    def plain(q, k, v):
        return mx.softmax((q @ k.swapaxes(-1, -2)) * 0.25, axis=-1) @ v

    @plain.vjp
    def backward(primals, cotangent, output):
        return tuple(2 * x for x in primals)

    def attention(q, k, v):
        return plain(q, k, v)

    given = call({})
    arrays = {n: given.arrays[n] for n in ("k", "v")} | {"q": given.arrays["q"][:, :2]}
    gradients = Call("attention_gradients", {**arrays, "d_out": arrays["q"]}, {}, {}, ("q", "k", "v"))
    found = explain_call(gradients, function_target(attention), case="X-1/x", outcome=failed("off"))
    assert "the backward pass departs" in found.summary
    assert any(line.endswith("<- worst") for line in found.element)


def test_a_closure_has_no_snippet():
    found = explain_call(call({}), function_target(lambda q, k, v: q), case="X", outcome=failed("off"))
    assert found.stage == "scores"
    assert found.snippet == ""


def test_a_result_of_a_wrong_shape_departs():
    found = explain_call(call({}), function_target(lambda q, k, v: v), case="X", outcome=failed("off"))
    assert found.stage == "scores"
    assert "out has shape (2, 2, 9, 16), expected (2, 4, 7, 16)" in found.text()


CASES = [MiniCase("MSK-1/a[float32]"), MiniCase("MSK-1/a[float16]"), MiniCase("MSK-1/b[x]")]


def test_cases_are_found_by_id_or_by_a_name_that_is_one_case():
    assert find_case(CASES, "MSK-1/a[float16]") is CASES[1]
    assert find_case(CASES, "MSK-1/b") is CASES[2]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("MSK-1/a", r"2 cases; name one of them:\n  MSK-1/a\[float32\]"), ("MSK-1/bb[x]", r"did you mean 'MSK-1/b\[x\]'")],
)
def test_a_case_that_is_not_one_is_refused(wanted, said):
    with pytest.raises(SelectionError, match=said):
        find_case(CASES, wanted)


def test_a_model_is_taken_apart_stage_by_stage():
    case = find_case(load_spec(spec_root()).cases, "BLK-1/every-stage[bfloat16,placement=pre,kind=rms]")
    right = explain(case, open_target("mlx_tx:composed"))
    assert right.stage is None
    assert "stages agree" in right.summary

    def bump(array):
        array[(0,) * array.ndim] += 0.5
        return array

    wrong = explain(case, Altered(stage("layers.1.self_attn.k_rope", bump)))
    assert wrong.stage == "layers.1.self_attn.k_rope"
    assert wrong.element[0].startswith("layers.1.self_attn.k_rope[0,0,0,0] = ")
    assert "departs" in wrong.text()


def test_what_is_judged_as_a_whole_says_so():
    case = find_case(load_spec(spec_root()).cases, "KVC-1/offset-stays-as-it-was-read")
    assert "judged as a whole" in explain(case, open_target("mlx_tx:composed")).summary
