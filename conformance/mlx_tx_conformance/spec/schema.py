"""``schema.json``, generated from the registries: what editors complete and check while a clause is written.

``python -m mlx_tx_conformance.spec.schema > spec/schema.json`` writes it anew. The loader does not use it: its own
messages have lines and suggestions, and know what a schema cannot say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..call import DTYPES, LAYOUTS
from . import kinds
from .check_signatures import CHECKS, FIGURES, CheckSignature
from .grammar import CASE_KEYS, CLAUSE_KEYS, DEFAULT_KEYS
from .kinds import EXPRESSION_SCHEMA, Kind
from .operations import NEEDED, OPERATIONS, RANDOM
from .ops import DEFAULT_OP, DIM_HELP, OPS
from .recipes import MODIFIERS, RECIPES

Schema = dict[str, Any]

_NUMBER: Schema = {"type": ["number", "string", "null"]}
_LITERAL: Schema = {"type": "array", "description": "Written out, one list for each axis."}


def schema() -> Schema:
    """The JSON Schema (draft 2020-12) of a clause file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A clause of the attention conformance suite",
        "description": "What may be written is explained in notation.md.",
        **_object(
            {
                "clause": {"type": "string", "pattern": "^[A-Z][A-Z0-9]*-[0-9]+$"},
                "title": {"type": "string", "minLength": 1},
                "text": {"type": "string", "minLength": 1},
                "source": {"$ref": "#/$defs/sources"},
                "note": {"type": "string", "minLength": 1},
                "defaults": {"$ref": "#/$defs/defaults"},
                "cases": {"type": "array", "items": {"$ref": "#/$defs/case"}},
            },
            CLAUSE_KEYS,
            required=("clause", "title", "text", "source", "cases"),
        ),
        "$defs": {
            "sources": {"type": "array", "minItems": 1, "items": {"anyOf": _sources()}},
            "defaults": _object(
                {**{key: _case_keys()[key] for key in DEFAULT_KEYS}, "call": {"$ref": "#/$defs/call"}}, CASE_KEYS
            ),
            "case": {**_object(_case_keys(), CASE_KEYS, required=("id",)), **_call_of_a_case()},
            "shapes": _object(dict.fromkeys(DIM_HELP, _NUMBER), DIM_HELP),
            "call": _call(),
            "let": _let(),
            "inputs": _inputs(),
            "recipe": _recipe(),
            "design": _design(),
            "layout": _layout(),
            "changes": _object(
                {name: {"$ref": f"#/$defs/{name}"} for name in ("call", "inputs", "layout")},
                {"call": "Options that change.", "inputs": "Arrays that change.", "layout": "Layouts that change."},
            ),
            "values": {"type": "object", "additionalProperties": {"type": ["array", "null"], "minItems": 1}},
            "over": _over(),
            "check": {"anyOf": [{"enum": list(CHECKS)}, _checks()]},
            "expect": _expect(),
        },
    }


def _object(properties: Mapping[str, Any], help_of: Mapping[str, str], required: tuple[str, ...] = ()) -> Schema:
    described = {name: {"description": help_of[name], **inner} for name, inner in properties.items()}
    found: Schema = {"type": "object", "additionalProperties": False, "properties": described}
    return {**found, "required": list(required)} if required else found


def _sources() -> list[Schema]:
    text = {"type": "string", "minLength": 1}
    return [
        _object(
            {"document": text, "statement": text},
            {"document": "Id of a document in sources.yaml.", "statement": "Id of one of its statements."},
            required=("document", "statement"),
        ),
        _object(
            {"paper": text, "where": text},
            {"paper": "Id of a paper in sources.yaml.", "where": "Section, equation or theorem."},
            required=("paper",),
        ),
        _object({"report": text}, {"report": "Id of a bug report in sources.yaml."}, required=("report",)),
    ]


def _case_keys() -> Schema:
    sections = ("shapes", "inputs", "layout", "let", "over", "check", "expect")
    return {
        "id": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
        "note": {"type": ["string", "null"]},
        "call": {"type": ["object", "null"]},
        "source": {"$ref": "#/$defs/sources"},
        "dtype": {"enum": [*DTYPES, None]},
        "vary": {"$ref": "#/$defs/values"},
        "pairwise": {"$ref": "#/$defs/values"},
        "only_if": {**EXPRESSION_SCHEMA, "type": ["string", "boolean", "null"]},
        "steps": {
            "anyOf": [
                {"type": "array", "minItems": 1, "items": {"anyOf": [{"$ref": "#/$defs/changes"}, _operation()]}},
                _random(),
            ]
        },
        "tags": {"type": ["array", "null"], "items": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}},
        "path": {"type": ["string", "null"], "minLength": 1},
        "seed": {"type": ["integer", "null"], "minimum": 0, "maximum": 2**32 - 1},
        **{name: {"$ref": f"#/$defs/{name}"} for name in sections},
    }


def _call_of_a_case() -> Schema:
    """The call, whose options may have any value where the case must be refused."""
    names = {"op", "outputs", *(name for op in OPS.values() for name in op.names)}
    any_value = {"type": ["object", "null"], "propertyNames": {"enum": sorted(names)}}
    return {
        "if": {"required": ["expect"], "properties": {"expect": {"type": "object", "required": ["raises"]}}},
        "then": {"properties": {"call": any_value}},
        "else": {"properties": {"call": {"$ref": "#/$defs/call"}}},
    }


def _nullable(kind: Kind) -> Schema:
    return {"anyOf": [dict(kind.schema), {"type": "null"}]}


def _call() -> Schema:
    properties: Schema = {
        "op": {"enum": list(OPS)},
        "outputs": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    }
    help_of = {"op": f"The operation; {DEFAULT_OP} where absent.", "outputs": "The outputs wanted."}
    for op in OPS.values():
        for name, option in op.options.items():
            # A string may also name an intermediate value of let where the op has an array of this name.
            properties.setdefault(name, _nullable(option.kind))
            help_of.setdefault(name, option.help)
        for name, array in op.arrays.items():
            properties.setdefault(name, {"type": ["string", "null"]})
            help_of.setdefault(name, f"Name of a value of let. {array.help}")
    one_op = [
        {
            "if": {"properties": {"op": {"const": op.name}}, "required": ["op"]},
            "then": {"propertyNames": {"enum": ["op", "outputs", *op.names]}},
        }
        for op in OPS.values()
    ]
    return {**_object(properties, help_of), "allOf": one_op}


def _let() -> Schema:
    return {"type": ["object", "null"], "additionalProperties": {"type": "object", "required": ["op"]}}


def _inputs() -> Schema:
    arrays = {name: array.help for op in OPS.values() for name, array in op.arrays.items()}
    properties = {name: {"anyOf": [_LITERAL, {"$ref": "#/$defs/recipe"}, {"type": "null"}]} for name in arrays}
    design = {"design": {"$ref": "#/$defs/design"}}
    return _object({**design, **properties}, {"design": "How q, k and v are made; normal where absent.", **arrays})


def _recipe() -> Schema:
    parts = {**RECIPES, **MODIFIERS}
    properties = {name: dict(kind.schema) for name, (kind, _) in parts.items()}
    return _object(properties, {name: text for name, (_, text) in parts.items()})


def _design() -> Schema:
    parameters = {"type": ["object", "null"]}
    named = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": parameters}
    return {"anyOf": [{"type": ["string", "null"]}, named]}


def _layout() -> Schema:
    one = {"enum": [*LAYOUTS, None]}
    arrays = {name: array.help for op in OPS.values() for name, array in op.arrays.items()}
    return {"anyOf": [one, _object(dict.fromkeys(arrays, one), arrays)]}


def _over() -> Schema:
    values = {"type": "array", "items": kinds.INTEGER_SCHEMA, "minItems": 1}
    properties = {"figure": {"enum": list(FIGURES)}, **dict.fromkeys(DIM_HELP, values)}
    found = _object(properties, {"figure": "What is measured.", **DIM_HELP}, required=("figure",))
    return {**found, "minProperties": 2, "maxProperties": 2}


def _checks() -> Schema:
    properties = {name: _arguments(signature) for name, signature in CHECKS.items()}
    found = _object(properties, {name: signature.help for name, signature in CHECKS.items()})
    return {**found, "minProperties": 1, "maxProperties": 1}


def _arguments(signature: CheckSignature) -> Schema:
    properties: Schema = {
        name: {"$ref": "#/$defs/changes"} if argument.kind is kinds.CHANGES else dict(argument.kind.schema)
        for name, argument in signature.arguments.items()
    }
    # What is required may come from the clause's defaults, so that a mapping by itself need not have it.
    found = _object(properties, {name: argument.help for name, argument in signature.arguments.items()})
    found["type"] = ["object", "null"]
    return {**found, "additionalProperties": {"type": "array", "minItems": 1}} if signature.variable else found


def _operation() -> Schema:
    """One operation of an op that has a state."""
    found = _object(
        {name: dict(kind.schema) for name, (kind, _) in OPERATIONS.items()},
        {name: text for name, (_, text) in OPERATIONS.items()},
    )
    return {**found, "minProperties": 1, "maxProperties": 1}


def _random() -> Schema:
    """Operations drawn at random."""
    weights = _object(
        {name: {"type": "number", "minimum": 0} for name in OPERATIONS},
        {name: text for name, (_, text) in OPERATIONS.items()},
    )
    properties = {name: dict(kind.schema) for name, (kind, _) in RANDOM.items()} | {"weights": weights}
    inner = _object(properties, {name: text for name, (_, text) in RANDOM.items()}, required=NEEDED)
    return _object({"random": inner}, {"random": "Sequences of operations drawn at random."}, required=("random",))


def _expect() -> Schema:
    raises = _object(
        {"type": {"type": "string", "minLength": 1}, "names": dict(kinds.TEXTS.schema)},
        {name: argument.help for name, argument in CHECKS["raises"].arguments.items()},
        required=("type",),
    )
    outputs = {name: _LITERAL for op in OPS.values() for name in op.outputs}
    properties = {"raises": raises, **outputs}
    help_of = {name: f"The output {name}, written out." for name in outputs}
    found = _object(properties, {"raises": "The error that must be raised.", **help_of})
    return {**found, "type": ["object", "null"], "minProperties": 1}


def text() -> str:
    """The schema as it stands in the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
