"""How one layer of a case lies over another: the case over its clause's defaults, a variant over the case.

Sections (``shapes``, ``call``, ``inputs``, ``layout``, ``let``, ``vary``, ``pairwise``) are merged key by key, and the
arguments of the same check too; a recipe gains the modifiers of one without a source of its own and is replaced
otherwise; everything else is replaced. A null takes away what the layer below gave. ``T`` stands for ``T_q`` and
``T_kv`` in the layer that has it, and ``check`` and ``expect`` displace one another. A layer that names another op
leaves behind the outputs of the one below, and the options and arrays that its own op does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ops import DEFAULT_OP, OPS
from .recipes import RECIPES

Body = dict[str, Any]

_SECTIONS = frozenset({"shapes", "call", "inputs", "layout", "let", "vary", "pairwise"})
# Kept with a body: the dims that were set above the defaults. No key of the grammar can be called so.
OWN = "(own)"


def merge(base: Mapping[str, Any], layer: Mapping[str, Any]) -> Body:
    """``layer`` over ``base``; neither is changed, and what is not touched is shared."""
    body: Body = dict(base)
    op = str((layer.get("call") or {}).get("op"))
    if op in OPS and op != (base.get("call") or {}).get("op", DEFAULT_OP):
        body = _for_op(body, op)
    for key, value in layer.items():
        if value is None:
            body.pop(key, None)
        elif key == "shapes":
            shapes = spelled_out(value)
            body[key] = _keys(spelled_out(body.get(key) or {}), shapes)
            body[OWN] = body.get(OWN, frozenset()) | shapes.keys()
        elif key == "inputs":
            body[key] = _inputs(body.get(key) or {}, value)
        elif key in _SECTIONS and isinstance(value, Mapping):
            below = body.get(key)
            body[key] = _keys(below if isinstance(below, Mapping) else {}, value)
        elif key == "check":
            body[key] = _check(body.get(key), as_check(value))
            body.pop("expect", None)
        else:
            body[key] = value
            if key == "expect":
                body.pop("check", None)
    return body


def _for_op(body: Body, name: str) -> Body:
    """What of a body another op can use."""
    op = OPS[name]
    changed = dict(body)
    for section, known in (("call", op.names), ("inputs", ("design", *op.arrays)), ("layout", op.arrays)):
        if isinstance(body.get(section), Mapping):
            changed[section] = {key: value for key, value in body[section].items() if key in known}
    return changed


def spelled_out(shapes: Mapping[str, Any]) -> Body:
    """Shapes with ``T`` written as ``T_q`` and ``T_kv``, where the same layer does not give them."""
    if "T" not in shapes:
        return dict(shapes)
    rest = {name: value for name, value in shapes.items() if name != "T"}
    return {"T_q": shapes["T"], "T_kv": shapes["T"], **rest}


def as_check(value: Any) -> Body:
    """A check as a mapping from its name to its arguments."""
    if isinstance(value, str):
        return {value: {}}
    return {name: arguments or {} for name, arguments in value.items()}


def set_path(body: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Body:
    """A body with one value set by its dotted path; what is missing on the way is made.

    Raises KeyError with the part of the path at which something else than a mapping stands.
    """
    head, *rest = path
    changed = dict(body)
    if not rest:
        if value is None:
            changed.pop(head, None)
        else:
            changed[head] = value
        return changed
    below = body.get(head)
    if below is not None and not isinstance(below, Mapping):
        raise KeyError(head)
    changed[head] = set_path(below or {}, tuple(rest), value)
    return changed


def _keys(base: Mapping[str, Any], layer: Mapping[str, Any]) -> Body:
    merged = {**base, **layer}
    return {key: value for key, value in merged.items() if value is not None} if None in layer.values() else merged


def _inputs(base: Mapping[str, Any], layer: Mapping[str, Any]) -> Body:
    changed = dict(layer)
    for name, recipe in layer.items():
        below = base.get(name)
        if (
            isinstance(recipe, Mapping)
            and isinstance(below, Mapping)
            and name != "design"
            and not recipe.keys() & RECIPES
        ):
            changed[name] = {**below, **recipe}
    return _keys(base, changed)


def _check(base: Any, layer: Body) -> Body:
    if base is None or base.keys() != layer.keys():
        return layer
    return {name: {**base[name], **arguments} for name, arguments in layer.items()}
