"""A text with its tokens and structure, and the word rules that apply to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import declarations, language, names
from .findings import Finding, Severity
from .structure import Structure, analyse
from .tokens import Token, blank_comments, tokenize

# MLX's own files write unsuffixed literals, and some return early; kernels of mx.fast.metal_kernel must not.
_WARNED_IN_FILES = frozenset({"unsuffixed-literal", "divergent-barrier"})


@dataclass(frozen=True)
class Source:
    """A piece of MSL: ``where`` and ``first_line`` place it in a file; ``body_of`` names the kernel it is the body of.

    ``run_time`` is true for text that MLX compiles at run time, where only system headers exist.
    """

    text: str
    where: str
    first_line: int
    tokens: list[Token]
    structure: Structure
    run_time: bool

    def report(
        self,
        rule: str,
        at: Token | int,
        message: str,
        hint: str = "",
        *,
        severity: Severity = "error",
        instance: str = "",
    ) -> Finding:
        """A finding at a token or a line of this text (0: no line); what is a matter of style in files is a warning."""
        if not self.run_time and rule in _WARNED_IN_FILES:
            severity = "warning"
        line = at if isinstance(at, int) else at.line
        place = line + self.first_line - 1 if line else 0
        return Finding(self.where, place, rule, message, hint, severity, instance)


def read_source(text: str, where: str, *, first_line: int = 1, body_of: str = "", run_time: bool = False) -> Source:
    """Tokens and structure of ``text``."""
    tokens = tokenize(text)
    return Source(text, where, first_line, tokens, analyse(tokens, body_of), run_time)


def word_rules(source: Source, declared: frozenset[str]) -> Iterator[Finding]:
    """Every rule that needs no compiler. ``declared``: names that this text or one before it declares."""
    report: Callable[..., Finding] = source.report
    structure = source.structure
    clean = blank_comments(source.text)
    yield from language.characters(source.text, clean, report, comments_too=source.run_time)
    if structure.unbalanced is not None:
        yield report("unbalanced", structure.unbalanced, f"`{structure.unbalanced.text}` has no partner")
        return
    yield from language.words(source.tokens, report)
    yield from language.inheritance(structure, report)
    yield from declarations.threadgroup_rules(structure, report)
    yield from declarations.member_rules(structure, report)
    yield from declarations.static_rules(structure, report)
    yield from declarations.recursion(structure, report)
    yield from names.check_names(source.tokens, declared, report)
    yield from names.clashes(structure, report)
