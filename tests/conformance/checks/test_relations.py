"""Checks of relations and dependence: each is broken by an implementation that breaks just what it states."""

import numpy as np
import pytest

from .implementations import Attention

SMALL = "shapes: {B: 2, N_q: 4, N_kv: 2, T_q: 5, T_kv: 9, D: 8}\n"
CAUSAL = SMALL + "call: {causal: true}\n"


def positional(s):
    """Scores that know where a key stands."""
    return s + 0.1 * np.arange(s.shape[-1], dtype=np.float32)


def leaky(see):
    """A mask that lets every query see one key more."""
    return see | np.roll(see, 1, axis=-1)


def blind(see):
    """A mask that hides the first key from every query."""
    return see & (np.arange(see.shape[-1]) > 0)


class Mixing(Attention):
    """Batch rows see each other: the first row's keys are everybody's."""

    def run(self, call):
        k = call.arrays["k"]
        return super().run(call.with_arrays(k=np.repeat(k[:1], len(k), axis=0)))


class Leaning(Attention):
    """Adds a part of the bias to the output: a shift of all scores shows."""

    def run(self, call):
        result = super().run(call)
        lean = np.float32(0.01) * call.arrays.get("bias", np.zeros((1, 1, 1, 1), np.float32))
        return type(result)({"out": (result.outputs["out"] + lean).astype(np.float32)}, path="mini")


class Drifting(Attention):
    """Every call gives a little more than the one before."""

    def run(self, call):
        result = super().run(call)
        return type(result)({n: x + np.asarray(self.calls, x.dtype) for n, x in result.outputs.items()}, path="mini")


BROKEN = [
    ("{equivariant: {permute: keys}}", SMALL, {"scores": positional}, "allowed difference"),
    ("{equivariant: {permute: positions}}", "shapes: {B: 1, N_q: 2, T: 6, D: 8}\n", {"scores": positional}, "allowed"),
    (
        "{equivariant: {permute: heads}}",
        SMALL,
        {"scores": lambda s: s * np.arange(1, 1 + s.shape[1], dtype=np.float32)[:, None, None]},
        "allowed difference",
    ),
    ("{agrees: {transform: shift_scores}}", SMALL, Leaning(), "allowed difference"),
    ("linear", SMALL, {"out": np.tanh}, "allowed difference"),
    ('{unchanged: {perturb: [k, v], where: "j > i + T_kv - T_q"}}', CAUSAL, {"allowed": leaky}, "must not matter"),
    ('{changed: {perturb: [v], where: "j <= i + T_kv - T_q"}}', CAUSAL, {"allowed": blind}, "stayed the same"),
    ('{unchanged: {perturb: [q, k, v], at: b, where: "b != p"}}', SMALL, Mixing(), "must not matter"),
    ("batch_invariant", SMALL, Mixing(), "allowed difference"),
    ("deterministic", SMALL, Drifting(), "repeat 1 differs"),
    ("{chunk_invariant: {chunks: [2]}}", CAUSAL, {"before": lambda call: call.with_options(q_offset=None)}, "allowed"),
    (
        "{path_length: {expected: 1}}",
        "shapes: {T: 6, D: 8}\n",
        {"allowed": lambda s: s & np.eye(6, dtype=bool)},
        "path",
    ),
    ("{path_is: {path: fused}}", SMALL, {}, "'mini' ran"),
]


@pytest.mark.parametrize(("check", "head", "fault", "words"), BROKEN, ids=[row[0][:40] for row in BROKEN])
def test_broken_implementation_fails(verdict, check, head, fault, words):
    target = fault if isinstance(fault, Attention) else Attention(**fault)
    kind, message = verdict(f"{head}check: {check}", target)
    assert (kind, words in message) == ("fail", True), message
    assert verdict(f"{head}check: {check}", Attention())[0] == ("fail" if "path_is" in check else "pass")


def test_agrees_fails_where_the_two_forms_differ(verdict):
    class Shifted(Attention):
        def run(self, call):
            return super().run(call if "mask" in call.arrays else call.with_options(q_offset=0))

    check = "{agrees: {with: {call: {causal: null}, inputs: {mask: {where: 'j <= i + T_kv - T_q'}}}}}"
    assert verdict(CAUSAL + f"check: {check}", Shifted())[0] == "fail"
    assert verdict(CAUSAL + f"check: {check}", Attention())[0] == "pass"


def test_values_under_a_mask_may_be_nan_only_where_nobody_sees_them(verdict):
    body = SMALL + (
        'inputs: {mask: {where: "j != 3", shape: [1, 1, 1, T_kv]}}\n'
        'check: {unchanged: {perturb: [v], where: "j == 3", by: nan}}'
    )
    kind, message = verdict(body, Attention())
    assert kind == "fail"
    assert "became nan" in message
    assert verdict(body, Attention(values=np.nan_to_num))[0] == "pass"


def test_gradient_zero(verdict):
    body = SMALL + (
        "call: {op: attention_gradients, causal: true, outputs: [v]}\n"
        'check: {gradient_zero: {of: [v], where: "j > i + T_kv - T_q"}}'
    )
    mha = body.replace("N_kv: 2", "N_kv: 4")
    assert verdict(mha, Attention())[0] == "pass"
    kind, message = verdict(mha, Attention(allowed=leaky))
    assert kind == "fail"
    assert "must be exactly 0" in message


def test_order_does_not_matter(verdict):
    class Sticky(Attention):
        """Once causal, always causal."""

        def run(self, call):
            self.stuck = getattr(self, "stuck", False) or bool(call.options.get("causal"))
            return super().run(call.with_options(causal=self.stuck))

    body = SMALL + "steps: [{call: {causal: false}}, {call: {causal: true}}]\ncheck: order_does_not_matter"
    assert verdict(body, Attention())[0] == "pass"
    assert verdict(body, Sticky())[0] == "fail"


def test_same_for_an_option(verdict):
    body = SMALL + "check: {same_for: {causal: [false, true]}}"
    assert verdict(body, Attention())[0] == "fail"
    assert verdict(body, Attention(before=lambda call: call.with_options(causal=None)))[0] == "pass"
