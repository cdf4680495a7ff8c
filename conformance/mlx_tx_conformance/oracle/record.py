"""The stages of a model as they are computed, and the means to feed a model with another one's stages.

A whole model is compared stage by stage: each stage of the oracle is computed from the *implementation's* previous
stages, so that an error shows where it was made and nowhere else. The code of a model is written once; what it calls
``record`` decides whether the next line sees the oracle's own value or the implementation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .attention import AttentionStages

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Step:
    """How a stage came about: the operation, the stages and weights it read, and its options.

    | op | inputs | weights | options |
    |---|---|---|---|
    | embedding | - | table, learned positions | ids, positions, scale, position (kind), base |
    | norm | x | weight, bias | kind, eps, offset |
    | linear | x | weight, bias | heads (split into them), softcap (of the result) |
    | rope | x | - | positions, dims, base, traditional, scaling, length |
    | quantise | x | - | bits, group_size |
    | attention | q, k, v | sinks, relative bias | those of the attention |
    | join | out | weight, bias | the output projection: heads merged, then linear |
    | add | x, y | - | - |
    | hidden | x | those of the MLP but the last | kind |
    | routing | logits | - | top_k, norm_topk |
    | mixture | x, routing | those of the experts | expert_kind |
    """

    op: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    options: Mapping[str, Any]


class Recorder:
    """Collects stages by name, in order; ``given`` holds stages that replace the computed ones downstream.

    ``values`` has what was computed, ``steps`` how, ``attentions`` every attention with its scores and weights.
    """

    def __init__(self, given: Mapping[str, ArrayLike] | None = None) -> None:
        self.given = dict(given or {})
        self.values: dict[str, Float64] = {}
        self.steps: dict[str, Step] = {}
        self.attentions: dict[str, AttentionStages] = {}

    def __call__(
        self,
        name: str,
        value: Float64,
        op: str,
        inputs: tuple[str, ...] = (),
        weights: tuple[str, ...] = (),
        **options: Any,
    ) -> Float64:
        """Record ``value`` as stage ``name``; returns what the following stages are to read."""
        self.values[name] = value
        self.steps[name] = Step(op, inputs, weights, options)
        if name not in self.given:
            return value
        replacement = np.asarray(self.given[name]).astype(np.float64)
        if replacement.shape != value.shape:
            raise ValueError(f"[oracle] given stage {name} must have shape {value.shape}; got {replacement.shape}")
        return replacement

    def read(self, name: str) -> Float64:
        """The value of a stage as the following ones read it."""
        return np.asarray(self.given[name]).astype(np.float64) if name in self.given else self.values[name]

    def refuse_leftovers(self) -> None:
        """A given stage that the model does not have is a mistake in its name."""
        for name in self.given:
            if name not in self.values:
                raise ValueError(f"[oracle] given stage {name} must be one of {', '.join(self.values)}")
