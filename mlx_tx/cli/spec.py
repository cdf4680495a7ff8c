"""``mlx-tx spec``: read the clauses, check them, find what they leave out, begin a new one. Imports no MLX."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from .common import UsageError, add_clauses, add_spec, load, spec_folder

MAPPINGS = frozenset({"dims", "call", "let", "inputs", "layout", "over"})
HELP = "list, show, lint and extend the clauses"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions of the command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="clauses with their number of cases; --cases for the cases")
    add_clauses(listing)
    listing.add_argument("--cases", action="store_true", help="every case instead of the clauses")
    listing.add_argument("--format", choices=("pretty", "json"), default="pretty")
    show = actions.add_parser("show", help="one clause or one case, with all that it says")
    show.add_argument("id", metavar="ID", help="a clause (MSK-1), a case (MSK-1/equals-oracle) or one of its forms")
    lint = actions.add_parser("lint", help="every fault with file and line; exit 1 where there is one")
    lint.add_argument("--format", choices=("pretty", "json"), default="pretty")
    new = actions.add_parser("new", help="begin a clause (MSK-9) or a case of one that is there (MSK-1/my-case)")
    new.add_argument("id", metavar="ID")
    new.add_argument("--title", default="", help="of a new clause")
    new.add_argument("--subject", default="", help="folder of a new clause (default: that of its family)")
    words = actions.add_parser("words", help="what a case may say: checks, ops, recipes, designs")
    words.add_argument("kind", nargs="?", choices=tuple(WORDS), help="only these (default: all)")
    coverage = actions.add_parser("coverage", help="what the spec leaves out; exit 1 where there is a gap")
    coverage.add_argument("--scope", default="", help="attention, model, kernel or checkpoint (default: all)")
    coverage.add_argument("--format", choices=("pretty", "json", "md"), default="pretty")
    for action in (listing, show, lint, new, coverage):
        add_spec(action)


def run(args: argparse.Namespace) -> int:
    """Do one action."""
    actions = {"list": _list, "show": _show, "lint": _lint, "new": _new, "words": _words, "coverage": _coverage}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from mlx_tx_conformance.spec import SpecError

    _, spec = load(args.spec)
    try:
        cases = spec.select(args.clause)
    except SpecError as error:
        raise UsageError(str(error)) from error
    if args.cases:
        rows = [{"case": case.id, "clause": case.clause, "dtype": case.dtype, "check": case.check} for case in cases]
        lines: Iterable[str] = (case.id for case in cases)
    else:
        counts: dict[str, int] = {}
        for case in cases:
            counts[case.clause] = counts.get(case.clause, 0) + 1
        clauses = [clause for clause in spec.clauses if clause.id in counts]
        rows = [{"clause": c.id, "title": c.title, "cases": counts[c.id], "file": c.file} for c in clauses]
        lines = [f"{c.id:9} {counts[c.id]:5}  {c.title}" for c in clauses]
        lines = [*lines, f"{len(clauses)} clauses, {len(cases)} cases"]
    print(json.dumps(rows, indent=2) if args.format == "json" else "\n".join(lines))
    return 0


def _show(args: argparse.Namespace) -> int:
    from mlx_tx_conformance.spec import SpecError

    _, spec = load(args.spec)
    clause_id, slash, _ = args.id.partition("/")
    try:
        clause = spec.clause(clause_id)
        cases = spec.select([args.id]) if slash else spec.cases_of(clause)
    except SpecError as error:
        raise UsageError(str(error)) from error
    print(f"{clause.id}: {clause.title}  ({clause.file}:{clause.line})\n")
    print(clause.text.strip())
    print("\nrests on " + "; ".join(map(str, clause.source)))
    if not slash:
        print(f"\n{len(cases)} cases:")
        for name in dict.fromkeys(case.name for case in cases):
            forms = [case for case in cases if case.name == name]
            print(f"  {clause.id}/{name}  {forms[0].check}, {len(forms)} form{'s' if len(forms) > 1 else ''}")
    elif len(cases) > 1:
        print(f"\n{len(cases)} cases:")
        print("\n".join(f"  {case.id}" for case in cases))
    else:
        print("\n" + "\n".join(_case_lines(cases[0])))
    return 0


def _case_lines(case: Any) -> list[str]:
    lines = [f"{case.id}  ({case.file}:{case.line})"]
    for name in ("note", "source", "dims", "dtype", "call", "let", "inputs", "layout", "steps", "over", "path", "seed"):
        value = getattr(case, name)
        if value:
            text = "; ".join(map(str, value)) if name == "source" else str(dict(value) if name in MAPPINGS else value)
            lines.append(f"  {name:7} {text}")
    arguments = f" {dict(case.check_args)}" if case.check_args else ""
    return [*lines, f"  {'check':7} {case.check}{arguments}"]


def _lint(args: argparse.Namespace) -> int:
    from mlx_tx_conformance.spec.lint import lint

    findings = lint(spec_folder(args.spec))
    if args.format == "json":
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(finding)
        print("the spec is in order" if not findings else f"{len(findings)} finding{'s' if len(findings) > 1 else ''}")
    return 1 if findings else 0


def _coverage(args: argparse.Namespace) -> int:
    from mlx_tx_conformance.spec.coverage import coverage

    _, spec = load(args.spec)
    try:
        found = coverage(spec, args.scope)
    except ValueError as error:
        raise UsageError(str(error)) from error
    print(found.render(args.format).rstrip("\n"))
    return 0 if found.complete else 1


def _checks() -> Iterable[tuple[str, str]]:
    from mlx_tx_conformance.spec.check_signatures import CHECKS

    for check in CHECKS.values():
        arguments = ", ".join(a.name if a.required else f"{a.name}?" for a in check.arguments.values())
        yield f"{check.name}({arguments})", check.help


def _ops() -> Iterable[tuple[str, str]]:
    from mlx_tx_conformance.spec.ops import OPS

    for op in OPS.values():
        yield f"{op.name}({', '.join(op.names)})", op.help


def _recipes() -> Iterable[tuple[str, str]]:
    from mlx_tx_conformance.spec.recipes import MODIFIERS, RECIPES

    yield from ((name, words) for name, (_, words) in (*RECIPES.items(), *MODIFIERS.items()))


def _designs() -> Iterable[tuple[str, str]]:
    from mlx_tx_conformance.inputs import DESIGNS

    yield from ((name, design.shows) for name, design in DESIGNS.items())


WORDS = {"checks": _checks, "ops": _ops, "recipes": _recipes, "designs": _designs}


def _words(args: argparse.Namespace) -> int:
    for kind in [args.kind] if args.kind else WORDS:
        print(f"{kind}:")
        for name, words in WORDS[kind]():
            print(f"  {name}\n      {words}")
    return 0


def _new(args: argparse.Namespace) -> int:
    from mlx_tx_conformance.spec import SpecError
    from mlx_tx_conformance.spec.new import new_case, new_clause

    _, spec = load(args.spec)
    clause, slash, name = args.id.partition("/")
    try:
        if slash:
            path, line = new_case(spec, clause, name)
        else:
            path, line = new_clause(spec, clause, args.subject or _subject(spec, clause), args.title or "A few words")
    except (SpecError, OSError) as error:
        raise UsageError(str(error)) from error
    rests = "" if slash else ", list in sources.yaml the statement, paper or report that it rests on"
    print(f"{path}:{line}: fill in the new {'case' if slash else 'clause'}{rests}, then run mlx-tx spec lint")
    return 0


def _subject(spec: Any, clause: str) -> str:
    """The folder of a new clause's family."""
    family = clause.rpartition("-")[0]
    for there in spec.clauses:
        if there.id.rpartition("-")[0] == family:
            return str(there.subject)
    raise UsageError(f"no clause of the family {family or clause!r} is there; say --subject FOLDER")
