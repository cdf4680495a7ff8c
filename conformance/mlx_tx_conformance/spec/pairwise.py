"""All pairs: few combinations in which every two values of every two keys occur together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Row = tuple[int, ...]
Pair = tuple[int, int, int, int]


# How many rows are begun for each that is taken.
_ATTEMPTS = 5


def all_pairs(sizes: Sequence[int], most: int) -> list[Row]:
    """Rows of value indices for keys with ``sizes`` values, sorted; the same for the same arguments, always.

    Every pair of values of two keys is in one of the rows. Greedy: of a few rows, each begun with a pair that is not
    covered yet, the one that covers most. Stops once there are more than ``most`` rows.
    """
    if len(sizes) == 1:
        return [(n,) for n in range(sizes[0])]
    wanted: dict[Pair, None] = {
        (a, x, b, y): None
        for a, b in combinations(range(len(sizes)), 2)
        for x in range(sizes[a])
        for y in range(sizes[b])
    }
    rows: list[Row] = []
    while wanted and len(rows) <= most:
        begun = list(wanted)[:: max(1, len(wanted) // _ATTEMPTS)][:_ATTEMPTS]
        row = max((_filled(pair, sizes, wanted) for pair in begun), key=lambda row: _covered(row, wanted))
        rows.append(row)
        for pair in _pairs(row):
            wanted.pop(pair, None)
    return sorted(rows)


def _filled(pair: Pair, sizes: Sequence[int], wanted: dict[Pair, None]) -> Row:
    """A row with the pair in it: again and again the key and value that cover most, the first of equals."""
    a, x, b, y = pair
    chosen = {a: x, b: y}
    left = [key for key in range(len(sizes)) if key not in chosen]
    while left:
        options = ((key, value) for key in left for value in range(sizes[key]))
        key, value = max(options, key=lambda option: _gain(chosen, option[0], option[1], wanted))
        chosen[key] = value
        left.remove(key)
    return tuple(chosen[key] for key in range(len(sizes)))


def _covered(row: Row, wanted: dict[Pair, None]) -> int:
    return sum(pair in wanted for pair in _pairs(row))


def covering(rows: Sequence[Row]) -> list[Row]:
    """Those of some allowed rows (in order) that together hold every pair that any of them holds, sorted.

    Greedy: for the first pair that is not covered yet, the row with it that covers most.
    """
    holders: dict[Pair, list[Row]] = {}
    for row in rows:
        for pair in _pairs(row):
            holders.setdefault(pair, []).append(row)
    wanted = dict.fromkeys(holders)
    chosen: list[Row] = []
    while wanted:
        first = next(iter(wanted))
        best = max(holders[first], key=lambda row: _covered(row, wanted))
        chosen.append(best)
        for pair in _pairs(best):
            wanted.pop(pair, None)
    return sorted(chosen)


def _pairs(row: Row) -> list[Pair]:
    """The pairs that a row holds; of a row of one key, that key with itself."""
    if len(row) == 1:
        return [(0, row[0], 0, row[0])]
    return [(a, row[a], b, row[b]) for a, b in combinations(range(len(row)), 2)]


def _gain(chosen: dict[int, int], key: int, value: int, wanted: dict[Pair, None]) -> int:
    """How many pairs that are still wanted a value adds to those already chosen."""
    return sum(
        ((other, x, key, value) if other < key else (key, value, other, x)) in wanted for other, x in chosen.items()
    )
