"""Which MSL names a kernel may use: those that the kernels MLX ships use, which are known to compile on Macs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from .findings import Finding
from .structure import Structure
from .tokens import Token

Report = Callable[..., Finding]


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# C++ words that take parentheses or stand where a call could; none is a name of MSL.
_KEYWORDS = _set_of(
    "if for while switch return sizeof decltype static_cast reinterpret_cast const_cast static_assert alignas do else"
    " case default break continue operator template typename struct class union enum using namespace typedef public"
    " private protected const constexpr inline static volatile extern auto void bool char short int long float unsigned"
    " signed true false nullptr this friend explicit noexcept and or not defined __attribute__ __builtin_expect"
    " max_total_threads_per_threadgroup buffer function_constant host_name threadgroup thread device constant"
)
# MSL's types and keywords that a variable must not be called by (with `using namespace metal` at file scope).
_TAKEN = _set_of("kernel buffer sampler access texture vertex fragment array tensor vec half bfloat uint")
_TAKEN_FUNCTIONS = _set_of(
    "max min dot step sign rotate fract length clamp select mix exp exp2 log log2 abs sqrt rsqrt floor ceil round"
    " normalize cross distance smoothstep any all saturate pow fma"
)
_NEVER_LOCALS = frozenset({"grid_size", "grid_origin"})


@dataclass(frozen=True)
class Names:
    """The shipped lists: names by standing, and for names never used what to write instead."""

    used: frozenset[str]
    bfloat_only: frozenset[str]
    m5_only: frozenset[str]
    never: Mapping[str, str]
    preamble: frozenset[str]


@lru_cache(maxsize=1)
def load_names() -> Names:
    """Reads the lists in ``names/``."""
    never = {}
    for line in _lines("never.txt"):
        name, _, instead = line.partition(" ")
        never[name] = instead.strip()
    return Names(_words("used.txt"), _words("bfloat_only.txt"), _words("m5_only.txt"), never, _words("preamble.txt"))


def _lines(file: str) -> list[str]:
    text = files(__package__).joinpath("names", file).read_text(encoding="ascii")
    return [line for raw in text.splitlines() if (line := raw.split("#", 1)[0].strip())]


def _words(file: str) -> frozenset[str]:
    return frozenset(word for line in _lines(file) for word in line.split())


def check_names(tokens: Sequence[Token], declared: frozenset[str], report: Report) -> Iterator[Finding]:
    """Every MSL name used must be one that MLX's shipped kernels use.

    ``declared`` are names the source itself gives a meaning to (see ``declared_names``).
    """
    said: set[str] = set()
    for i, token in enumerate(tokens):
        before = tokens[i - 1].text if i else ""
        unread = token.kind != "name" or token.directive in ("include", "pragma") or before in (".", "->")
        if not unread and token.text not in said:
            for finding in _standing(tokens, i, declared, report):
                said.add(token.text)
                yield finding


def _standing(tokens: Sequence[Token], i: int, declared: frozenset[str], report: Report) -> Iterator[Finding]:
    """What the lists say about the name at ``i``."""
    names, token, name = load_names(), tokens[i], tokens[i].text
    called = i + 1 < len(tokens) and tokens[i + 1].text == "(" and not token.directive
    scope = tokens[i - 2].text if i >= 2 and tokens[i - 1].text == "::" else ""
    if name in names.never:
        hint = f"write {names.never[name]}" if names.never[name] else "use a form that MLX's kernels use"
        yield report("name-never", token, f"no kernel MLX ships uses `{name}`", hint)
    elif name in names.m5_only:
        yield report("name-m5", token, f"`{name}` needs an M5 and Metal 4", "use simdgroup_matrix")
    elif name in names.bfloat_only and name not in declared:
        message = f"MLX never calls the float form of `{name}`"
        yield report("name-bfloat-only", token, message, "the bfloat form is MLX's own", severity="warning")
    elif called and scope in ("metal", "fast", "precise") and name not in names.used | declared:
        yield report("name-unknown", token, f"no kernel MLX ships uses `{scope}::{name}`")
    elif called and not scope and not name.startswith("__is_") and not _known(name, declared, names):
        yield report("name-unknown", token, f"`{name}` is neither MSL as MLX uses it nor declared here")


def _known(name: str, declared: frozenset[str], names: Names) -> bool:
    return name in declared or name in names.used or name in names.preamble or name in _KEYWORDS


def declared_names(tokens: Sequence[Token]) -> frozenset[str]:
    """Names that the source seems to declare: those that follow a type somewhere, and macros.

    Generous on purpose: what slips through is refused by the compiler as undeclared.
    """
    found = set()
    for i, token in enumerate(tokens):
        if token.kind != "name" or i == 0:
            continue
        before = tokens[i - 1]
        after_type = before.kind == "name" and before.text not in ("return", "else", "case", "do")
        if after_type or before.text in (">", "*", "&", "&&"):
            found.add(token.text)
    return frozenset(found)


def clashes(structure: Structure, report: Report) -> Iterator[Finding]:
    """Declarations that hide what ``using namespace metal``, MSL or MLX's preamble already name."""
    preamble = load_names().preamble
    for function in structure.functions:
        if function.record or function.is_kernel:
            continue
        if function.name in _TAKEN_FUNCTIONS or function.name in preamble:
            yield report("name-clash", function.line, f"function `{function.name}` hides MSL's or MLX's", "rename it")
    for record in structure.records:
        if record.name in _TAKEN or record.name in preamble:
            yield report("name-clash", record.line, f"type `{record.name}` hides MSL's or MLX's", "rename it")
    tokens = structure.tokens
    for i in range(1, len(tokens) - 1):
        if tokens[i - 1].kind != "name" or tokens[i - 1].text in ("return", "else", "case"):
            continue
        if tokens[i + 1].text not in ("=", ";", "[", ",", ")"):
            continue
        name = tokens[i].text
        if name in _NEVER_LOCALS:
            hint = "rename it: MLX takes the word for a kernel attribute"
            yield report("name-clash", tokens[i], f"`{name}` is the name of a kernel attribute", hint)
        elif name in _TAKEN and structure.scopes[i] == "function" and tokens[i + 1].text in ("=", ";", "["):
            yield report("name-clash", tokens[i], f"`{name}` is a word of MSL", "rename it")
