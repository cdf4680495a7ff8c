import pytest

from mlx_tx_conformance.bounds import precision_class
from mlx_tx_conformance.call import PRECISION_CLASSES


def test_every_declared_class_is_known():
    rounds = {name: precision_class(name) for name in PRECISION_CLASSES}
    assert {name: (c.rounds_weights, c.rounds_partials) for name, c in rounds.items()} == {
        "f32-internal": (False, False),
        "P": (True, False),
        "split": (True, True),
    }


def test_fast_exp_is_an_option_of_every_class():
    for name in PRECISION_CLASSES:
        plain, fast = precision_class(name), precision_class(name + "+fast-exp")
        assert (plain.exp_slope, fast.exp_slope) == (3.0, 9.0)
        assert fast.rounds_weights == plain.rounds_weights
        assert fast.trig > plain.trig


@pytest.mark.parametrize("name", ["", "half", "P+", "P+fast", "p", "+fast-exp"])
def test_another_name_is_refused_with_what_is_allowed(name):
    with pytest.raises(ValueError, match="f32-internal, P, split"):
        precision_class(name)
