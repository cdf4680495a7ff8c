"""The names in a case held to the registries: ops, options, arrays, layouts, recipes, checks and their arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..call import DTYPES, LAYOUTS
from .check_signatures import CHECKS, FIGURES
from .errors import Finding, suggestion
from .expr import ExpressionError, parse
from .kinds import ARRAYS, EXPRESSION, OUTPUTS, Kind, is_integer
from .merge import as_check
from .operations import faults as operation_faults
from .ops import DEFAULT_OP, DIM_HELP, OPS, Array, Op
from .reader import Document
from .recipes import INDICES, MODIFIERS, RECIPES
from .vary import is_known, unknown_key

CHANGE_KEYS = ("call", "inputs", "layout")
EXPECTED_ERROR_KEYS = ("type", "names")
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
# What a named variant may change.
VARIANT_KEYS = ("shapes", "dtype", "call", "inputs", "layout", "check", "expect", "tags", "path", "seed", "note")


class NameCheck:
    """Findings about one mapping of a case: its own keys, the defaults', or those of a named variant.

    ``ops`` are the ops that it may be for (several in defaults that name none), ``let`` the intermediate values.
    """

    def __init__(self, document: Document, place: tuple[str | int, ...], where: str) -> None:
        self.document, self.place, self.where = document, place, where
        self.findings: list[Finding] = []

    def add(self, message: str, *path: str | int, hint: str = "") -> None:
        found = self.document.finding(f"{message} {self.where}{hint}", *self.place, *path, rule="name")
        self.findings.append(found)

    def known(self, noun: str, name: Any, names: Iterable[str], *path: str | int) -> bool:
        names = tuple(names)
        if name in names:
            return True
        self.add(f"unknown {noun} {name!r}", *path, hint=suggestion(name, names))
        return False

    def mapping(self, value: Any, what: str, *path: str | int) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        if value is not None:
            self.add(f"{what} must be a mapping; got {value!r:.60}", *path)
        return {}

    def listing(self, value: Any, what: str, *path: str | int) -> list[Any]:
        if isinstance(value, list) and value:
            return value
        self.add(f"{what} must be a list of at least one value; got {value!r:.60}", *path)
        return []

    # -- sections -------------------------------------------------------------------------------------------------

    def sections(self, body: Mapping[str, Any], ops: tuple[Op, ...], let: Mapping[str, Any]) -> None:
        """Check every section that a body has."""
        for name in self.mapping(body.get("shapes"), "shapes", "shapes"):
            self.known("dim", name, DIM_HELP, "shapes", name)
        if body.get("dtype") is not None:
            self.known("dtype", body["dtype"], DTYPES, "dtype")
        self.plain(body)
        self.call(body.get("call"), ops, let, "call")
        self.inputs(body.get("inputs"), ops, "inputs")
        self.layout(body.get("layout"), ops, "layout")
        if body.get("let") is not None:
            self.let(self.mapping(body["let"], "let", "let"), ops, let)
        self.over(body.get("over"))
        if "steps" in body:
            self.steps(body["steps"], ops, let)
        if "check" in body:
            self.check(body, ops, let)
        if "expect" in body:
            self.expect(body["expect"], ops)
        if body.get("only_if") is not None:
            self.expression(body["only_if"], None, "only_if")
        for section in ("vary", "pairwise"):
            for key, values in self.mapping(body.get(section), section, section).items():
                if values is not None:
                    self.factor(section, key, values, ops, let)

    def plain(self, body: Mapping[str, Any]) -> None:
        """The keys that hold a word or a number."""
        for key in ("note", "path"):
            if body.get(key) is not None and not (isinstance(body[key], str) and body[key].strip()):
                self.add(f"{key} must be a text; got {body[key]!r:.60}", key)
        tags = body.get("tags")
        if tags is not None and not (
            isinstance(tags, list) and all(isinstance(t, str) and KEBAB.fullmatch(t) for t in tags)
        ):
            self.add(f"tags must be a list of words in kebab-case; got {tags!r:.60}", "tags")
        if body.get("seed") is not None:
            self.seed(body["seed"], "seed")

    def seed(self, seed: Any, *path: str | int) -> None:
        if not is_integer(seed) or not 0 <= seed < 2**32:
            self.add(f"seed must be an integer from 0 to 2^32 - 1; got {seed!r:.60}", *path)

    def call(self, value: Any, ops: tuple[Op, ...], let: Mapping[str, Any], *path: str | int) -> None:
        call = self.mapping(value, "call", *path)
        names = ("op", "outputs", *(name for op in ops for name in op.names))
        for name, given in call.items():
            if name == "op":
                self.known("op", given, OPS, *path, "op")
            elif self.known("option", name, dict.fromkeys(names), *path, name) and name == "outputs":
                self.outputs(given, ops, *path, "outputs")
            elif isinstance(given, list | Mapping) and not any(name in op.options for op in ops):
                self.add(f"{name!r} is an array: write it under inputs", *path, name)
            elif isinstance(given, str) and not any(name in op.options for op in ops):
                self.known("value of let", given, let, *path, name)

    def outputs(self, value: Any, ops: tuple[Op, ...], *path: str | int) -> None:
        for output in self.listing(value, "outputs", *path):
            self.known("output", output, dict.fromkeys(name for op in ops for name in op.outputs), *path)

    def inputs(self, value: Any, ops: tuple[Op, ...], *path: str | int) -> None:
        arrays: dict[str, Array] = {name: array for op in ops for name, array in op.arrays.items()}
        for name, recipe in self.mapping(value, "inputs", *path).items():
            if name == "design":
                self.design(recipe, *path, name)
            elif name not in arrays and any(name in op.options for op in ops):
                self.add(f"{name!r} is an option: write it under call", *path, name)
            elif self.known("array", name, ("design", *arrays), *path, name) and recipe is not None:
                self.recipe(recipe, *path, name)

    def design(self, value: Any, *path: str | int) -> None:
        if isinstance(value, Mapping):
            if len(value) != 1 or not isinstance(next(iter(value.values())), Mapping | None):
                self.add("a design is a word, or one word with its parameters: {spiky: {std: 16}}", *path)
        elif value is not None and not isinstance(value, str):
            self.add(f"a design is a word; got {value!r:.60}", *path)

    def recipe(self, recipe: Any, *path: str | int) -> None:
        if isinstance(recipe, list):
            return
        if not isinstance(recipe, Mapping):
            self.add(f"an array is a list or a recipe ({', '.join(RECIPES)}); got {recipe!r:.60}", *path)
            return
        for key, value in recipe.items():
            if self.known("key", key, (*RECIPES, *MODIFIERS), *path, key) and key in ("where", "formula"):
                self.expression(value, INDICES, *path, key)
        if len(recipe.keys() & RECIPES) > 1:
            self.add(f"a recipe has one of {', '.join(RECIPES)}; got {', '.join(recipe)}", *path)

    def layout(self, value: Any, ops: tuple[Op, ...], *path: str | int) -> None:
        if isinstance(value, str):
            self.known("layout", value, LAYOUTS, *path)
            return
        arrays = dict.fromkeys(name for op in ops for name in op.arrays)
        for name, layout in self.mapping(value, "layout", *path).items():
            if self.known("array", name, arrays, *path, name) and layout is not None:
                self.known("layout", layout, LAYOUTS, *path, name)

    def let(self, let: Mapping[str, Any], ops: tuple[Op, ...], known: Mapping[str, Any]) -> None:
        arrays = {name for op in ops for name in op.arrays}
        earlier = {name: line for name, line in known.items() if name not in let}
        for name, value in let.items():
            line = self.mapping(value, "a line of let", "let", name)
            if name in arrays:
                self.add(f"a value of let cannot be called {name!r}, as an array is", "let", name)
            if not name.isidentifier():
                self.add(f"a value of let is called by an identifier; got {name!r}", "let", name)
            if "op" not in line:
                self.add(f"let {name!r} has no op", "let", name)
            elif self.known("op", line["op"], OPS, "let", name, "op"):
                self.let_line(name, line, OPS[line["op"]], arrays, earlier)
            earlier[name] = line

    def let_line(
        self, name: str, line: Mapping[str, Any], op: Op, arrays: set[str], earlier: Mapping[str, Any]
    ) -> None:
        for key, value in line.items():
            if key in ("op", "outputs"):
                continue
            if self.known(f"argument of {op.name}", key, op.names, "let", name, key) and key not in op.options:
                self.known("array", value, (*sorted(arrays), *earlier), "let", name, key)
        for array in op.arrays.values():
            if array.required and array.name not in line:
                self.add(f"let {name!r} needs {array.name}", "let", name)
        if len(line.get("outputs", op.default_outputs)) != 1:
            self.add(f"let {name!r} is one array; outputs must name one", "let", name)

    def over(self, value: Any) -> None:
        if value is None:
            return
        over = self.mapping(value, "over", "over")
        variables = [key for key in over if key != "figure"]
        if "figure" not in over or len(variables) != 1:
            self.add("over takes figure and one variable with its values", "over")
            return
        self.known("figure", over["figure"], FIGURES, "over", "figure")
        if self.known("dim", variables[0], DIM_HELP, "over", variables[0]):
            self.listing(over[variables[0]], variables[0], "over", variables[0])

    def steps(self, value: Any, ops: tuple[Op, ...], let: Mapping[str, Any]) -> None:
        if any(op.stateful for op in ops):
            for message, hint in operation_faults(value):
                self.add(message, "steps", hint=hint)
            return
        for n, step in enumerate(self.listing(value, "steps", "steps")):
            self.changes(step, ops, let, "steps", n)

    def changes(self, value: Any, ops: tuple[Op, ...], let: Mapping[str, Any], *path: str | int) -> None:
        if value is None:
            self.add("a change must be a mapping; got nothing", *path)
        changes = self.mapping(value, "a change", *path)
        for key, inner in changes.items():
            if self.known("key", key, CHANGE_KEYS, *path, key):
                if key == "call":
                    self.call(inner, ops, let, *path, key)
                elif key == "inputs":
                    self.inputs(inner, ops, *path, key)
                else:
                    self.layout(inner, ops, *path, key)

    # -- what is checked --------------------------------------------------------------------------------------------

    def check(self, body: Mapping[str, Any], ops: tuple[Op, ...], let: Mapping[str, Any]) -> None:
        value = body["check"]
        if not isinstance(value, str | Mapping) or len(value if isinstance(value, Mapping) else [value]) != 1:
            self.add(f"check is one name, or one name with its arguments; got {value!r:.60}", "check")
            return
        ((name, arguments),) = as_check(value).items()
        if not self.known("check", name, CHECKS, "check"):
            return
        signature = CHECKS[name]
        variables = []
        for key, given in self.mapping(arguments, f"check {name}", "check", name).items():
            argument = signature.arguments.get(key)
            if argument is not None:
                self.argument(argument.kind, given, ops, let, "check", name, key)
            elif signature.variable:
                variables.append(key)
                for n, value in enumerate(self.listing(given, key, "check", name, key)):
                    if key == "layout":
                        self.layout(value, ops, "check", name, key, n)
            else:
                self.known(f"argument of {name}", key, signature.arguments, "check", name, key)
        if len(variables) > 1:
            self.add(f"{name} takes one variable; got {', '.join(variables)}", "check", name)

    def argument(self, kind: Kind, value: Any, ops: tuple[Op, ...], let: Mapping[str, Any], *path: str | int) -> None:
        if kind is EXPRESSION:
            self.expression(value, None, *path)
        elif kind is ARRAYS:
            arrays = dict.fromkeys(name for op in ops for name in op.arrays)
            for name in self.listing(value, str(path[-1]), *path):
                self.known("array", name, arrays, *path)
        elif kind is OUTPUTS:
            self.outputs(value, ops, *path)
        elif path[-1] == "with":
            self.changes(value, ops, let, *path)
        elif not kind.numeric and not kind.accepts(value):
            near = suggestion(value, kind.words) if kind.words else ""
            self.add(f"{path[-1]} must be {kind.text}; got {value!r:.60}", *path, hint=near)

    def expect(self, value: Any, ops: tuple[Op, ...]) -> None:
        expect = self.mapping(value, "expect", "expect")
        if not expect:
            self.add("expect must hold outputs with their values, or raises", "expect")
        if "raises" not in expect:
            for name in expect:
                known = dict.fromkeys(name for op in ops for name in op.outputs)
                self.known("output", name, (*known, "raises"), "expect", name)
            return
        if len(expect) > 1:
            self.add("expect holds either raises or outputs", "expect")
        raises = self.mapping(expect["raises"], "raises", "expect", "raises")
        for key in raises:
            self.known("key", key, EXPECTED_ERROR_KEYS, "expect", "raises", key)
        if not isinstance(raises.get("type"), str):
            self.add("raises needs a type, the name of an exception", "expect", "raises")

    def factor(self, section: str, key: str, values: Any, ops: tuple[Op, ...], let: Mapping[str, Any]) -> None:
        for n, value in enumerate(self.listing(values, key, section, key)):
            if isinstance(value, Mapping) and "name" in value and value.keys() != {"name", "value"}:
                self.variant(value, ops, let, section, key, n)
                continue
            given = value["value"] if isinstance(value, Mapping) and "name" in value else value
            if not any(is_known(key, op) for op in ops):
                message, hint = unknown_key(key, ops[0])
                self.add(message, section, key, hint=hint)
                return
            if key == "dtype":
                self.known("dtype", given, DTYPES, section, key, n)
            elif key == "layout":
                self.layout(given, ops, section, key, n)
            elif key == "design":
                self.design(given, section, key, n)
            elif key == "seed":
                self.seed(given, section, key, n)

    def variant(self, value: Mapping[str, Any], ops: tuple[Op, ...], let: Mapping[str, Any], *path: str | int) -> None:
        inner = NameCheck(self.document, (*self.place, *path), f"in variant {value['name']!r} {self.where}")
        for name in value:
            inner.known("key", name, ("name", *VARIANT_KEYS), name)
        body = {k: v for k, v in value.items() if k in VARIANT_KEYS}
        call = body.get("call")
        if isinstance(call, Mapping) and isinstance(call.get("op"), str) and call["op"] in OPS:
            ops = (OPS[call["op"]],)
        check = body.pop("check", None)
        inner.sections(body, ops, let)
        if check is not None:
            inner.check({"check": check}, ops, let)
        self.findings += inner.findings

    def expression(self, value: Any, indices: tuple[str, ...] | None, *path: str | int) -> None:
        """An expression that can be read; with ``indices``, of the dims and these only."""
        if isinstance(value, bool | int | float):
            return
        if not isinstance(value, str):
            self.add(f"{path[-1]} must be an expression; got {value!r:.60}", *path)
            return
        try:
            names = parse(value).names
        except ExpressionError as error:
            self.add(str(error), *path)
            return
        if indices is not None:
            known = (*indices, *DIM_HELP, *OPS[DEFAULT_OP].options)
            for name in names:
                self.known(f"name in {value!r}:", name, known, *path)
