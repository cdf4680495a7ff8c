"""From the body of a case, all choices made, to a :class:`Case` with every number evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from ..call import LAYOUTS
from .check_signatures import CHECKS, FIGURES
from .dims import dims_of
from .errors import Finding, SpecError, suggestion
from .expr import CONSTANTS, ExpressionError, parse
from .kinds import Kind
from .merge import OWN
from .model import Case, Source
from .operations import as_steps
from .ops import DEFAULT_OP, OPS, Op
from .recipes import MODIFIERS, RECIPES

_RECIPE_KINDS: Mapping[str, Kind] = {name: kind for name, (kind, _) in {**RECIPES, **MODIFIERS}.items()}
_NONE: Mapping[str, Any] = {}


class Origin(Protocol):
    """Where a case comes from: a template of a file, or another case."""

    @property
    def clause(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> tuple[Source, ...]: ...

    @property
    def file(self) -> str: ...

    def line(self, *path: str | int) -> int: ...


@dataclass
class Evaluation:
    """One body on its way to a case; ``variables`` are values for names that stay free otherwise."""

    body: Mapping[str, Any]
    origin: Origin
    variables: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.call_body = self.body.get("call") or _NONE
        self.op = self._op(self.call_body.get("op", DEFAULT_OP), "call", "op")
        self.check, self.check_args, self.expect = self._check_and_expect()
        self.refused = self.check == "raises"
        self.free = self._free_variables()
        self.dims = dims_of(self.body, self.op, self.refused, self.fail)
        self.environment: dict[str, Any] = {**self.dims, **self.variables}

    # -- errors -------------------------------------------------------------------------------------------------

    def fail(self, message: str, *path: str | int, hint: str = "") -> NoReturn:
        """Raise the complaint about a key of the case."""
        text = f"{message} in case {self.origin.name!r}{hint}"
        raise SpecError(Finding(self.origin.file, self.origin.line(*path), text, "value"))

    # -- numbers ------------------------------------------------------------------------------------------------

    def resolve(self, value: Any, *path: str | int, environment: Mapping[str, Any] | None = None) -> Any:
        """Strings within a value as the numbers that they stand for; those that use a free variable stay."""
        names = self.environment if environment is None else environment
        if isinstance(value, str):
            return self._number(value, names, path)
        if isinstance(value, list):
            if all(isinstance(item, int | float) for item in value):
                return value
            return [self.resolve(item, *path, environment=names) for item in value]
        if isinstance(value, Mapping):
            return {key: self.resolve(item, *path, key, environment=names) for key, item in value.items()}
        return value

    def _number(self, text: str, names: Mapping[str, Any], path: tuple[str | int, ...]) -> Any:
        try:
            expression = parse(text)
            if self.free and any(name in self.free and name not in names for name in expression.names):
                return text
            return expression(names)
        except ExpressionError as error:
            self.fail(str(error), *path)

    def typed(self, kind: Kind, value: Any, what: str, *path: str | int) -> Any:
        """A value of a kind, its strings resolved. A case that must be refused may give what is not of the kind."""
        if kind.numeric:
            value = self.resolve(value, *path)
            if isinstance(value, str):
                return value
        if not self.refused and not kind.accepts(value):
            self.fail(f"{what} must be {kind.text}; got {value!r:.80}", *path)
        return value

    # -- the sections -------------------------------------------------------------------------------------------

    def call(self, body: Mapping[str, Any], *path: str | int, line_of: Op | None = None) -> dict[str, Any]:
        """A call, or a line of ``let``: the op, its options, its outputs, and arrays by name."""
        op = line_of or self.op
        call: dict[str, Any] = {"op": op.name}
        for name, value in body.items():
            if name in ("op", "outputs"):
                continue
            option = op.options.get(name)
            if name in op.arrays and isinstance(value, str) and self._is_array(value, option):
                call[name] = value
            elif option is not None:
                call[name] = self.typed(option.kind, value, name, *path, name)
            else:
                self.fail(f"{op.name} takes no option {name!r}", *path, name, hint=suggestion(name, op.names))
        for name, option in op.options.items():
            if option.default is not None and name not in call:
                call[name] = parse(option.default)(self.environment)
        outputs = tuple(body.get("outputs") or ((*self.expected,) if line_of is None else ()) or op.default_outputs)
        for output in outputs:
            if output not in op.outputs:
                self.fail(f"{op.name} has no output {output!r}", *path, "outputs", hint=suggestion(output, op.outputs))
        call["outputs"] = outputs
        return call

    @property
    def expected(self) -> Mapping[str, Any]:
        """The outputs that ``expect`` writes out."""
        return {} if self.expect is None or self.refused else self.expect

    def _is_array(self, value: str, option: Any) -> bool:
        """Whether a string under a call names an array: of ``let``, or (in a line of it) of the inputs."""
        if value in (self.body.get("let") or _NONE) or option is None:
            return True
        return value in self.op.arrays and value not in self.environment and not option.kind.words

    def inputs(self, body: Mapping[str, Any], *path: str | int) -> dict[str, Any]:
        """Recipes by array name, their numbers evaluated."""
        return {name: self._recipe(name, recipe, path) for name, recipe in body.items()}

    def _recipe(self, name: str, recipe: Any, path: tuple[str | int, ...]) -> Any:
        if name == "design":
            return recipe if isinstance(recipe, str) else self._design(recipe, (*path, name))
        if name not in self.op.arrays:
            self.fail(f"{self.op.name} has no array {name!r}", *path, name, hint=suggestion(name, self.op.arrays))
        if not isinstance(recipe, Mapping):
            return self.resolve(recipe, *path, name)
        for key in recipe:
            if key not in _RECIPE_KINDS:
                self.fail(f"unknown key {key!r} in {name}", *path, name, hint=suggestion(key, _RECIPE_KINDS))
        if len(recipe.keys() & RECIPES) != 1:
            self.fail(f"{name} needs one of {', '.join(RECIPES)}; got {', '.join(recipe) or 'nothing'}", *path, name)
        return {
            key: self.typed(_RECIPE_KINDS[key], value, f"{name}.{key}", *path, name, key)
            for key, value in recipe.items()
        }

    def _design(self, design: Mapping[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
        """A design with its parameters: a string that is one name of no dim is a word, any other an expression."""
        ((name, parameters),) = design.items()
        evaluated = {}
        for key, value in (parameters or {}).items():
            word = isinstance(value, str) and value.isidentifier()
            keep = word and value not in self.environment and value not in CONSTANTS
            evaluated[key] = value if keep else self.resolve(value, *path, name, key)
        return {name: evaluated}

    def changes(self, body: Mapping[str, Any], *path: str | int) -> dict[str, Any]:
        """Changes to a case (``steps``, ``agrees: {with: ...}``): nulls stay, as they take something away."""
        changed: dict[str, Any] = {key: value for key, value in body.items() if value is not None}
        if "call" in changed:
            changed["call"] = {
                name: value if value is None or name == "outputs" else self._option(name, value, (*path, "call"))
                for name, value in body["call"].items()
            }
        if "inputs" in changed:
            changed["inputs"] = {
                name: recipe if recipe is None else self._recipe(name, recipe, (*path, "inputs"))
                for name, recipe in body["inputs"].items()
            }
        return changed

    def _option(self, name: str, value: Any, path: tuple[str | int, ...]) -> Any:
        option = self.op.options.get(name)
        if option is None:
            self.fail(f"{self.op.name} takes no option {name!r}", *path, name, hint=suggestion(name, self.op.options))
        return self.typed(option.kind, value, name, *path, name)

    def layout(self) -> dict[str, str]:
        """Layouts by array name; one word is meant for every main array."""
        layout = self.body.get("layout") or {}
        layouts = dict.fromkeys(self.op.laid_out, layout) if isinstance(layout, str) else dict(layout)
        for name, word in layouts.items():
            if word not in LAYOUTS:
                self.fail(f"unknown layout {word!r}", "layout", name, hint=suggestion(word, LAYOUTS))
        return layouts

    def steps(self) -> tuple[Mapping[str, Any], ...]:
        """Changed forms of the call, one after another; operations where the op has a state."""
        steps = self.body.get("steps") or ()
        if self.op.stateful:
            return as_steps(steps)
        return tuple(self.changes(step, "steps", n) for n, step in enumerate(steps))

    def let(self) -> dict[str, dict[str, Any]]:
        """Intermediate values by name, each a call."""
        lines = {}
        for name, body in (self.body.get("let") or _NONE).items():
            op = self._op(body.get("op", ""), "let", name, "op")
            lines[name] = self.call(body, "let", name, line_of=op)
        return lines

    def over(self) -> dict[str, Any]:
        """The figure, and the values of the one variable that it is measured over."""
        over = self.body.get("over") or _NONE
        if over and over.get("figure") not in FIGURES:
            self.fail(f"unknown figure {over.get('figure')!r}", "over", hint=suggestion(over.get("figure"), FIGURES))
        return {key: value if key == "figure" else self.resolve(value, "over", key) for key, value in over.items()}

    # -- what is checked ------------------------------------------------------------------------------------------

    def _op(self, name: str, *path: str | int) -> Op:
        if name not in OPS:
            self.fail(f"unknown op {name!r}", *path, hint=suggestion(name, OPS))
        return OPS[name]

    def _check_and_expect(self) -> tuple[str, Mapping[str, Any], Mapping[str, Any] | None]:
        """Name and arguments of the check, and what is expected. Values written out are what the oracle gives too."""
        expect = self.body.get("expect")
        if expect is not None:
            if "raises" in expect:
                return "raises", expect["raises"], expect
            return "equals_oracle", {"outputs": list(expect)}, expect
        check = self.body.get("check")
        if check is None:
            self.fail("neither check nor expect")
        if len(check) != 1:
            self.fail(f"a case has one check; got {', '.join(check)}", "check")
        ((name, arguments),) = check.items()
        if name not in CHECKS:
            self.fail(f"unknown check {name!r}", "check", hint=suggestion(name, CHECKS))
        return name, arguments, None

    def _free_variables(self) -> frozenset[str]:
        signature = CHECKS[self.check]
        if not signature.variable:
            return frozenset()
        return frozenset(
            name for name in self.check_args if name not in signature.arguments and name not in self.op.options
        ) - {"layout"}

    def arguments(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The check's arguments. A law's numbers may use the dims at the largest size that it is measured at."""
        signature = CHECKS[self.check]
        kept = self.environment
        numeric = {k: v for k, v in call.items() if isinstance(v, int | float)}
        self.environment = {**kept, **numeric, **self._largest(self.over())}
        try:
            return {name: self._argument(signature, name, value) for name, value in self.check_args.items()}
        finally:
            self.environment = kept

    def _argument(self, signature: Any, name: str, value: Any) -> Any:
        path = ("check", self.check, name)
        argument = signature.arguments.get(name)
        if argument is None and not signature.variable:
            near = suggestion(name, signature.arguments)
            self.fail(f"{signature.name} takes no argument {name!r}", "check", signature.name, hint=near)
        if argument is None:  # the variable of same_for
            option = self.op.options.get(name)
            words = name == "layout" or (option is not None and not option.kind.numeric)
            return value if words else self.resolve(value, *path)
        if name == "with":
            return self.changes(value, *path)
        return self.typed(argument.kind, value, f"{self.check}.{name}", *path)

    @staticmethod
    def _largest(over: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {name: values[-1] for name, values in over.items() if name != "figure"}
        if "T" in sizes:
            sizes |= {"T_q": sizes["T"], "T_kv": sizes["T"]}
        return sizes


def selection_names(evaluation: Evaluation, flags: Mapping[str, bool]) -> dict[str, Any]:
    """What ``only_if`` may use: dims, options (absent ones nan, absent flags false), and the bare labels as flags."""
    names: dict[str, Any] = {}
    for name, option in evaluation.op.options.items():
        names[name] = False if option.kind.text == "true or false" else float("nan")
    call = evaluation.call(evaluation.call_body, "call")
    names |= {name: value for name, value in call.items() if isinstance(value, int | float)}
    return {**flags, **names, **evaluation.dims}


def build(
    body: Mapping[str, Any],
    origin: Origin,
    params: Mapping[str, Any],
    labels: tuple[str, ...] = (),
    *,
    evaluation: Evaluation | None = None,
    id: str = "",
) -> Case:
    """The case that a body describes. Raises :class:`SpecError` with file and line."""
    e = evaluation or Evaluation(body, origin)
    name = f"{origin.clause}/{origin.name}"
    call = e.call(e.call_body, "call")
    return Case(
        id=id or (f"{name}[{','.join(labels)}]" if labels else name),
        clause=origin.clause,
        name=origin.name,
        params=params,
        dims=e.dims,
        dtype=body.get("dtype", "float32"),
        call=call,
        inputs=e.inputs(body.get("inputs") or _NONE, "inputs"),
        layout=e.layout(),
        let=e.let(),
        steps=e.steps(),
        over=e.over(),
        check=e.check,
        check_args=e.arguments(call),
        expect=None if e.expect is None else e.expect if e.refused else e.resolve(e.expect, "expect"),
        tags=tuple(body.get("tags") or ()),
        path=body.get("path", ""),
        seed=body.get("seed", 0),
        source=origin.source,
        note=body.get("note", ""),
        file=origin.file,
        line=origin.line(),
        declared=body,
        own=body.get(OWN, frozenset()),
    )
