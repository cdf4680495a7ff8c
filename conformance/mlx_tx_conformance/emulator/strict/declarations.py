"""Rules on declarations: what may stand where, and what calls what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .findings import Finding
from .structure import ADDRESS_SPACES, Function, Structure, is_initialiser, skip_template
from .tokens import Token, matching, skip_angles, split_commas

Report = Callable[..., Finding]
_TYPE_WORDS = frozenset({"const", "volatile", "unsigned", "signed", "typename", "struct", "constexpr"})


@dataclass(frozen=True)
class ThreadgroupVariable:
    """A declaration ``threadgroup T a[N], b[M];``: token indices of the keyword and of the end, the type as written,
    names and dimensions of the variables."""

    start: int
    end: int
    kind: str
    names: tuple[str, ...]
    dimensions: tuple[str, ...]
    initialised: bool


def threadgroup_variables(tokens: Sequence[Token]) -> list[ThreadgroupVariable]:
    """All declarations of variables *in* threadgroup memory; pointers into it are not among them."""
    found = []
    for i, token in enumerate(tokens):
        if token.text == "threadgroup" and not token.directive and _begins_statement(tokens, i):
            variable = _threadgroup_variable(tokens, i)
            if variable is not None:
                found.append(variable)
    return found


def _begins_statement(tokens: Sequence[Token], i: int) -> bool:
    while i and tokens[i - 1].text in ("const", "static", "constexpr", "volatile"):
        i -= 1
    return i == 0 or tokens[i - 1].text in (";", "{", "}", ":") or bool(tokens[i - 1].directive)


def _threadgroup_variable(tokens: Sequence[Token], i: int) -> ThreadgroupVariable | None:
    end = i
    while end < len(tokens) and tokens[end].text not in (";", "}"):
        end = matching(tokens, end) + 1 if tokens[end].text in ("(", "[", "{") else end + 1
    declarators = split_commas(tokens[i + 1 : end])
    places = [_name_place(part) for part in declarators]
    if not declarators or any(place is None for place in places):
        return None
    named = [(part, place) for part, place in zip(declarators, places, strict=True) if place is not None]
    return ThreadgroupVariable(
        i,
        end,
        _written(named[0][0][: named[0][1]]),
        tuple(part[place].text for part, place in named),
        tuple(_dimensions(part[place + 1 :]) for part, place in named),
        any(t.text in ("=", "{") for part in declarators for t in part),
    )


def _name_place(part: Sequence[Token]) -> int | None:
    """Where a declarator's name stands, or None when it declares a pointer, a reference or a function."""
    place, i = None, 0
    while i < len(part):
        text = part[i].text
        if text in ("*", "&", "&&", "("):
            return None
        if text in ("=", "[", "{"):
            break
        if part[i].kind == "name" and text not in _TYPE_WORDS:
            place = i
            if i + 1 < len(part) and part[i + 1].text == "<":
                i = max(skip_angles(part, i + 1) - 1, i)
        i += 1
    return place


def _dimensions(rest: Sequence[Token]) -> str:
    """``[N][M]`` after a name."""
    end = 0
    while end < len(rest) and rest[end].text == "[":
        end = matching(rest, end) + 1
    return _written(rest[:end])


def _written(tokens: Sequence[Token]) -> str:
    return " ".join(t.text for t in tokens)


def threadgroup_rules(structure: Structure, report: Report) -> Iterator[Finding]:
    """Threadgroup variables outside a kernel's own body, or with an initialiser."""
    for variable in threadgroup_variables(structure.tokens):
        token, names = structure.tokens[variable.start], ", ".join(variable.names)
        scope = structure.scopes[variable.start]
        function = structure.function_at(variable.start) if scope == "function" else None
        if function is None or not function.is_kernel:
            where = f"in `{function.name}`" if function else "outside any function"
            hint = "declare it in the kernel and pass `threadgroup T*`"
            yield report("threadgroup-scope", token, f"`{names}` is a threadgroup variable {where}", hint)
        if variable.initialised:
            hint = "assign in a loop over threads, then threadgroup_barrier"
            yield report("threadgroup-initialiser", token, f"`{names}` has an initialiser", hint)


def member_rules(structure: Structure, report: Report) -> Iterator[Finding]:
    """Member functions and constructors that do not say which address space ``this`` is in."""
    for function in structure.functions:
        if function.record and not function.is_static and not ADDRESS_SPACES & set(function.qualifiers):
            if any(t.text == "friend" for t in function.head):
                continue
            what = "constructor" if function.name == function.record else "member function"
            hint = "end it in `thread` or `const thread`, make it static, or make it a free function"
            yield report("member-address-space", function.line, f"{what} `{function.name}`", hint)


def static_rules(structure: Structure, report: Report) -> Iterator[Finding]:
    """Static variables in functions, and variables at program scope that are not ``constant``."""
    tokens = structure.tokens
    for i, token in enumerate(tokens):
        if token.text == "static" and structure.scopes[i] == "function":
            statement = _statement(tokens, i)
            if not any(t.text == "constant" for t in statement):
                yield report("static-local", token, "a static local", "write constexpr, or static constant constexpr")
    start = 0
    for i, token in enumerate(tokens):
        if structure.scopes[i] != "namespace":
            continue
        if token.text in ("{", "}"):
            if token.text == "{" and is_initialiser(tokens[start:i]):
                yield from _global(tokens[start:i], report)
            start = i + 1
        elif token.text == ";":
            yield from _global(tokens[start:i], report)
            start = i + 1


def _global(statement: Sequence[Token], report: Report) -> Iterator[Finding]:
    statement = statement[skip_template(statement) :]
    texts = [t.text for t in statement]
    if not statement or statement[0].text in ("using", "typedef", "namespace", "struct", "class", "enum", "extern"):
        return
    declares = "constexpr" in texts or "static" in texts or "=" in texts
    if not declares or "(" in texts[: texts.index("=") if "=" in texts else None] or texts[0] == "static_assert":
        return
    # MLX spells `constant` through a macro here and there; a name in capitals may hold it.
    if "constant" not in texts and not any(t.isupper() and t.endswith("CONST") for t in texts):
        yield report("global-variable", statement[0], "a variable at program scope", "declare it `constant`")


def _statement(tokens: Sequence[Token], i: int) -> Sequence[Token]:
    end = i
    while end < len(tokens) and tokens[end].text not in (";", "{", "}", "="):
        end += 1
    return tokens[i:end]


def recursion(structure: Structure, report: Report) -> Iterator[Finding]:
    """Functions that reach themselves, told apart by name and number of arguments."""
    known: Mapping[tuple[str, int], Function] = {
        (f.name, len(f.parameters)): f for f in structure.functions if f.name != "operator"
    }
    calls = {key: set(_calls(structure, f)) & set(known) for key, f in known.items()}
    for key, function in known.items():
        reached: set[tuple[str, int]] = set()
        waiting = list(calls[key])
        while waiting:
            callee = waiting.pop()
            if callee not in reached:
                reached.add(callee)
                waiting.extend(calls[callee])
        if key in reached:
            yield report("recursion", function.line, f"`{function.name}` calls itself", "write a loop")


def _calls(structure: Structure, function: Function) -> Iterator[tuple[str, int]]:
    tokens = structure.tokens
    for i in range(*function.body):
        if tokens[i].kind != "name":
            continue
        paren = i + 1
        if paren < function.body[1] and tokens[paren].text == "<":
            # f<N - 1>(x) is another instance: recursion over template arguments ends at compile time.
            continue
        if paren < function.body[1] and tokens[paren].text == "(" and tokens[i - 1].text not in (".", "->", "::"):
            yield tokens[i].text, len(split_commas(tokens[paren + 1 : matching(tokens, paren)]))
