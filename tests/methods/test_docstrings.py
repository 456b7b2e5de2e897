"""What the docstrings of methods and samplers say, as their API pages do."""

import inspect
import re
from pathlib import Path

import pytest
from latex2mathml.converter import convert

from keras_dml import data, methods

PAGES = Path(__file__).parents[2] / "docs" / "reference"
SAMPLERS = [
    name
    for name, value in vars(data).items()
    if inspect.isclass(value)
    and issubclass(value, data.Sampler)
    and not inspect.isabstract(value)
]


@pytest.mark.parametrize("name", sorted(methods.METHODS))
def test_methods(name: str) -> None:
    text = inspect.getdoc(methods.METHODS[name].value) or ""
    found = re.findall(r"^\$\$\n(.*?)^\$\$$", text, re.M | re.S)
    assert found
    for equation in found:
        assert "\\" not in convert(" ".join(equation.split())), equation
    link = re.search(r"\]\(([^)]+\.md)\)", text)
    assert link is not None
    assert (PAGES / link[1]).resolve().stem == name
    assert (PAGES / link[1]).exists()


def test_samplers_are_found() -> None:
    assert len(SAMPLERS) >= 6


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name: str) -> None:
    text = inspect.getdoc(getattr(data, name)) or ""
    for section in ("Args", "Raises", "Also known as", "Example"):
        if (name, section) != ("HardClassBalanced", "Example"):
            assert f"\n{section}:\n" in text, section
