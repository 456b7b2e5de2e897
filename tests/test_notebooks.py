"""The notebooks of docs/ as they are kept; `.ci/notebooks` runs them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ABSOLUTE = re.compile(
    r"(?<![\w.:/])(/(home|root|tmp|work|Users|opt|usr)/|C:\\)"
)

each_notebook = pytest.mark.parametrize(
    "path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS]
)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    content = json.loads(path.read_text())
    return [x for x in content["cells"] if x["cell_type"] == kind]


def texts(path: Path) -> Iterator[str]:
    """Sources, and the outputs that are texts."""
    for kind in ("code", "markdown"):
        yield from ("".join(cell["source"]) for cell in cells(path, kind))
    for cell in cells(path, "code"):
        for output in cell["outputs"]:
            shown = {"text": output.get("text", ""), **output.get("data", {})}
            yield from (
                "".join(text)
                for name, text in shown.items()
                if not name.startswith("image/")
            )


def test_there_are_four() -> None:
    assert len(NOTEBOOKS) == 4


@each_notebook
def test_is_small(path: Path) -> None:
    assert path.stat().st_size < 500_000


@each_notebook
def test_ran_from_the_first_cell_to_the_last(path: Path) -> None:
    code = cells(path, "code")
    ran = [cell["execution_count"] for cell in code]
    assert ran == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert "stream" in {output["output_type"] for output in outputs}
    assert not [x for x in outputs if x["output_type"] == "error"]
    assert not [x for x in outputs if x.get("name") == "stderr"]


@each_notebook
def test_has_a_figure_or_a_picture(path: Path) -> None:
    kinds = {
        kind
        for cell in cells(path, "code")
        for output in cell["outputs"]
        for kind in output.get("data", {})
    }
    assert kinds & {"image/png", "image/jpeg"}


@each_notebook
def test_pictures_have_a_text(path: Path) -> None:
    """The site shows it to those who do not see them."""
    for cell in cells(path, "code"):
        kinds = {
            x for output in cell["outputs"] for x in output.get("data", {})
        }
        if any(kind.startswith("image/") for kind in kinds):
            assert len(cell["metadata"]["alt"]) > 30, "".join(cell["source"])


@each_notebook
def test_names_no_folder_of_who_ran_it(path: Path) -> None:
    assert not [text for text in texts(path) if ABSOLUTE.search(text)]


def test_the_server_says_where_it_listens() -> None:
    code = cells(FOLDER / "from_run_to_server.ipynb", "code")
    outputs = [output for cell in code for output in cell["outputs"]]
    printed = ["".join(x.get("text", "")) for x in outputs]
    assert [text for text in printed if "http://" in text]


@each_notebook
def test_links_lead_somewhere(path: Path) -> None:
    for cell in cells(path, "markdown"):
        for link in re.findall(r"\]\(([^)#:]+)\)", "".join(cell["source"])):
            assert (FOLDER / link).exists(), link


def test_readme_lists_all() -> None:
    page = (FOLDER / "README.md").read_text()
    assert {f"({path.name})" in page for path in NOTEBOOKS} == {True}
