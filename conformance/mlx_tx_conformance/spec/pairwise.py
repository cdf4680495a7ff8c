"""All pairs: few combinations in which every two values of every two keys occur together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

Row = tuple[int, ...]
Pair = tuple[int, int, int, int]

# How many completions of one pair are tried before the pair counts as one that no allowed combination has.
_TRIES = 2_000


def all_pairs(sizes: Sequence[int], allowed: Callable[[Row], bool] | None = None) -> list[Row]:
    """Rows of value indices for keys with ``sizes`` values, sorted; the same for the same arguments, always.

    Every pair that some allowed row holds is in one of the rows, and every row is allowed. Greedy: each row begins with
    the first pair that is not covered yet and takes for every other key the value that covers most.
    """
    if not sizes or 0 in sizes:
        return []
    if len(sizes) == 1:
        return [(n,) for n in range(sizes[0]) if allowed is None or allowed((n,))]
    wanted: dict[Pair, None] = {
        (a, x, b, y): None
        for a, b in combinations(range(len(sizes)), 2)
        for x in range(sizes[a])
        for y in range(sizes[b])
    }
    rows: list[Row] = []
    while wanted:
        pair = next(iter(wanted))
        row = _row(sizes, pair, wanted, allowed)
        if row is None:
            del wanted[pair]
            continue
        rows.append(row)
        for a, b in combinations(range(len(sizes)), 2):
            wanted.pop((a, row[a], b, row[b]), None)
    return sorted(rows)


def _row(
    sizes: Sequence[int], pair: Pair, wanted: dict[Pair, None], allowed: Callable[[Row], bool] | None
) -> Row | None:
    """A row that holds the pair and is allowed: depth first, at each key the value that covers most pairs first."""
    a, x, b, y = pair
    fixed = {a: x, b: y}
    free = [key for key in range(len(sizes)) if key not in fixed]
    tries = 0

    def fill(depth: int) -> Row | None:
        nonlocal tries
        if depth == len(free):
            tries += 1
            row = tuple(fixed[key] for key in range(len(sizes)))
            return row if allowed is None or allowed(row) else None
        key = free[depth]
        for value in sorted(range(sizes[key]), key=lambda value: (-_gain(fixed, key, value, wanted), value)):
            fixed[key] = value
            filled = fill(depth + 1)
            if filled is not None or tries >= _TRIES:
                return filled
            del fixed[key]
        fixed.pop(key, None)
        return None

    return fill(0)


def _gain(fixed: dict[int, int], key: int, value: int, wanted: dict[Pair, None]) -> int:
    """How many pairs that are still wanted a value adds to those already chosen."""
    gain = 0
    for other, chosen in fixed.items():
        if other == key:
            continue
        pair = (other, chosen, key, value) if other < key else (key, value, other, chosen)
        gain += pair in wanted
    return gain
