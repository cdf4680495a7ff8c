"""What annotations of a window mean."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any, Optional, Union

import pytest

from mlx_tx_conformance.targets.forms import BOTH, INT, PAIR, form_of, forms_taken, is_sound_pair


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        (inspect.Parameter.empty, BOTH),
        (int, {INT}),
        (int | None, {INT}),
        (Optional[int], {INT}),  # noqa: UP045 - as older code writes it
        ("int | None", {INT}),
        (Annotated[int | None, "keys"], {INT}),
        (tuple[int, int] | None, {PAIR}),
        (Sequence[int], {PAIR}),
        (Union[int, tuple[int, int], None], BOTH),  # noqa: UP007
        (int | list, BOTH),
        (Any, BOTH),
        (object, BOTH),
        (None, BOTH),
        ("int | NotThere", BOTH),
        ("1 / 0", BOTH),
    ],
)
def test_forms(note, expected):
    def attention(q, k, v, window):
        return v

    if note is not inspect.Parameter.empty:
        attention.__annotations__["window"] = note
    assert forms_taken(attention, inspect.signature(attention).parameters["window"]) == expected


def test_another_annotation_that_cannot_be_read_does_not_matter():
    def attention(q: NotThere, k, v, window: int | None = None):  # noqa: F821
        return v

    assert forms_taken(attention, inspect.signature(attention).parameters["window"]) == {INT}


def test_no_parameter_is_no_restriction():
    assert forms_taken(len, None) == BOTH


@pytest.mark.parametrize(
    ("value", "form", "sound"),
    [
        (3, INT, False),
        (0, INT, False),
        (True, None, False),
        ([1, 2], PAIR, True),
        ((None, 0), PAIR, True),
        ([-1, 2], PAIR, False),
        ([1.5, 2], PAIR, False),
        ([1, 2, 3], None, False),
        ("one", None, False),
        (None, None, False),
    ],
)
def test_values(value, form, sound):
    assert form_of(value) == form
    assert is_sound_pair(value) is sound
