"""Small models for tests: configurations by a few changes, and weights that make every part matter."""

import mlx.core as mx
import numpy as np

from mlx_tx.config import ModelConfig
from mlx_tx.models import make_model, with_weights
from mlx_tx_conformance.oracle import models as oracle
from mlx_tx_conformance.oracle.parameters import parameter_shapes

VOCAB = 50

LONG = {"factor": 4.0, "original_max_positions": 5}
POSITIONS = {
    "none": {"kind": "none"},
    "sinusoidal": {"kind": "sinusoidal"},
    "learned": {"kind": "learned", "max_positions": 64},
    "rope": {"kind": "rope"},
    "rope-part": {"kind": "rope", "dims": 4, "traditional": True, "base": 100.0},
    "dynamic": {"kind": "rope", "scaling": {"kind": "dynamic", **LONG}},
    "longrope": {
        "kind": "rope",
        "dims": 4,
        "scaling": {"kind": "longrope", **LONG, "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.0]},
    },
    "alibi": {"kind": "alibi"},
    "t5": {"kind": "t5", "num_buckets": 8, "max_distance": 10},
}


def config(**changes):
    """A decoder of two layers of width 32, with these changes."""
    base = {
        "kind": "decoder",
        "vocab_size": VOCAB,
        "d_model": 32,
        "num_layers": 2,
        "attention": {"num_heads": 4, "num_kv_heads": 2},
        "mlp": {"kind": "swiglu", "d_ff": 48},
        "position": {"kind": "rope"},
    }
    return ModelConfig.from_dict({**base, **changes})


def weights(settings, seed=0):
    """Random weights in float32 by name; norms near one."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in parameter_shapes(settings.to_dict()).items():
        w = rng.normal(size=shape) * 0.3
        made[name] = (1 + w if "norm" in name and name.endswith("weight") else w).astype(np.float32)
    return made


def model(settings, seed=0):
    """The model with :func:`weights`, not training."""
    made = with_weights(make_model(settings), weights(settings, seed))
    made.eval()
    return made


def tokens(B, T, seed=0):
    """Random ids [B, T]."""
    return np.random.default_rng(seed).integers(0, VOCAB, (B, T))


def expected(settings, *ids, seed=0, **options):
    """The oracle's stages."""
    run = {"decoder": oracle.decoder, "encoder": oracle.encoder, "encoder_decoder": oracle.encoder_decoder}
    return run[settings.kind](settings.to_dict(), weights(settings, seed), *ids, **options)


def assert_close(got, reference, *, relative=2e-5):
    """Equal but for float32: ``relative`` of the largest magnitude, after two layers of up to a thousand roundings."""
    got, reference = np.asarray(got), np.asarray(reference)
    assert got.shape == reference.shape
    size = max(1.0, np.abs(reference).max(initial=0))
    error = np.abs(got - reference).max(initial=0)
    assert error <= relative * size, f"differs by {error} at magnitude {size}"


def fed(decoder, ids, cache, steps, **options):
    """Logits of ``ids`` [B, T] read in steps of these sizes."""
    outs, at = [], 0
    for n in steps:
        outs.append(decoder(mx.array(ids[:, at : at + n]), cache, **options))
        at += n
    return np.array(mx.concatenate(outs, axis=1))
