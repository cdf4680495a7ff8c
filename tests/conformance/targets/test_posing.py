"""Arguments posed through a mask: the masks that come out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from mlx_tx_conformance.call import Call, Unsupported
from mlx_tx_conformance.targets.posing import pose_as_mask, spelled_out

T_Q, T_KV = 3, 5


def call(options=None, outputs=("out",), op="attention", T_q=T_Q, T_kv=T_KV, **arrays) -> Call:
    shapes = {"q": (2, 2, T_q, 4), "k": (2, 2, T_kv, 4), "v": (2, 2, T_kv, 4)}
    base = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return Call(op, {**base, **arrays}, options or {}, outputs=outputs)


def posed(*names, **kwargs) -> np.ndarray:
    made = pose_as_mask(call(**kwargs), frozenset(names))
    assert not set(names) & (set(made.arrays) | set(made.options))
    return made.arrays["mask"]


def test_causal_is_lower_right():
    assert np.array_equal(posed("causal", options={"causal": True})[0, 0], np.tri(3, 5, 2, dtype=bool))


def test_a_window_looks_back_and_counts_the_query():
    expected = [[0, 1, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert np.array_equal(posed("window", options={"window": 2})[0, 0], np.array(expected, bool))


def test_a_window_of_two_sides():
    expected = [[0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert np.array_equal(posed("window", options={"window": [1, 2]})[0, 0], np.array(expected, bool))
    assert np.array_equal(posed("window", options={"window": (None, 0)})[0, 0], np.tri(3, 5, 2, dtype=bool))


def test_an_offset_of_each_batch_row():
    options = {"causal": True}
    mask = posed("causal", "q_offset", options=options, q_offset=np.array([0, 1], np.int32))
    assert mask.shape == (2, 1, 3, 5)
    assert np.array_equal(mask[0, 0], np.tri(3, 5, 0, dtype=bool))
    assert np.array_equal(mask[1, 0], np.tri(3, 5, 1, dtype=bool))


def test_segments_see_their_own():
    segments = np.array([[0, 0, 1], [0, 1, 1]], np.int32)
    mask = posed("segments", segments=segments, T_kv=3)
    assert np.array_equal(mask[0, 0], [[1, 1, 0], [1, 1, 0], [0, 0, 1]])
    assert np.array_equal(mask[1, 0], [[1, 0, 0], [0, 1, 1], [0, 1, 1]])


def test_a_boolean_mask_is_narrowed():
    own = np.zeros((3, 5), bool)
    own[:, [0, 4]] = True
    mask = posed("causal", options={"causal": True}, mask=own)
    assert np.array_equal(mask[0, 0], own & np.tri(3, 5, 2, dtype=bool))


def test_an_additive_mask_gets_minus_infinity():
    own = np.full((3, 5), 0.5, np.float32)
    mask = posed("causal", options={"causal": True}, mask=own)
    assert np.array_equal(mask[0, 0], np.where(np.tri(3, 5, 2, dtype=bool), 0.5, -np.inf))
    assert mask.dtype == np.float32


def test_a_bias_becomes_the_mask_or_joins_a_boolean_one():
    bias = np.full((2, 1, 3, 5), 0.25, np.float32)
    assert np.array_equal(posed("bias", bias=bias), bias)
    own = np.tri(3, 5, dtype=bool)
    assert np.array_equal(posed("bias", bias=bias, mask=own)[1, 0], np.where(own, 0.25, -np.inf))


@pytest.mark.parametrize("window", [0, -1, 2.5, True, [1], [-1, 2], "all", [1.5, 0]])
def test_a_bad_window_is_not_posed(window):
    with pytest.raises(Unsupported, match="window"):
        posed("window", options={"window": window})


def test_what_cannot_be_posed_is_refused():
    bias = np.zeros((3, 5), np.float32)
    with pytest.raises(Unsupported, match="beside an additive mask"):
        posed("bias", bias=bias, mask=bias)
    with pytest.raises(Unsupported, match="integer mask"):
        posed("causal", options={"causal": True}, mask=np.ones((3, 5), np.int32))
    with pytest.raises(Unsupported, match="its gradient"):
        posed("bias", bias=bias, op="attention_gradients", outputs=("q", "bias"))


def test_nothing_to_pose_changes_nothing():
    plain = call({"scale": 0.5})
    assert pose_as_mask(plain, frozenset()) is plain


def test_the_word_causal_is_spelled_out():
    assert dict(spelled_out(call({"mask": "causal", "scale": 1.0})).options) == {"causal": True, "scale": 1.0}
