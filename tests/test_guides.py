"""The guide to methods says what docs/results.md says."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
GUIDE = (DOCS / "guides" / "choosing_a_method.md").read_text()
RESULTS = (DOCS / "results.md").read_text()
COSTS = (DOCS / "methods" / "README.md").read_text()

METHODS = {
    "baseline": "baseline",
    "attentive grouping": "attentive-grouping",
    "ABE": "abe",
    "DiVA": "diva",
    "DCML": "dcml",
    "divide and conquer": "divide-and-conquer",
}
TABLES = {"glyphs": "## glyphs: tuned", "caltech101": "### Frozen"}
"""Headings of the results above the tables that the guide repeats."""

SETS = tuple(TABLES)
COLUMNS = 5


def row_of(table: str, name: str) -> list[str]:
    """Cells of the first row of a table that begins with a name."""
    line = next(x for x in table.splitlines() if x.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def numbers(cell: str) -> list[float]:
    found = re.findall(r"[+−-]?\d+\.\d+", cell)
    return [float(x.replace("−", "-")) for x in found]


def measured(dataset: str, method: str) -> tuple[list[float], list[float]]:
    """MAP@R with its half interval; difference with its interval.

    Empty where the method has no row, as ABE on a frozen network.
    """
    after = RESULTS[RESULTS.index(TABLES[dataset]) :]
    command = after.partition("```console")[2].partition("```")[0]
    assert "--seeds 5" in command
    table = re.search(r"^\| recipe .*?\n\n", after, re.M | re.S)
    assert table is not None
    if f"| {method} |" not in table[0]:
        return [], []
    mean, _, difference, interval, *_ = row_of(table[0], method)
    return numbers(mean), numbers(difference + interval)


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_numbers_are_those_of_the_results(method: str, dataset: str) -> None:
    cells = row_of(GUIDE, method)
    assert len(cells) == COLUMNS
    first = 2 * SETS.index(dataset)
    mean, difference = measured(dataset, METHODS[method])
    assert numbers(cells[first]) == pytest.approx(mean, abs=5.1e-4)
    said = cells[first + 1]
    assert numbers(said) == pytest.approx(difference, abs=5.1e-4)
    excludes_zero = bool(difference) and difference[1] * difference[2] > 0
    assert ("**" in said) == excludes_zero


@pytest.mark.parametrize("method", METHODS)
def test_costs_are_those_of_the_methods(method: str) -> None:
    step = row_of(COSTS, METHODS[method].replace("-", "_"))
    assert row_of(GUIDE, method)[-1] == step[2]
