"""The checks of caches: right on mlx_tx, and failing where a cache forgets, keeps or misplaces a token."""

from dataclasses import replace

import numpy as np
import pytest

from mlx_tx_conformance.targets import open_target

from .altered import Altered

TARGET = open_target("mlx_tx:composed")
RANDOM = "steps: {random: {sequences: 20, n: 8, weights: {update: 6, trim: 2, rewind: 1, restore: 1}}}\n"
CACHE = "shapes: {B: 1, N_kv: 1, D: 4}\ncall: {op: cache, cache: %s}\ncheck: keeps_what_was_fed\n" + RANDOM
KINDS = ["{kind: full}", "{kind: rotating, max_size: 4}", "{kind: rotating, max_size: 5, keep: 2}", "{kind: cross}"]


@pytest.mark.parametrize("cache", KINDS)
def test_right_caches_pass(verdict, cache):
    assert verdict(CACHE % cache, TARGET)[0] == "pass"


def operations(change):
    """A cache that goes through other operations than it was asked to."""

    def before(call):
        changed = [change(name, argument) for name, argument in call.options["operations"]]
        return replace(call, options={**call.options, "operations": changed})

    return Altered(before=before)


def of(change):
    """A cache whose arrays of one name come back changed."""

    def after(outputs, call):
        return {name: change(name, array) for name, array in outputs.items()}

    return Altered(after)


FAULTS = {
    "forgets its newest key": of(lambda n, a: a & (np.arange(a.shape[-1]) < a.shape[-1] - 1) if "allowed" in n else a),
    "sees ahead": of(lambda n, a: np.ones_like(a) if "allowed" in n else a),
    "another value": of(lambda n, a: a * np.float32(1.0001) if "values" in n else a),
    "a trim of one less": operations(lambda n, a: [n, max(a - 1, 0)] if n == "trim" else [n, a]),
    "an offset that moves": of(lambda n, a: a + 1 if "offset" in n else a),
    "a count of one more": of(lambda n, a: a + 1 if "returned" in n else a),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_and_the_sequence_shortened(verdict, fault):
    found, message = verdict(CACHE % "{kind: full}", FAULTS[fault])
    assert found == "fail"
    steps = message.rsplit("steps: ", 1)[1]
    assert steps.count(":") <= 4
    assert "sequence" in message


def test_what_a_cache_raises_is_its_fault(verdict):
    def before(call):
        if any(name == "rewind" for name, _ in call.options["operations"]):
            raise RuntimeError("no way back")
        return call

    found, message = verdict(CACHE % "{kind: full}", Altered(before=before))
    assert found == "fail"
    assert "RuntimeError: no way back" in message


def test_an_op_that_is_not_supported_is_no_failure(verdict):
    assert verdict(CACHE % "{kind: full}", open_target("mlx_tx:blockwise"))[0] == "unsupported"


CONFIG = (
    "config: {kind: decoder, vocab_size: 13, d_model: 16, num_layers: 1, attention: {num_heads: 2}, "
    "position: {kind: sinusoidal}, mlp: {kind: relu, d_ff: 16}}"
)
STEPS = (
    f"shapes: {{B: 1, T: 4}}\ncall: {{op: model_steps, cache: {{kind: full}}, {CONFIG}}}\ncheck: steps_equal_oracle\n"
)


def test_models_fed_at_random(verdict):
    few = "steps: {random: {sequences: 4, n: 6, weights: {update: 5, trim: 2, restore: 1}}}\n"
    assert verdict(STEPS + few, TARGET)[0] == "pass"
    found, message = verdict(STEPS + few, FAULTS["a trim of one less"])
    assert found == "fail"
    assert "trim" in message.rsplit("steps: ", 1)[1]


def test_listed_steps(verdict):
    assert verdict(STEPS + "steps: [{update: 3}, {trim: 2}, {update: 2}]\n", TARGET)[0] == "pass"


def model(check, cache="", inputs=""):
    text = f"shapes: {{B: 2, T: 6}}\ncall: {{op: model, {CONFIG}{cache}}}\ncheck: {check}\n"
    return text + (f"inputs: {inputs}\n" if inputs else "")


def test_chunks(verdict):
    text = model("{same_in_chunks: {chunks: [1, 4, [2, 3, 1]]}}", ", cache: {kind: full}")
    assert verdict(text, TARGET)[0] == "pass"

    def after(outputs, call):
        late = len(call.options.get("chunks") or [0]) > 1
        return {n: a + np.float32(1e-3) if n == "logits" and late else a for n, a in outputs.items()}

    assert verdict(text, Altered(after))[0] == "fail"


def test_a_row_alone(verdict):
    text = model("alone_equals_batched", inputs="{left_padding: [0, 4]}")
    assert verdict(text, TARGET)[0] == "pass"

    def before(call):
        # Padding is told to nobody: positions and keys of the second row are wrong.
        return call.with_arrays(left_padding=None)

    assert verdict(text, Altered(before=before))[0] == "fail"
