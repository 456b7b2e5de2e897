"""Losses and mining strategies by name and configuration."""

from pathlib import Path

import pytest

from keras_dml import losses
from keras_dml.losses import mining
from keras_dml.losses.distances import DISTANCES


def test_name_with_arguments_leaves_the_dict_alone():
    config = {"name": "margin", "beta": 1.1, "mining": {"name": "hard"}}
    loss = losses.get(config)
    assert loss.beta == 1.1
    assert loss.miner == mining.get("hard")
    assert config == {"name": "margin", "beta": 1.1, "mining": {"name": "hard"}}


def test_arguments_that_are_missing_are_named():
    with pytest.raises(ValueError, match="`num_classes` of loss 'proxy_anch"):
        losses.CrossBatchMemory("proxy_anchor", size=8)
    with pytest.raises(ValueError, match="`num_classes` of loss 'proxy_anch"):
        losses.get({"contrastive": 1.0, "proxy_anchor": 0.5})


def test_unknown_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'margin'"):
        losses.get("marign")
    with pytest.raises(ValueError, match="Did you mean 'multi_similarity'"):
        losses.get("multisimilarity")
    with pytest.raises(ValueError, match="Known are: .*triplet"):
        losses.get("zzz")


def test_unknown_argument_names_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'beta'"):
        losses.get({"name": "margin", "betta": 1.1})
    with pytest.raises(ValueError, match="Did you mean 'cutoff'"):
        mining.get({"name": "distance_weighted", "cut_off": 0.4})
    with pytest.raises(ValueError, match="Did you mean 'semihard'"):
        losses.TripletLoss(mining="semi-hard")


OWN = """
from keras_dml.losses import LOSSES, TripletLoss

@LOSSES.register("mine", "a loss of the user's own")
class MyLoss(TripletLoss): ...
"""


def test_a_loss_of_the_users_own_is_named_with_its_module(
    tmp_path, monkeypatch
):
    (tmp_path / "module_with_a_loss.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(losses.LOSSES, "_entries", dict(losses.LOSSES._entries))
    loss = losses.get({"name": "module_with_a_loss:mine", "margin": 0.3})
    assert type(loss).__name__ == "MyLoss"
    assert losses.get("mine").margin == 0.2
    with pytest.raises(ValueError, match="'no_such_module'.*PYTHONPATH"):
        losses.get("no_such_module:mine")
    with pytest.raises(ValueError, match="Did you mean 'mine'"):
        losses.get("module_with_a_loss:mime")


@pytest.mark.parametrize("identifier", [None, 3, {"beta": 1.0}])
def test_nonsense(identifier):
    with pytest.raises(ValueError, match="`loss` must be"):
        losses.get(identifier)
    with pytest.raises(ValueError, match="`mining` must be"):
        mining.get(identifier)


def test_a_class_is_no_loss():
    with pytest.raises(ValueError, match="`loss` must be"):
        losses.get(losses.TripletLoss)


DOCS = Path(__file__).parents[2] / "docs/losses/README.md"


def of_this_package(registry):
    """Not what a page of the docs has registered in this process."""
    for name, entry in registry.items():
        value = getattr(entry.value, "func", entry.value)  # of a partial
        if value.__module__.startswith("keras_dml."):
            yield name, entry


def rows():
    """What the tables of docs/losses/README.md must say."""
    for name, entry in of_this_package(losses.LOSSES):
        cells = [name, f"`{entry.value.__name__}`", entry.definition]
        yield [*cells, cited(entry.paper)]
    for name, entry in of_this_package(losses.COMPOSITES):
        cells = [name, f"`{entry.value.__name__}`", entry.definition]
        yield [*cells, cited(entry.paper)]
    for name, entry in of_this_package(mining.MINING):
        yield [name, entry.definition, cited(entry.paper)]
    for registry in (DISTANCES, losses.REDUCTIONS):
        for name, entry in of_this_package(registry):
            yield [name, entry.definition]


def cited(paper):
    if paper is None:
        return ""
    text = f"{paper.authors}, {paper.venue}"
    return f"[{text}]({paper.url})" if paper.url else text


def test_the_docs_list_what_is_registered():
    written = DOCS.read_text().splitlines()
    for cells in rows():
        assert f"| {' | '.join(cells)} |" in written


def test_registered_losses_are_attributes_and_have_a_paper():
    for _, entry in of_this_package(losses.LOSSES):
        assert getattr(losses, entry.value.__name__) is entry.value
        assert entry.paper is not None
        assert entry.definition
