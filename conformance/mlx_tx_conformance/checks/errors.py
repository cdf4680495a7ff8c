"""Checks that bad input is refused, by an error that names what is wrong."""

from __future__ import annotations

from ..call import Unsupported
from ..outcome import Outcome, failed, passed
from .context import Context
from .registry import check


@check
def raises_(context: Context, type: str, names: str | list[str] | None = None) -> Outcome:
    """The call is refused by an error of this type (or a subclass) whose message holds each of ``names``."""
    context.require(context.call)
    try:
        context.target.run(context.call)
    except Unsupported:
        raise
    except Exception as error:  # any error is an answer here; its kind is what is judged
        kinds = {kind.__name__ for kind in error.__class__.__mro__}
        if not kinds & set(type.split("|")):
            return failed(f"{type} expected; got {error.__class__.__name__}: {error}")
        wanted = [names] if isinstance(names, str) else names or []
        missing = [name for name in wanted if name not in str(error)]
        if missing:
            return failed(f"the {error.__class__.__name__} does not name {', '.join(missing)}: {error}")
        return passed(str(error))
    return failed(f"{type} expected; the call gave a result")
