"""Every number has a definition, in a line and in the documentation."""

import re
from pathlib import Path

import pytest

from keras_dml.evaluation.names import KNOWN
from keras_dml.runs.definitions import PAGE, definition, definitions, section_of

ROOT = Path(__file__).parents[2]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("metric", KNOWN)
def test_every_metric_has_a_section(metric) -> None:
    page, _, anchor = definition(metric).rpartition("(")[2].partition("#")
    assert page == PAGE
    assert anchor.rstrip(")") in anchors(ROOT / PAGE)


def test_all_k_share_a_section() -> None:
    assert section_of("recall@10") == "recall@k"
    assert section_of("precision@1") == "precision@1"
    assert section_of("map@r") == "map@r"
    assert "#recallk" in definition("recall@1000")
    assert "among the 1000 nearest" in definition("recall@1000")
    assert "over min(5, R)" in definition("map@5")


def test_a_line_for_each_metric() -> None:
    lines = definitions(["map@r", "recall@4"])
    assert [line.partition(":")[0] for line in lines] == ["map@r", "recall@4"]
