import numpy as np
import pytest

from mlx_tx_conformance.spec.arithmetic import FUNCTIONS, OPERATORS, OperationError, as_operand, both, truth_not


def test_booleans_count_as_numbers_in_arrays_as_they_do_in_python():
    yes = np.array([True, False])
    assert OPERATORS["+"](yes, yes).tolist() == [2, 0]
    assert OPERATORS["+"](True, True) == 2
    assert OPERATORS["-"](yes, True).tolist() == [0, -1]


@pytest.mark.parametrize(
    ("symbol", "a", "b"),
    [
        ("/", 1, 0),
        ("//", 1.0, 0),
        ("%", 1, 0),
        ("**", 0, -1),
        ("**", 2.0, 5000),
        ("*", 1e300, 1e300),
        ("-", float("inf"), float("inf")),
        ("**", -8, 0.5),
        ("+", 2**53, 1),
        ("*", 2**30, 2**30),
        ("**", 3, 99),
        ("**", 2, 64),  # in int64 that is 0
        ("*", 2**32, 2**32),
        ("**", 10, 10**9),
    ],
)
def test_what_has_no_finite_exact_answer_is_refused_for_numbers_and_arrays_alike(symbol, a, b):
    with pytest.raises(OperationError):
        OPERATORS[symbol](a, b)
    with pytest.raises(OperationError):
        OPERATORS[symbol](np.array([a, 1.0 if isinstance(a, float) else 1]), b)
    with pytest.raises(OperationError):
        OPERATORS[symbol](a, np.array([b]))


def test_infinity_may_be_calculated_with_where_it_was_given():
    assert OPERATORS["+"](float("inf"), 1) == float("inf")
    assert OPERATORS["*"](float("inf"), -2) == float("-inf")
    assert np.isnan(OPERATORS["+"](float("nan"), 1))


def test_arrays_of_other_dtypes_are_taken_as_int64_or_float64():
    assert as_operand(np.array([1], np.int32)).dtype == np.int64
    assert as_operand(np.array([1], np.float32)).dtype == np.float64
    assert type(as_operand(np.float32(1))) is float
    assert type(as_operand(np.bool_(True))) is bool


@pytest.mark.parametrize("value", ["text", None, [1], 2**60, np.array([2**60]), np.array([-(2**63)])])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(OperationError):
        as_operand(value)


def test_shapes_that_do_not_broadcast_are_a_fault_of_the_operation():
    for operation in (OPERATORS["+"], OPERATORS["<"], both):
        with pytest.raises(OperationError, match="broadcast"):
            operation(np.ones(3, dtype=bool), np.ones(4, dtype=bool))
    with pytest.raises(OperationError, match="broadcast"):
        FUNCTIONS["max"][0](np.ones(3), np.ones(4))


def test_extremes_pass_nan_on_in_numbers_as_in_arrays():
    largest, _, _ = FUNCTIONS["max"]
    assert np.isnan(largest(1.0, float("nan")))
    assert np.isnan(largest(float("nan"), 1.0))
    assert np.isnan(largest(np.array([1.0]), float("nan"))).all()


@pytest.mark.parametrize("name", ["log2", "sqrt"])
def test_roots_of_negative_numbers_are_refused(name):
    function, _, _ = FUNCTIONS[name]
    for value in (-1, np.array([4.0, -1.0])):
        with pytest.raises(OperationError):
            function(value)


@pytest.mark.parametrize("name", ["ceil", "floor"])
def test_infinity_has_no_integer_part(name):
    function, _, _ = FUNCTIONS[name]
    for value in (float("inf"), np.array([float("nan")]), 1e300):
        with pytest.raises(OperationError):
            function(value)
    assert function(np.array([1.5])).dtype == np.int64


def test_an_empty_array_is_no_fault():
    assert OPERATORS["*"](np.zeros(0, np.int64), 5).shape == (0,)
    assert truth_not(np.zeros(0)).dtype == bool
