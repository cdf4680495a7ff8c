"""The checks as the spec knows them, held to the functions that carry them out."""

import ast
from pathlib import Path

import mlx_tx_conformance
from mlx_tx_conformance.spec.check_signatures import CHECKS, TRANSFORMS
from mlx_tx_conformance.spec.ops import OPS

PACKAGE = Path(mlx_tx_conformance.__file__).parent / "checks"
# The word `with` cannot be an argument's name in Python: it comes in through the keyword rest.
REST = {"agrees": {"with"}, "figure_ratio": {"with"}, "same_for": set()}


def _functions():
    """Name, arguments and required arguments of every registered function, read without importing it."""
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(getattr(d, "id", "") == "check" for d in node.decorator_list):
                arguments = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)][1:]
                required = arguments[: len(node.args.args) - 1 - len(node.args.defaults)]
                yield node.name.rstrip("_"), set(arguments), set(required), node.args.kwarg is not None


def test_every_check_is_a_function_of_the_same_arguments():
    functions = {name: (arguments, required, rest) for name, arguments, required, rest in _functions()}
    assert functions.keys() == CHECKS.keys()
    for name, (arguments, required, rest) in functions.items():
        signature = CHECKS[name]
        assert set(signature.arguments) == arguments | REST.get(name, set()), name
        assert {a.name for a in signature.arguments.values() if a.required} == required, name
        assert rest == (name in REST), name


def test_the_transforms_are_those_that_exist():
    tree = ast.parse((PACKAGE / "transforms.py").read_text(encoding="utf-8"))
    public = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}
    assert set(TRANSFORMS) <= public
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "TRANSFORMS"
    )
    listed = {name.id for name in ast.walk(table) if isinstance(name, ast.Name)} & public
    assert set(TRANSFORMS) == listed


def test_every_check_says_what_it_does():
    for signature in CHECKS.values():
        assert signature.help.endswith(".")
        assert all(argument.help for argument in signature.arguments.values())
        assert set(signature.ops) <= set(OPS)
