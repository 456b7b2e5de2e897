"""The tables of docs/migration/, whose rows the tests run."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "migration"


def rows(page: str, section: str, columns: int = 2) -> list[tuple[str, ...]]:
    """The cells of every row of that many columns in a section of a page."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    cells = [
        tuple(cell.strip() for cell in line.strip("|").split(" | "))
        for line in re.findall(r"^\| (.*) \|$", body, re.M)
    ]
    table_rows = [row for row in cells if len(row) == columns and "`" in row[0]]
    assert table_rows, f"{page} has no such table under {section!r}"
    return table_rows


def code(cell: str) -> str:
    """The code of a cell, which holds nothing else."""
    return re.fullmatch(r"`([^`]+)`", cell)[1]


def blocks(page: str) -> list[str]:
    """The Python of the other library, which `test_docs` does not run."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    return re.findall(r"^```py\n(.*?)^```", text, re.M | re.S)
