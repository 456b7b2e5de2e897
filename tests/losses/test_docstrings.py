"""What the docstring of every loss says: its API page is made of it."""

import inspect
import re

import keras
import numpy as np
import pytest
from latex2mathml.converter import convert

from keras_dml import losses
from keras_dml.losses import distances, mining, regularizers, tfa

LOSSES = {
    entry.value.__name__: entry.value
    for registry in (losses.LOSSES, losses.COMPOSITES)
    for entry in registry.values()
} | {
    f"tfa.{name}": value
    for name, value in vars(tfa).items()
    if inspect.isclass(value)
    and value.__module__ == tfa.__name__
    and not name.startswith("_")
}
MINERS = ("Selection", "MultiSimilarity", "DistanceWeighted")
DISTANCES = {e.value.__name__: e.value for e in distances.DISTANCES.values()}
OTHERS = {
    "nce": losses.nce,
    **{name: getattr(mining, name) for name in MINERS},
    **DISTANCES,
    **{
        name: value
        for name, value in vars(regularizers).items()
        if inspect.isfunction(value)
        and value.__module__ == regularizers.__name__
        and not name.startswith("_")
    },
}
SECTION = re.compile(r"^([A-Z][\w ]+):\n((?:    .*\n|\n)+)", re.M)
PEERS = (
    "pytorch-metric-learning", "TF Similarity", "TensorFlow Addons",
    "sentence-transformers", "Elsewhere", "Here",
)  # fmt: skip
NONE = "None of the compared libraries has an equivalent"


def sections(value) -> dict[str, str]:
    text = inspect.getdoc(value) + "\n"
    return {name: inspect.cleandoc(x) for name, x in SECTION.findall(text)}


def equations(value) -> list[str]:
    text = inspect.getdoc(value)
    shown = re.findall(r"^\$\$\n(.*?)^\$\$$", text, re.M | re.S)
    inline = re.sub(r"^\$\$\n.*?^\$\$$", "", text, flags=re.M | re.S)
    return shown + re.findall(r"\$([^$]+)\$", inline)


@pytest.mark.parametrize("name", [*LOSSES, *OTHERS])
def test_equations_are_drawn(name) -> None:
    value = (LOSSES | OTHERS)[name]
    if name != "Selection":  # It picks, and computes nothing.
        assert re.search(r"\n\n *\$\$\n", inspect.getdoc(value)), name
    for equation in equations(value):
        mathml = convert(" ".join(equation.split()))
        # What it does not know stays as it was written.
        assert "\\" not in mathml, equation
        assert equation.count("{") == equation.count("}")


@pytest.mark.parametrize("name", LOSSES)
def test_labels_are_described(name) -> None:
    assert len(sections(LOSSES[name])["Labels"]) > 10


@pytest.mark.parametrize("name", [*LOSSES, *MINERS, *DISTANCES])
def test_names_elsewhere_are_given(name) -> None:
    """Those of pytorch-metric-learning exist: see tests/parity/."""
    found = sections((LOSSES | OTHERS)[name])["Also known as"]
    if found.startswith(NONE):
        return
    for line in re.findall(r"^- (.*)", found, re.M):
        assert line.split(":")[0] in PEERS, line


@pytest.mark.parametrize("name", LOSSES)
def test_examples_run(name) -> None:
    if name in ("CrossBatchMemory", "MatryoshkaLoss"):
        return  # Theirs make a model.
    labels = np.arange(16) % 4
    names = {
        **vars(losses),
        "keras": keras,
        "np": np,
        "labels": labels,
        "label_sets": np.eye(4, dtype=bool)[labels],
        "embeddings": np.random.default_rng(0).normal(size=(16, 8)),
    }
    example = sections(LOSSES[name])["Example"]
    code = example.strip("`").removeprefix("python\n")
    for line in code.strip().splitlines():
        result = eval(line, names)  # noqa: S307
        if not isinstance(result, losses.MetricLoss):
            assert np.isfinite(result).all()
