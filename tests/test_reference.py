"""Pages of losses and methods show what their examples print."""

import json
import runpy
from pathlib import Path

import pytest

from keras_dml import losses

SITE = Path(__file__).parents[1] / "docs/site"
DATA = json.loads((SITE / "reference.json").read_text(encoding="utf-8"))
PLOTTED = [x for x, facts in DATA["losses"].items() if "curves" in facts]


@pytest.fixture(scope="module")
def examples() -> dict:
    return runpy.run_path(str(SITE / "examples.py"))


def check_printed(examples: dict, facts: dict, rel: float) -> None:
    number = float(examples["printed"](facts["code"]))
    assert number == pytest.approx(float(facts["printed"]), rel=rel)


@pytest.mark.parametrize("name", DATA["losses"])
def test_printed_numbers_of_losses_are_current(name, examples) -> None:
    check_printed(examples, DATA["losses"][name], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", DATA["methods"])
def test_printed_numbers_of_methods_are_current(name, examples) -> None:
    check_printed(examples, DATA["methods"][name], rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLOTTED)
def test_plotted_slopes_of_losses_are_current(name, examples) -> None:
    facts = DATA["losses"][name]
    curves, max_slope = examples["slopes"](getattr(losses, facts["class"]))
    assert max_slope == pytest.approx(facts["most"], rel=0.02)
    for curve, expected in zip(curves, facts["curves"], strict=True):
        assert curve == pytest.approx(expected, abs=3)
