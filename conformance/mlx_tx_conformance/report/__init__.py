"""What a run says, in the form that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..runner.result import Run
from . import json_report, junit, markdown, pretty
from .diff import Change, changes, diff_text

FORMATS: Mapping[str, Callable[[Run], str]] = MappingProxyType(
    {"pretty": pretty.render, "json": json_report.render, "md": markdown.render, "junit": junit.render}
)

__all__ = ["FORMATS", "Change", "changes", "diff_text", "render"]


def render(run: Run, form: str) -> str:
    """The report of a run as text. Raises ValueError for a form that does not exist."""
    if form not in FORMATS:
        raise ValueError(f"[render] form must be one of {', '.join(FORMATS)}; got {form!r}")
    return FORMATS[form](run)
