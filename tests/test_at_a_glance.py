"""The table at the top of a method's page says what was measured."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from keras_dml import methods

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = (DOCS / "results.md").read_text(encoding="utf-8")
FROZEN, WHOLE, GLYPHS, UPPER, LOWER = (
    (DOCS / "results" / f"{page}.md").read_text(encoding="utf-8")
    for page in (
        "leaderboard",
        "leaderboard_emoji_full",
        "leaderboard_glyphs",
        "leaderboard_emoji_upper",
        "leaderboard_emoji_lower",
    )
)
COSTS = (DOCS / "methods" / "README.md").read_text(encoding="utf-8")
MISSING = "not measured"


def page_of(name: str) -> str:
    return (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")


def row(page: str, head: str) -> list[str]:
    found = re.search(rf"^\| {re.escape(head)} \| (.*) \|$", page, re.M)
    assert found is not None, head
    return found[1].split(" | ")


def measured(recipe: str) -> str:
    """MAP@R in the first table of Caltech-101 that has the recipe."""
    pattern = (
        rf"^\| caltech101-{recipe} \| \d of \d \| [^|]+ \| (\S+) ± (\S+) \|"
    )
    return rounded(re.search(pattern, RESULTS, re.M))


def ranked(recipe: str, leaderboard: str) -> str:
    """MAP@R in a leaderboard, or in a table of what was measured apart."""
    pattern = rf"^\| (?:\d+|–) \| \[{recipe}\]\S+ \| (\S+) ± (\S+) \|"
    return rounded(re.search(pattern, leaderboard, re.M))


def rounded(found: re.Match[str] | None) -> str:
    if found is None:
        return MISSING
    return " ± ".join(f"{float(value):.3f}" for value in found.groups())


@pytest.mark.parametrize("name", sorted(methods.METHODS))
@pytest.mark.parametrize(
    ("head", "found"),
    [
        ("MAP@R, glyphs", partial(ranked, leaderboard=GLYPHS)),
        ("MAP@R, Caltech-101", measured),
        ("MAP@R, emoji (frozen network)", partial(ranked, leaderboard=FROZEN)),
        (
            "MAP@R, emoji (frozen lower layer)",
            partial(ranked, leaderboard=LOWER),
        ),
        ("MAP@R, emoji (upper layers)", partial(ranked, leaderboard=UPPER)),
        ("MAP@R, emoji (whole network)", partial(ranked, leaderboard=WHOLE)),
    ],
)
def test_results(name: str, head: str, found: Callable[[str], str]) -> None:
    expected = [found(name.replace("_", "-"))]
    if name != "baseline":
        expected.append(found("baseline"))
    assert row(page_of(name), head) == expected
    assert expected[-1] != MISSING


@pytest.mark.parametrize("name", sorted(set(methods.METHODS) - {"baseline"}))
def test_costs(name: str) -> None:
    cells = row(COSTS, name)
    page = page_of(name)
    assert row(page, "CPU time of a training step") == [cells[3], "1.00"]
    assert row(page, "memory of a training step") == [cells[5], "1.00"]


@pytest.mark.parametrize("name", sorted(methods.METHODS))
def test_drawing(name: str) -> None:
    found = re.search(
        rf"!\[(.+)\]\(../images/methods/{name}.svg\)", page_of(name)
    )
    assert found is not None and len(found[1]) > 40
    drawing = (DOCS / "images" / "methods" / f"{name}.svg").read_text()
    assert len(drawing) < 30_000
    assert "<title>" in drawing and "prefers-color-scheme:dark" in drawing
