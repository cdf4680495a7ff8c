"""The page that explains the format names everything that the registries have."""

import re

import pytest

from mlx_tx_conformance.call import LAYOUTS
from mlx_tx_conformance.data import spec_root
from mlx_tx_conformance.spec.arithmetic import FUNCTIONS
from mlx_tx_conformance.spec.check_signatures import CHECKS, FIGURES
from mlx_tx_conformance.spec.grammar import CASE_KEYS, CLAUSE_KEYS, read_clause
from mlx_tx_conformance.spec.ops import DIM_HELP, DIMS, OPS
from mlx_tx_conformance.spec.reader import parse
from mlx_tx_conformance.spec.recipes import INDICES, MODIFIERS, RECIPES

from .conftest import faults, indented

TEXT = (spec_root() / "notation.md").read_text(encoding="utf-8")
WORDS = {
    word
    for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.S))
    for word in re.findall(r"\w+", span)
}
BLOCKS = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.S)


@pytest.mark.parametrize(
    "names",
    [DIM_HELP, INDICES, OPS, CHECKS, RECIPES, MODIFIERS, LAYOUTS, list(CASE_KEYS), FUNCTIONS],
    ids=["dims", "indices", "ops", "checks", "recipes", "modifiers", "layouts", "keys", "functions"],
)
def test_every_name_is_explained(names):
    assert sorted(set(names) - WORDS) == []


@pytest.mark.parametrize("op", OPS)
def test_every_argument_of_an_op_is_in_its_row(op):
    (row,) = (line for line in TEXT.splitlines() if line.startswith(f"| `{op}` |"))
    base = "attention" if op == "attention_gradients" else op
    above = "".join(line for line in TEXT.splitlines() if line.startswith(f"| `{base}` |"))
    known = set(re.findall(r"\w+", row + above))
    assert sorted(set(OPS[op].names) - known) == []
    assert set(OPS[op].outputs) <= known


def test_every_figure_and_key_is_there():
    assert all(figure in TEXT for figure in FIGURES)
    assert all(f"{key}:" in BLOCKS[0] for key in CLAUSE_KEYS)


def test_the_example_of_a_clause_loads():
    clause, findings = read_clause(parse(BLOCKS[0], "spec/mask/msk-1.yaml"), "mask")
    assert findings == []
    assert clause.id == "MSK-1"


def test_the_examples_of_cases_load():
    assert len(BLOCKS) == 5
    for block in BLOCKS[1:]:
        assert faults("- id: a\n" + indented(block)) == []


def test_the_defaults_of_the_dims_are_as_written():
    for name, default in DIMS.items():
        (row,) = (line for line in TEXT.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1])
        names = re.findall(r"`(\w+)`", row.split("|")[1])
        defaults = [part.strip(" `") for part in row.split("|")[3].split(",")]
        assert defaults[names.index(name)] == default
