"""The code of docs/migration/ runs, also where no peer is installed."""

import numpy as np

import keras_dml as dml
from tests.parity.tables import FOLDER, code

NAMES = {"dml": dml, "np": np, "mining": dml.losses.mining, "C": 10, "D": 8}


def cells() -> list[str]:
    text = "\n".join(page.read_text() for page in FOLDER.glob("*.md"))
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    all_cells = [x.strip("| ") for line in tables for x in line.split(" | ")]
    return [cell for cell in all_cells if cell.startswith("`dml.losses.")]


def test_losses_of_the_migration_page_can_be_built() -> None:
    loss_cells = [cell for cell in cells() if "momentum" not in cell]
    assert len(loss_cells) > 30
    for cell in loss_cells:
        assert callable(eval(code(cell), dict(NAMES))), cell  # noqa: S307
