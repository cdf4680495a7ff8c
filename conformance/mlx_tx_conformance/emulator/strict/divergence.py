"""A rule of thumb for control flow: no barrier and no simdgroup operation behind a condition that differs by thread.

Values that differ between the threads of a simdgroup (``lane``) or between simdgroups (``group``) are followed from
the attributes through assignments. The emulated device finds what this misses; this finds it without running.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from .findings import Finding
from .structure import Function, Structure
from .tokens import Token, matching

Report = Callable[..., Finding]

_LANE = frozenset(
    {
        "thread_index_in_quadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_threadgroup",
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
    }
)
_GROUP = frozenset({"simdgroup_index_in_threadgroup", "quadgroup_index_in_threadgroup"})
_UNIFORM_RESULT = frozenset({"simd_sum", "simd_max", "simd_min", "simd_product", "simd_any", "simd_all", "sizeof"})
_SIMD_OPERATION = re.compile(
    r"simd_(?:sum|max|min|product|any|all|prefix\w*|shuffle\w*)|simdgroup_(?:barrier|load|store|multiply\w*)|quad_sum"
)
_ASSIGN = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "|=", "&=", "^="})


def divergence(structure: Structure, report: Report) -> Iterator[Finding]:
    """Barriers and simdgroup operations in the kernels' bodies that some threads do not reach.

    Some kernels of MLX's that are not attention do this (an early return for threads out of range before a barrier),
    relying on Apple's hardware; files are therefore warned about, kernels for mx.fast.metal_kernel refused.
    """
    for function in structure.functions:
        if function.is_kernel:
            yield from _Walk(structure.tokens, _seeds(function), report).block(*function.body, level=0)


def _seeds(function: Function) -> dict[str, int]:
    """Names that differ by thread at entry: attributes themselves, and parameters that carry them."""
    seeds = {**dict.fromkeys(_GROUP, 1), **dict.fromkeys(_LANE, 2)}
    for parameter in function.parameters:
        words = [t.text for t in parameter]
        level = max((seeds.get(w, 0) for w in words), default=0)
        if level and "[" in words:
            seeds[words[words.index("[") - 1]] = level
    return seeds


class _Walk:
    """Walks statements in order, keeping how far each name differs: 0 not, 1 by simdgroup, 2 by lane."""

    def __init__(self, tokens: Sequence[Token], differs: dict[str, int], report: Report) -> None:
        self.tokens = tokens
        self.differs = differs
        self.report = report
        self.gone = 0  # a return that only some threads took: how far its condition differed

    def block(self, start: int, end: int, *, level: int) -> Iterator[Finding]:
        """The statements in ``start..end``, reached under conditions that differ by ``level``."""
        i = start
        while i < end:
            i, findings = self._statement(i, end, level)
            yield from findings

    def _statement(self, i: int, end: int, level: int) -> tuple[int, list[Finding]]:
        """One statement; gives the index after it and what it found."""
        tokens, text = self.tokens, self.tokens[i].text
        if text == "{":
            close = matching(tokens, i)
            return close + 1, list(self.block(i + 1, close, level=level))
        if text in ("if", "while", "for", "switch"):
            return self._conditional(i, end, level)
        if text in ("else", "do"):
            return self._statement(i + 1, end, level) if i + 1 < end else (end, [])
        stop = i
        while stop < end and tokens[stop].text not in (";", "{", "}"):
            stop = matching(tokens, stop) + 1 if tokens[stop].text in ("(", "[") else stop + 1
        if stop < end and tokens[stop].text == "{":
            stop = matching(tokens, stop)
        found = self._operations(i, stop, level)
        if text == "return":
            self.gone = max(self.gone, level)
        self._assign(i, stop, level)
        return max(stop, i) + 1, found

    def _conditional(self, i: int, end: int, level: int) -> tuple[int, list[Finding]]:
        tokens = self.tokens
        paren = i + 1
        while paren < end and tokens[paren].text != "(":
            paren += 1
        if paren >= end:
            return end, []
        close = matching(tokens, paren)
        if tokens[i].text == "for":
            first = next((k for k in range(paren, close) if tokens[k].text == ";"), close)
            self._assign(paren + 1, first, level)
            condition = self._level(first, close)
        else:
            condition = self._level(paren + 1, close)
        found = self._operations(paren, close, level)
        inner = max(level, condition)
        after, inside = self._statement(close + 1, end, inner) if close + 1 < end else (end, [])
        found += inside
        while after < end and tokens[after].text == "else":
            after, inside = self._statement(after + 1, end, inner)
            found += inside
        return after, found

    def _level(self, start: int, end: int) -> int:
        """How far an expression differs; a reduction over the simdgroup is the same on every lane of it."""
        level, i = 0, start
        while i < end:
            token = self.tokens[i]
            if token.text in _UNIFORM_RESULT and i + 1 < end and self.tokens[i + 1].text == "(":
                close = matching(self.tokens, i + 1)
                level = max(level, min(1, self._level(i + 2, close)))
                i = close
            elif token.kind == "name" and self.tokens[i - 1].text not in (".", "->"):
                level = max(level, self._component(i))
            i += 1
        return level

    def _component(self, i: int) -> int:
        """How far a name differs; threadgroups are 32 wide or more along x, so y and z are the same on every lane."""
        level = self.differs.get(self.tokens[i].text, 0)
        part = [t.text for t in self.tokens[i + 1 : i + 3]]
        return min(level, 1) if part in ([".", "y"], [".", "z"]) else level

    def _assign(self, start: int, end: int, level: int) -> None:
        for i in range(start + 1, end):
            if self.tokens[i].text in _ASSIGN and self.tokens[i - 1].kind == "name":
                name = self.tokens[i - 1].text
                value = max(level, self._level(i + 1, end))
                declares = self.tokens[i].text == "=" and i >= 2 and self.tokens[i - 2].kind == "name"
                kept = 0 if declares else self.differs.get(name, 0)
                if value or kept:
                    self.differs[name] = max(value, kept)
                else:
                    self.differs.pop(name, None)

    def _operations(self, start: int, end: int, level: int) -> list[Finding]:
        found = []
        for token in self.tokens[start:end]:
            reach = max(level, self.gone)
            why = "after a return that" if self.gone > level else "under a condition that"
            hint = "make every thread reach it: guard the loads and stores instead"
            if token.text == "threadgroup_barrier" and reach:
                message = f"`{token.text}` {why} differs between threads"
                found.append(self.report("divergent-barrier", token, message, hint))
            elif _SIMD_OPERATION.fullmatch(token.text) and reach == 2:
                message = f"`{token.text}` {why} differs between the threads of a simdgroup"
                found.append(self.report("divergent-barrier", token, message, hint))
        return found
