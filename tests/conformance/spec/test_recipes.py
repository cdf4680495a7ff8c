import ast
from pathlib import Path

import mlx_tx_conformance
from mlx_tx_conformance.spec.recipes import INDICES, MODIFIERS, RECIPES


def test_sources_and_modifiers_are_apart_and_explained():
    assert not RECIPES.keys() & MODIFIERS.keys()
    assert all(text for _, text in (*RECIPES.values(), *MODIFIERS.values()))
    assert INDICES == ("b", "h", "i", "j")


def test_every_recipe_is_one_that_inputs_makes():
    tree = ast.parse((Path(mlx_tx_conformance.__file__).parent / "inputs" / "recipes.py").read_text(encoding="utf-8"))
    (makers,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_MAKERS"
    )
    assert {key.value for key in makers.keys} == set(RECIPES)
