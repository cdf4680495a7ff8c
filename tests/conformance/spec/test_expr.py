import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_tx_conformance.spec.expr import MAX_LENGTH, ExpressionError, evaluate, parse

I, J = np.ogrid[:4, :5]  # noqa: E741 - the names of the grid
GRID = {"i": I, "j": J, "T_q": 4, "T_kv": 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("2 ** 3 ** 2", 512),
        ("7 // -2", -4),
        ("-7 % 3", 2),
        ("1 - 2 - 3", -4),
        ("8 / 2 / 2", 2.0),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("not 0 and 3", True),
        ("1 or 1 / 0", True),
        ("0 and 1 / 0", False),
        ("not not 5", True),
        ("--3", 3),
        ("-inf", float("-inf")),
        ("true + true", 2),
        ("min(3, 1, 2) + max(1, 2)", 3),
        ("ceil(1.2) + floor(-1.2)", 0),
        ("log2(8) * sqrt(4)", 6.0),
        ("abs(-3)", 3),
        (".5 + 1.", 1.5),
        ("1e-5", 1e-5),
        ("T_kv // 2 + T_q", 6),
        ("  1 +\n 1 ", 2),
    ],
)
def test_values_are_those_of_python(text, value):
    result = evaluate(text, GRID)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "j <= i + T_kv - T_q",
        "(3 * i + 5 * j) % 4 != 0",
        "0 <= i - j < 3",
        "j // 2 == i // 2",
        "abs(i - j) ** 2 + min(i, j, 2)",
        "max(j - i, 0) / 2",
    ],
)
def test_grids_are_evaluated_element_by_element(text):
    result = np.broadcast_to(evaluate(text, GRID), (4, 5))
    python = text.replace("0 <= i - j < 3", "(0 <= i - j) and (i - j < 3)")
    for i in range(4):
        for j in range(5):
            assert result[i, j] == eval(
                python, {"min": min, "max": max, "abs": abs}, {"i": i, "j": j, "T_q": 4, "T_kv": 5}
            )


def test_logic_on_grids_is_element_wise():
    result = evaluate("(j > i and not j == 3) or i == 3", GRID)
    assert result.dtype == bool
    assert result.tolist() == [[(j > i and j != 3) or i == 3 for j in range(5)] for i in range(4)]


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("T_qq + 1", 1, "unknown name 'T_qq'; did you mean 'T_q'?"),
        ("1 + T_qq", 5, "did you mean 'T_q'?"),
        ("foo(1)", 1, "no function 'foo'; did you mean 'floor'?"),
        ("1 +", 4, "expected; found the end"),
        ("(1", 3, "')' expected"),
        ("1 2", 3, "found '2'"),
        ("a & b", 3, "write 'and'"),
        ("a | b", 3, "write 'or'"),
        ("!a", 1, "write 'not'"),
        ("1 = 1", 3, "write '=='"),
        ("2 ^ 3", 3, "write '**'"),
        ("1_000", 2, "unexpected '_' after a number"),
        ("0x10", 2, "unexpected 'x' after a number"),
        ("1j", 2, "unexpected 'j' after a number"),
        ("none", 1, "write null"),
        ("min(1)", 1, "takes 2 to 8 arguments; got 1"),
        ("sqrt(1, 2)", 1, "takes 1 argument; got 2"),
        ("1 / 0", 3, "division by zero"),
        ("j // (i - 1)", 3, "no finite number"),
        ("2 ** 60", 3, "beyond 2^53"),
        ("9007199254740993", 1, "beyond 2^53"),
        ("1e999", 1, "too large"),
        ("a.b", 2, "unexpected '.'"),
        ("'a'", 1, "unexpected"),
        ("[1]", 1, "unexpected '['"),
        ("lambda: 1", 7, "unexpected ':'"),
        ("x if y else z", 3, "found 'if'"),
        ("f'{1}'", 2, "unexpected"),
        ("１ + 1", 1, "unexpected"),
        ("and", 1, "found 'and'"),
        ("", 1, "empty"),
        ("   ", 1, "empty"),
    ],
)
def test_faults_name_the_column_and_what_was_meant(text, column, words):
    with pytest.raises(ExpressionError) as caught:
        evaluate(text, {**GRID, "a": 1, "b": 0})
    assert words in str(caught.value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    "text",
    [
        "(" * 400 + "1" + ")" * 400,
        "2 **" * 200 + "1",
        "min(" * 100 + "1, 1" + ", 1)" * 100,
        "1" + "+1" * 600,
        "9" * 900,
        "10 ** 10 ** 10 ** 10",
        "10 ** 15 * 10 ** 15",
        "x" * (MAX_LENGTH + 1),
        "__import__('os').system('true')",
        "().__class__",
        "(i * 2 ** 40) ** 40",
    ],
)
def test_hostile_expressions_are_refused_at_once(text):
    start = time.perf_counter()
    with pytest.raises(ExpressionError):
        evaluate(text, GRID)
    assert time.perf_counter() - start < 5  # not a measure of speed: a runaway would take hours


@pytest.mark.parametrize("text", ["1" + "+1" * 499, "-" * 999 + "1", "not " * 200 + "1", "1" + "<2" * 400])
def test_long_flat_expressions_are_evaluated(text):
    assert evaluate(text, {}) == eval(text)


def test_a_name_is_looked_for_even_where_it_would_not_be_asked():
    with pytest.raises(ExpressionError, match="unknown name 'missing'"):
        evaluate("1 or missing", {})


def test_the_names_that_an_expression_uses_are_known_before_it_is_evaluated():
    assert list(parse("T_kv // 2 + min(i, inf)").names) == ["T_kv", "i"]


def test_values_of_names_that_are_no_numbers_are_refused_by_name():
    with pytest.raises(ExpressionError, match="window: a number expected; got 'wide'"):
        evaluate("window + 1", {"window": "wide"})


def test_faults_survive_the_way_between_processes():
    with pytest.raises(ExpressionError) as caught:
        evaluate("1 +", {})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.column) == (str(caught.value), caught.value.column)


# -- against Python's own arithmetic ----------------------------------------------------------------------------

NAMES = {"a": 3, "b": -2, "c": 0.5, "d": True}


def _joined(operators):
    return lambda children: st.tuples(children, st.sampled_from(operators), children).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    )


numbers = st.one_of(
    st.integers(0, 999).map(str), st.floats(0, 1000, allow_nan=False).map(repr), st.sampled_from(list(NAMES))
)
arithmetic = st.recursive(
    numbers,
    lambda children: st.one_of(
        _joined(["+", "-", "*", "/", "//", "%"])(children),
        st.tuples(children, st.sampled_from(["0", "1", "2", "-1"])).map(lambda parts: f"({parts[0]} ** {parts[1]})"),
        children.map(lambda inner: f"-{inner}"),
        st.tuples(st.sampled_from(["min", "max"]), children, children).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        children.map(lambda inner: f"abs({inner})"),
    ),
    max_leaves=8,
)
conditions = st.recursive(
    _joined(["<", "<=", ">", ">=", "==", "!="])(arithmetic),
    lambda children: st.one_of(_joined(["and", "or"])(children), children.map(lambda inner: f"(not {inner})")),
    max_leaves=5,
)
PYTHON = {"min": min, "max": max, "abs": abs}


def _python(text):
    """Python's answer, or None where ours must be an error: no answer, or one that is not finite."""
    try:
        value = eval(text, dict(PYTHON), dict(NAMES))
    except (ZeroDivisionError, OverflowError):
        return None
    return value


@settings(max_examples=300, deadline=None)
@given(arithmetic)
def test_arithmetic_agrees_with_python(text):
    expected = _python(text)
    try:
        result = evaluate(text, NAMES)
    except ExpressionError:
        # Refused: Python has no answer either, or passes through numbers beyond the bounds.
        assert expected is None or _passes_the_bounds(text)
        return
    assert result == expected or (result != result and expected != expected)
    assert isinstance(result, float) == isinstance(expected, float)


def _passes_the_bounds(text):
    """Whether some part of the expression is an integer beyond 2^53, or no finite number."""

    class Watched(int):
        pass

    import ast

    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and not (isinstance(node, ast.Name) and node.id in PYTHON):
            try:
                value = eval(compile(ast.Expression(node), "", "eval"), dict(PYTHON), dict(NAMES))
            except (ZeroDivisionError, OverflowError):
                return True
            if isinstance(value, complex) or abs(value) == float("inf") or value != value:
                return True
            if isinstance(value, int) and abs(value) > 2**53:
                return True
    return False


@settings(max_examples=200, deadline=None)
@given(conditions)
def test_conditions_agree_with_python(text):
    expected = _python(text)
    try:
        result = evaluate(text, NAMES)
    except ExpressionError:
        assert expected is None or _passes_the_bounds(text)
        return
    assert result is bool(expected)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_value_or_an_expression_error(text):
    column = 1
    try:
        evaluate(text, GRID)
    except ExpressionError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


@settings(max_examples=150, deadline=None)
@given(arithmetic, st.lists(st.integers(-5, 5), min_size=1, max_size=4))
def test_an_array_gives_what_its_elements_give_one_by_one(text, values):
    singles = []
    for value in values:
        try:
            singles.append(evaluate(text, {**NAMES, "a": value}))
        except ExpressionError:
            singles.append(None)
    try:
        together = np.broadcast_to(evaluate(text, {**NAMES, "a": np.array(values)}), (len(values),)).tolist()
    except ExpressionError:
        # One element without an answer refuses the whole; so does a bound on the largest elements of two arrays.
        return
    for one, many in zip(singles, together, strict=True):
        assert one is not None
        assert one == pytest.approx(many, rel=1e-12, nan_ok=True)
