"""Faults in key/value caches: what is kept, where it stands, what is taken back, saved and restored."""

from __future__ import annotations

from .mutant import Mutant

_FULL = "mlx_tx.cache.full"
_ROTATING = "mlx_tx.cache.rotating"
_BATCH = "mlx_tx.cache.batch"
_QUANTISED = "mlx_tx.cache.quantised"
_CROSS = "mlx_tx.cache.cross"
_VIEW = "mlx_tx.cache.view"

MUTANTS = (
    Mutant(
        "cache-off-by-one",
        _FULL,
        "self.values = written(grown(self.values, values, end), values, self._fed)",
        "self.values = written(grown(self.values, values, end), values, max(self._fed - 1, 0))",
        "KVC-1/random-sequences*full*",
        about="Values are written one slot too early.",
    ),
    Mutant(
        "wrong-position-after-trim",
        _FULL,
        "self._fed)\n        self._fed -= n\n",
        "self._fed)\n        self._fed -= max(n - 1, 0)\n",
        "KVC-1/random-sequences*full*",
        about="After a trim one token too many is left.",
    ),
    Mutant(
        "rotating-keeps-one-too-few",
        _ROTATING,
        "seen = (held < self.keep) | (held > self._fed - (self.max_size - self.keep))",
        "seen = (held < self.keep) | (held > self._fed - (self.max_size - self.keep) + 1)",
        "KVC-1/random-sequences*rotating*",
        about="A step of many tokens gets one key less than its first query sees.",
    ),
    Mutant(
        "rotating-overwrites-the-newest",
        _ROTATING,
        "return self.keep if self._idx == self.max_size else self._idx",
        "return self.keep if self._idx == self.max_size else max(self._idx - 1, self.keep)",
        "KVC-1/random-sequences*rotating*",
        about="A single token takes the slot of the newest one.",
    ),
    Mutant(
        "ring-not-set-back-by-trim",
        _ROTATING,
        "        if n:\n            self._idx = self._fed\n",
        "        if n > 100:\n            self._idx = self._fed\n",
        "KVC-1/random-sequences*rotating*",
        about="After a trim the next token is written where it would have been without.",
    ),
    Mutant(
        "restored-ring-starts-over",
        _ROTATING,
        "        self._fed, self._idx = fed, idx\n",
        "        self._fed, self._idx = fed, max_size if fed > max_size else idx\n",
        "KVC-1/random-sequences*rotating*",
        about="A restored cache has forgotten which slot is the oldest.",
    ),
    Mutant(
        "sinks-hidden",
        _VIEW,
        "rules.append(mx.logical_or(ahead > -self.window, mx.array(slots < self.keep)))",
        "rules.append(ahead > -self.window)",
        "KVC-1/random-sequences*sinks*",
        about="The first tokens are kept, and then masked like any other.",
    ),
    Mutant(
        "mask-stays-causal",
        _VIEW,
        "    if self.window is not None and self.window < self.T:\n            left, right",
        "    if self.window is not None and self.window < 0:\n            left, right",
        "KVC-1/models-fed-at-random*rotating*",
        about="The mask of a step is causal and does not follow what a rotating cache keeps.",
    ),
    Mutant(
        "padding-counted",
        _BATCH,
        "exists = at >= self.left_padding[:, None]",
        "exists = at >= mx.minimum(self.left_padding, 1)[:, None]",
        "KVC-2/alone-and-together*left*",
        about="All padding but the first slot is seen.",
    ),
    Mutant(
        "padded-length-as-position",
        _BATCH,
        "return self._fed - self.left_padding",
        "return self._fed - 0 * self.left_padding",
        "KVC-2/every-position",
        about="Positions of a padded row count its padding.",
    ),
    Mutant(
        "rows-reordered-by-halves",
        _BATCH,
        "self.keys, self.values = self.keys[chosen], self.values[chosen]",
        "self.keys = self.keys[chosen]",
        "KVC-1/random-batches",
        about="Reordering rows moves their keys and leaves their values.",
    ),
    Mutant(
        "right-padding-kept",
        _BATCH,
        "None if x is None else shifted(x[:, :, : self._fed], self._right, self._fed)",
        "x",
        "KVC-2/alone-and-together*right-cached*",
        about="Tokens of a row that ended before the step did stay where they are, as if its padding were tokens.",
    ),
    Mutant(
        "codes-of-another-width",
        _QUANTISED,
        "parts = mx.quantize(x, group_size=self.group_size, bits=self.bits)",
        "parts = mx.quantize(x * 1.02, group_size=self.group_size, bits=self.bits)",
        "KVC-1/random-sequences*quantised*",
        about="What is packed is two per cent too large.",
    ),
    Mutant(
        "memory-is-trimmed",
        _CROSS,
        "        check_count(type(self).__name__, n)\n        return 0\n",
        "        return n\n",
        "KVC-1/random-sequences*cross*",
        about="A trim of the decoder takes from the memory of cross-attention.",
    ),
)
