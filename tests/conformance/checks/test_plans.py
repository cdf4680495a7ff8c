import numpy as np
import pytest

from mlx_tx_conformance.checks.plans import Ledger, is_possible, ledger_of, random_plans, shrunk, written

ASKED = {"sequences": 60, "n": 8, "weights": {"update": 6, "trim": 2, "rewind": 1, "restore": 1}}


@pytest.mark.parametrize(
    "cache",
    [{"kind": "full"}, {"kind": "rotating", "max_size": 4}, {"kind": "batched"}, {"kind": "cross"}],
    ids=lambda c: c["kind"],
)
def test_every_random_plan_is_possible_and_the_same_again(cache):
    more = {"reorder": 1, "regroup": 1} if cache["kind"] == "batched" else {}
    asked = {**ASKED, "weights": {**ASKED["weights"], **more}}
    plans, again = (list(random_plans(asked, cache, [0, 2], 3)) for _ in range(2))
    assert plans == again
    assert len(set(map(str, plans))) > 0.8 * len(plans) or cache["kind"] == "cross"
    assert all(is_possible(plan, ledger_of(cache, [0, 2])) for plan in plans)


def test_every_operation_that_is_asked_for_is_drawn():
    drawn = {name for plan in random_plans(ASKED, {"kind": "full"}, [0], 0) for name, _ in plan}
    assert drawn == set(ASKED["weights"])


def test_some_steps_are_larger_than_a_rotating_cache():
    cache = {"kind": "rotating", "max_size": 4}
    sizes = [n for plan in random_plans(ASKED, cache, [0], 0) for name, n in plan if name == "update"]
    assert max(sizes) > 4
    assert sizes.count(1) > len(sizes) / 4


def test_a_full_rotating_cache_takes_nothing_back():
    ledger = Ledger("rotating", 4, 1, [0])
    ledger.take(("update", 3))
    assert ledger.may(("trim", 1))
    ledger.take(("update", 1))
    assert not ledger.may(("trim", 1))


def test_a_ledger_follows_rows_and_padding():
    ledger = ledger_of({"kind": "batched"}, [0, 2, 5])
    for operation in (("update", 4), ("trim", 1), ("reorder", [2, 0, 0]), ("regroup", True)):
        assert ledger.may(operation)
        ledger.take(operation)
    # Rows of 0, 3 and 3 tokens.
    assert (ledger.fed, ledger.pads, ledger.rows) == (3, [3, 0, 0], 3)
    assert not ledger.may(("reorder", [3]))


def test_the_shortest_plan_that_fails_is_found():
    plan = (("update", 5), ("restore", "state"), ("update", 4), ("trim", 3), ("update", 2))

    def fails(candidate):
        fed = 0
        for name, n in candidate:
            if name == "trim" and fed >= 2:
                return True
            fed += n if name == "update" else 0
        return False

    least = shrunk(plan, lambda: ledger_of({"kind": "full"}, [0]), fails)
    assert least == (("update", 2), ("trim", 1))


def test_a_plan_is_written_as_a_case_would_list_it():
    plan = (("update", 2), ("restore", "state"), ("regroup", True), ("reorder", [1, 0]))
    assert written(plan) == "[{update: 2}, {restore: state}, {regroup: true}, {reorder: [1, 0]}]"


def test_numbers_do_not_depend_on_numpy_types():
    plan = next(random_plans(ASKED, {"kind": "full"}, [0], 0))
    assert all(not isinstance(argument, np.generic) for _, argument in plan)
