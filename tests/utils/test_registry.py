"""Registries: names, nearest names, papers read in docstrings."""

import pytest

from keras_dml.utils.registry import Paper, Registry, cited_paper


@pytest.fixture
def tools() -> Registry:
    registry: Registry = Registry("tool")

    @registry.register("hammer", "drives nails", weight=2)
    def hammer() -> None:
        """A hammer.

        Reference:
            Smith et al., "On Hammers: A Survey", ICT 2019, Eq. 3,
            https://example.org/hammers.pdf; Jones, "Nails", 2020.
        """

    return registry


def test_an_entry_says_what_it_is(tools) -> None:
    entry = tools["hammer"]
    assert entry.name == "hammer"
    assert entry.definition == "drives nails"
    assert entry.details == {"weight": 2}
    assert entry.paper == Paper(
        "On Hammers: A Survey",
        "Smith et al.",
        "ICT 2019",
        "https://example.org/hammers.pdf",
    )


def test_a_given_paper_comes_first(tools) -> None:
    paper = Paper("Saws", "Miller", "2021")

    @tools.register("saw", "cuts", paper)
    def saw() -> None:
        """A saw.

        Reference:
            Smith et al., "On Saws", ICT 2020.
        """

    assert tools["saw"].paper == paper


def test_no_reference_is_no_paper() -> None:
    def plain() -> None:
        """Nothing is cited here."""

    assert cited_paper(plain) is None


def test_an_unknown_name_is_told_the_nearest(tools) -> None:
    with pytest.raises(ValueError, match="no tool 'hamer'.*'hammer'"):
        tools["hamer"]
    assert tools.get("hamer") is None
    assert "hamer" not in tools


def test_a_name_has_one_meaning(tools) -> None:
    with pytest.raises(ValueError, match="'hammer' is already registered"):
        tools.register("hammer", "another")(print)
