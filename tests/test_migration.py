"""The code of docs/migration/ exists, also where no peer is installed."""

import operator
import re

import numpy as np
import pytest

import keras_dml as dml
from tests.losses.oracle import value_and_gradient
from tests.parity.tables import FOLDER, code, rows

NAMES = {"dml": dml, "np": np, "mining": dml.losses.mining, "C": 10, "D": 8}
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.stem != "README")


def cells() -> list[str]:
    lines = [x for page in PAGES for x in page.read_text().splitlines()]
    tables = [line for line in lines if line.startswith("| ")]
    found = [cell for line in tables for cell in line.split(" | ")]
    found = [cell.strip("| ") for cell in found]
    return [cell for cell in found if cell.startswith("`dml.losses.")]


def test_tables_are_read() -> None:
    assert len(cells()) > 30
    assert len(rows("pytorch_metric_learning.md", "Miners", 3)) > 5


@pytest.mark.parametrize("cell", [x for x in cells() if "momentum" not in x])
def test_losses_can_be_made(cell: str) -> None:
    loss = eval(code(cell), dict(NAMES))  # noqa: S307
    assert callable(loss)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_overview_links_every_page(page) -> None:
    assert f"]({page.name})" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("row", rows("tensorflow_addons.md", "Losses", 3))
def test_rows_of_tensorflow_addons(row) -> None:
    """`tests/losses/test_tfa.py` compares these with its numbers."""
    under_its_name, native = (eval(code(x), dict(NAMES)) for x in row[1:])  # noqa: S307
    labels = np.repeat(np.arange(4), 4)
    x = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
    expected = value_and_gradient(under_its_name, labels, x)
    found = value_and_gradient(native, labels, x)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def pairs_of_names() -> list[tuple[str, str]]:
    """Names of a loss elsewhere, and here, of all tables."""
    found = set()
    for page in PAGES:
        for line in page.read_text().splitlines():
            theirs = re.match(r"\| `(?:tfa\.)?losses\.(\w+)\(", line)
            mine = re.findall(r"dml\.losses\.((?:tfa\.)?\w+)\(", line)
            if theirs and len(mine) == 1:
                found.add((theirs[1], mine[0]))
    return sorted(found)


@pytest.mark.parametrize(("theirs", "mine"), pairs_of_names())
def test_docstrings_name_them_too(theirs: str, mine: str) -> None:
    loss = operator.attrgetter(mine)(dml.losses)
    section = (loss.__doc__ or "").partition("Also known as:")[2]
    name = "tfa.losses." + theirs if mine.startswith("tfa.") else theirs
    assert theirs in section or name in (loss.__doc__ or "")
