"""The site has every page and every public name; `.ci/site` builds it."""

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml

DOCS = Path(__file__).parents[1] / "docs"
CONFIG = yaml.safe_load((DOCS / "site" / "mkdocs.yml").read_text())


def pages(entry: object) -> list[str]:
    """The pages of an entry of the menu."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages(part)]


MENU = pages(CONFIG["nav"])


def test_every_page_is_once_in_the_menu() -> None:
    files = [*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    written = [x.relative_to(DOCS).as_posix() for x in files]
    assert sorted(MENU) == sorted(written)


@pytest.mark.parametrize("name", sorted(DOCS.glob("images/*")), ids=str)
def test_images_are_small(name: Path) -> None:
    assert name.stat().st_size < 200_000


def test_charts_show_the_tables_of_the_results() -> None:
    charts = runpy.run_path(str(DOCS / "site" / "charts.py"))
    drawn = charts["drawn"]()
    counts = [len(chart.rows) for chart in drawn.values()]
    assert counts == [6, 7, 6, 8, 11, 18, 19, 7, 15, 18]
    for file, chart in drawn.items():
        kept = (DOCS / "images" / file).read_text()
        assert kept == charts["svg"](chart), "run docs/site/charts.py"


def test_leaderboards_are_those_of_their_journals() -> None:
    """Made again from what every run of the benchmark reached."""
    boards = runpy.run_path(str(DOCS / "site" / "leaderboards.py"))
    pages = "".join(path.read_text() for path in boards["PAGES"])
    published = {path.name for path in boards["JOURNALS"].iterdir()}
    assert set(re.findall(r"\(journals/(\S+)\)", pages)) == published
    for path in boards["PAGES"]:
        page = path.read_text()
        assert boards["written"](page) == page, "run docs/site/leaderboards.py"


@pytest.mark.parametrize(
    "journal", sorted(DOCS.glob("results/journals/*.jsonl")), ids=str
)
def test_journals_have_all_seeds(journal: Path) -> None:
    entries = [json.loads(x) for x in journal.read_text().splitlines()]
    seeds: dict[str, list[int]] = {}
    for entry in entries:
        assert entry["error"] is None
        seeds.setdefault(entry["recipe"], []).append(entry["seed"])
    assert all(sorted(x) == [0, 1, 2, 3, 4] for x in seeds.values())
