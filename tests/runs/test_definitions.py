"""Every number has a definition, in a line and in the documentation."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_dml.evaluation import METRICS
from keras_dml.runs.outcome import Outcome, definition, definitions

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


OURS = [
    name
    for name, entry in METRICS.items()
    if entry.value.__module__.startswith("keras_dml.")
]


def test_every_metric_has_a_section() -> None:
    assert {re.sub("[^a-z0-9_-]", "", x) for x in OURS} <= set(anchors(PAGE))


def test_the_table_of_the_docs_is_that_of_the_registry() -> None:
    rows = [
        f"| [`{name}`](#{re.sub('[^a-z0-9_-]', '', name)}) "
        f"| {METRICS[name].definition} | {paper(name)} |"
        for name in OURS
    ]
    assert "\n".join(rows) in PAGE.read_text(), "\n".join(rows)


def paper(name: str) -> str:
    found = METRICS[name].paper
    if found is None:
        return ""
    return f"[{found.authors}, {found.venue}]({found.url})"


def test_definitions_name_the_number() -> None:
    assert "among the 1000 nearest" in definition("recall@1000")
    assert "whose nearest neighbor is of" in definition("recall@1")
    assert "whose nearest neighbor is of" in definition("macro/recall@1")
    assert "divided by 5 or by the number of" in definition("map@5")
    assert "more than 0.9 of" in definition("pcf@0.9")


def test_levels_and_prefixes_share_the_definition() -> None:
    assert definition("64/species/recall@3") == definition("recall@3")
    assert definition("64/macro/recall@3").startswith("mean over classes: ")


def test_metrics_of_others() -> None:
    assert "not registered here" in definition("zzz@3")


def test_a_line_for_each_metric() -> None:
    lines = definitions(["map@r", "recall@4"])
    assert [line.partition(":")[0] for line in lines] == ["map@r", "recall@4"]


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(1.4, "1 image"), (0.3, "0 images"), (1.6, "2 images"), (90, "90 images")],
)
def test_speeds_are_counted_in_images(speed, expected) -> None:
    run = SimpleNamespace(seconds={"training": 2.0}, images_per_second=speed)
    assert Outcome.cost_lines(run)[-1] == f"{expected} per second"
