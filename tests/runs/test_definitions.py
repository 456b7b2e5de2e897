"""Every number has a definition, in a line and in the documentation."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from keras_dml.evaluation import METRICS
from keras_dml.runs.outcome import Outcome, definition

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


OURS = [
    name
    for name, entry in METRICS.items()
    if entry.value.__module__.startswith("keras_dml.")
]


def test_the_reference_defines_every_metric() -> None:
    page = PAGE.read_text()
    for name in OURS:
        value = METRICS[name].value
        definition = re.escape(METRICS[name].definition)
        section = rf"### `{name}`\n\n{definition}[. (].*\n\n::: "
        assert re.search(section, page, re.I), name
        assert f"::: {value.__module__}.{value.__name__}\n" in page


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


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(1.4, "1 image"), (0.3, "0 images"), (1.6, "2 images"), (90, "90 images")],
)
def test_speeds_are_counted_in_images(speed, expected) -> None:
    run = SimpleNamespace(seconds={"training": 2.0}, images_per_second=speed)
    assert Outcome.cost_lines(run)[-1] == f"{expected} per second"
