"""The code of docs/migration/ runs, also where no peer is installed."""

import numpy as np
import pytest

import keras_dml as dml
from tests.losses.oracle import value_and_gradient
from tests.parity.tables import FOLDER, code, rows

NAMES = {"dml": dml, "np": np, "mining": dml.losses.mining, "C": 10, "D": 8}


def cells() -> list[str]:
    text = "\n".join(page.read_text() for page in FOLDER.glob("*.md"))
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    found = [x.strip("| ") for line in tables for x in line.split(" | ")]
    return [cell for cell in found if cell.startswith("`dml.losses.")]


def test_losses_can_be_made() -> None:
    found = [cell for cell in cells() if "momentum" not in cell]
    assert len(found) > 30
    for cell in found:
        assert callable(eval(code(cell), dict(NAMES))), cell  # noqa: S307


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
