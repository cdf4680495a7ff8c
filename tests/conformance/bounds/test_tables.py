import numpy as np

from mlx_tx_conformance.bounds import bound_call
from mlx_tx_conformance.call import Call

RNG = np.random.default_rng(2)


def test_a_row_is_exact_and_a_foreign_one_is_none():
    table = RNG.standard_normal((5, 8)).astype(np.float16)
    given = Call("embedding", {"ids": np.array([[4, 0]], np.int32), "table": table})
    held = bound_call(given, "P")["out"]
    assert held.headroom(table[[4, 0]][None]).max() == 0
    assert held.headroom(table[[3, 0]][None]).max() > 1


def test_a_row_that_must_be_nan_is_not_decidable_by_a_bound():
    given = Call("embedding", {"ids": np.array([[0, 7]], np.int32), "table": np.ones((5, 2), np.float32)})
    assert bound_call(given, "P")["out"].decidable[0, :, 0].tolist() == [True, False]


def test_a_scaled_row_may_round_twice():
    table = RNG.standard_normal((5, 64)).astype(np.float32)
    given = Call("embedding", {"ids": np.arange(5, dtype=np.int32)[None], "table": table}, {"scale": 24**0.5})
    held = bound_call(given, "P")["out"]
    assert held.headroom((np.float32(24**0.5) * table)[None]).max() <= 1
    assert held.headroom((np.float32(4.9) * table)[None]).max() > 1


def test_a_bias_comes_from_the_bucket_of_its_distance():
    table = np.arange(8, dtype=np.float32)[:, None]
    options = {"T_q": 2, "T_kv": 4, "bidirectional": False, "max_distance": 16}
    held = bound_call(Call("relative_bias", {"table": table}, options), "P")["out"]
    assert held.value[0, 0].tolist() == [[2, 1, 0, 0], [3, 2, 1, 0]]
