"""Checks of values: right implementations pass, and each kind of wrong one fails with a message that says where."""

import numpy as np
import pytest

from .implementations import Attention

SMALL = "shapes: {B: 1, N_q: 2, T_q: 5, T_kv: 9, D: 8}\n"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "check",
    [
        "equals_oracle",
        "rows_sum_to_one",
        "in_hull",
        "finite",
        "linear",
        "deterministic",
        "inputs_unmutated",
        "{equivariant: {permute: keys}}",
        "{equivariant: {permute: heads}}",
        "{equivariant: {permute: positions}}",
        "{agrees: {transform: shift_scores}}",
        "{agrees: {transform: swap_keys}}",
        "{chunk_invariant: {chunks: [1, 2, 4]}}",
        "batch_invariant",
        "score_test",
    ],
)
def test_right_implementation_passes(verdict, dtype, check):
    shapes = SMALL if "positions" not in check else "shapes: {B: 1, N_q: 2, T: 6, D: 8}\n"
    assert verdict(f"{shapes}dtype: {dtype}\ncheck: {check}", Attention())[0] in ("pass", "weak")


def test_equals_oracle_names_the_worst_element(verdict):
    def off(out):
        out = out.copy()
        out[0, 1, 2, 3] += 1
        return out

    kind, message = verdict(SMALL + "check: equals_oracle", Attention(out=off))
    assert kind == "fail"
    assert message.startswith("out[0,1,2,3] = ")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"out": lambda out: out[:, :, :, :-1]}, "has shape (1, 2, 5, 7), expected (1, 2, 5, 8)"),
        ({"out": lambda out: out * np.nan}, "nan"),
        ({"scores": lambda s: s * 1.01}, "error/bound"),
        ({"mutate": True}, "changed its input 'q'"),
    ],
)
def test_equals_oracle_fails(verdict, fault, words):
    kind, message = verdict(SMALL + "check: equals_oracle", Attention(**fault))
    assert kind == "fail"
    assert words in message


def test_result_of_another_dtype_fails(verdict):
    class Widening(Attention):
        def run(self, call):
            result = super().run(call)
            return type(result)({"out": result.outputs["out"].astype(np.float32)}, path=result.path)

    kind, message = verdict(SMALL + "dtype: float16\ncheck: equals_oracle", Widening())
    assert (kind, "float32, expected float16" in message) == ("fail", True)


def test_exactly_sees_one_unit_in_the_last_place(verdict):
    body = SMALL + "inputs: {design: one_live_key}\ncheck: exactly"
    assert verdict(body, Attention())[0] == "pass"
    kind, message = verdict(body, Attention(out=lambda out: np.nextafter(out, np.float32(np.inf))))
    assert kind == "fail"
    assert "exact value expected" in message
    assert (
        verdict(
            body.replace("exactly", "{exactly: {ulp: 1}}"), Attention(out=lambda o: np.nextafter(o, np.float32(9e9)))
        )[0]
        == "pass"
    )


def test_rows_sum_to_one_fails_for_weights_that_do_not(verdict):
    kind, _ = verdict(SMALL + "check: rows_sum_to_one", Attention(out=lambda out: out * np.float32(1 + 1e-5)))
    assert kind == "fail"


def test_in_hull_fails_outside(verdict):
    kind, message = verdict(SMALL + "check: in_hull", Attention(out=lambda out: out + 10))
    assert kind == "fail"
    assert "outside the range of V" in message


def test_finite_fails_on_infinity(verdict):
    assert verdict(SMALL + "check: finite", Attention(out=lambda out: out + np.float32(np.inf)))[0] == "fail"


def test_score_test_names_the_factor(verdict):
    body = "shapes: {B: 1, N_q: 2, T_q: 8, T_kv: 256, D: 96}\ndtype: bfloat16\ncheck: score_test"
    kind, message = verdict(body, Attention(scores=lambda s: s * np.float32(1 + 2**-8)))
    assert kind == "fail"
    assert "scale that is wrong by a factor 1.00" in message


def test_nan_where_asks_for_both(verdict):
    body = SMALL + 'check: {nan_where: {where: "b == 0"}}'
    assert verdict(body, Attention(out=lambda out: out * np.nan))[0] == "pass"
    kind, message = verdict(body, Attention())
    assert kind == "fail"
    assert "expected NaN" in message


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ValueError("window must be >= 1; got 0"), "pass"),
        (ValueError("bad value"), "fail"),
        (KeyError("window"), "fail"),
        (None, "fail"),
    ],
)
def test_raises_asks_for_type_and_name(verdict, raised, kind):
    class Refusing(Attention):
        def run(self, call):
            if raised is not None:
                raise raised
            return super().run(call.with_options(window=None))

    got, _ = verdict("call: {window: 0}\nexpect: {raises: {type: ValueError, names: window}}", Refusing())
    assert got == kind


def test_exception_on_good_input_is_an_error(verdict):
    class Crashing(Attention):
        def run(self, call):
            raise RuntimeError("no")

    assert verdict(SMALL + "check: equals_oracle", Crashing()) == ("error", "RuntimeError: no")


def test_unsupported_tells_the_reason(verdict):
    assert verdict("call: {op: rope}\ncheck: equals_oracle", Attention()) == ("unsupported", "no op")


def test_case_about_a_path_is_not_for_another(verdict):
    assert verdict(SMALL + "path: fused\ncheck: equals_oracle", Attention()) == ("unsupported", "no path fused")


def test_another_path_than_asked_for_fails(verdict):
    class Falling(Attention):
        def path_refusal(self, path):
            return None

    kind, message = verdict(SMALL + "path: fused\ncheck: equals_oracle", Falling())
    assert kind == "fail"
    assert "'fused' was asked for and 'mini' ran" in message
