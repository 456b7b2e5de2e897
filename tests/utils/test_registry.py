"""Registries: names, nearest names, papers read in docstrings."""

import re
from pathlib import Path

import pytest

import keras_dml as dml
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


def test_entry_holds_name_definition_and_paper(tools) -> None:
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


def test_given_paper_precedes_the_docstring(tools) -> None:
    paper = Paper("Saws", "Miller", "2021")

    @tools.register("saw", "cuts", paper)
    def saw() -> None:
        """A saw.

        Reference:
            Smith et al., "On Saws", ICT 2020.
        """

    assert tools["saw"].paper == paper


def test_docstring_without_a_reference_has_no_paper() -> None:
    assert cited_paper(test_docstring_without_a_reference_has_no_paper) is None


def test_names_are_unique_and_unknown_ones_get_a_suggestion(tools) -> None:
    with pytest.raises(ValueError, match="no tool 'hamer'.*'hammer'"):
        tools["hamer"]
    assert tools.get("hamer") is None
    assert "hamer" not in tools
    with pytest.raises(ValueError, match="'hammer' is already registered"):
        tools.register("hammer", "another")(print)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("losses.TripletMarginLoss", "losses.TripletLoss here"),
        ("losses.TripletSemiHardLoss", "losses.TripletLoss here"),
        ("losses.MultipleNegativesRankingLoss", "NPairLoss or .*NTXentLoss"),
        ("losses.InfoNCE", "losses.NTXentLoss here"),
        ("losses.TripletLos", "Did you mean 'TripletLoss'"),
        ("TripletLoss", "Use keras_dml.losses.TripletLoss"),
        ("miners", "losses.mining here"),
        ("samplers", "keras_dml.data here"),
        ("SimilarityModel", "keras_dml.MetricModel here"),
        ("data.MPerClassSampler", "data.ClassBalanced here"),
        ("search.InferenceModel", "search.Index here"),
        ("callbacks.EvalCallback", "callbacks.RetrievalEvaluation here"),
        ("losses.mining.DistanceWeightedMiner", "mining.DistanceWeighted here"),
        ("losses.Zebra", "no attribute 'Zebra'.$"),
    ],
)
def test_names_of_other_libraries_get_our_names(name, ours) -> None:
    *parts, last = name.split(".")
    module = dml
    for part in parts:
        module = getattr(module, part)
    with pytest.raises(AttributeError, match=ours):
        getattr(module, last)


def test_losses_of_the_migration_pages_get_our_names() -> None:
    pages = Path(__file__).parents[2] / "docs" / "migration"
    row = re.compile(
        r"^\| `losses\.(\w+)\([^[{\n]*?`dml\.losses\.(\w+)\(", re.M
    )
    answers: dict[str, set[str]] = {}
    for page in pages.glob("*.md"):
        for theirs, ours in row.findall(page.read_text()):
            if theirs not in vars(dml.losses):
                answers.setdefault(theirs, set()).add(rf"\.{ours}\b")
    assert len(answers) > 10
    for theirs, ours in answers.items():
        with pytest.raises(AttributeError, match="|".join(ours)):
            getattr(dml.losses, theirs)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("triplet_margin", "'triplet'"),
        ("xbm", "'cross_batch_memory'"),
        ("info_nce", "'nt_xent'"),
        ("multiple_negatives_ranking", "'nt_xent' or 'n_pair'"),
    ],
)
def test_loss_of_another_library_gets_our_name(name, ours) -> None:
    with pytest.raises(ValueError, match="Did you mean 'nt_xent'"):
        dml.losses.get("NTXentLoss")
    with pytest.raises(ValueError, match=f"{name}', which is {ours} here"):
        dml.losses.get(name)
    with pytest.raises(ValueError, match=f"which is {ours} here"):
        dml.methods.baseline(loss={"name": name})
