"""Losses and mining strategies by name and configuration."""

import pytest

from keras_dml import losses
from keras_dml.losses import mining


def test_name_with_arguments_leaves_the_dict_alone():
    config = {"name": "margin", "beta": 1.1, "mining": {"name": "hard"}}
    loss = losses.get(config)
    assert loss.beta == 1.1
    assert loss.miner == mining.get("hard")
    assert config == {"name": "margin", "beta": 1.1, "mining": {"name": "hard"}}


def test_missing_arguments_are_named():
    with pytest.raises(ValueError, match="`num_classes` of loss 'proxy_anch"):
        losses.CrossBatchMemory("proxy_anchor", size=8)
    with pytest.raises(ValueError, match="`num_classes` of loss 'proxy_anch"):
        losses.get({"contrastive": 1.0, "proxy_anchor": 0.5})


OWN = """
from keras_dml.losses import LOSSES, TripletLoss

@LOSSES.register("mine", "a loss of the user's own")
class MyLoss(TripletLoss): ...
"""


def test_custom_loss_is_imported_from_a_module(tmp_path, monkeypatch):
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


@pytest.mark.parametrize(
    "identifier", [None, 3, {"beta": 1.0}, losses.TripletLoss]
)
def test_unfit_identifiers_raise(identifier):
    with pytest.raises(ValueError, match="`loss` must be"):
        losses.get(identifier)
    with pytest.raises(ValueError, match="`mining` must be"):
        mining.get(identifier)


def test_registered_losses_are_attributes_with_a_paper():
    for entry in losses.LOSSES.values():
        if not entry.value.__module__.startswith("keras_dml."):
            continue  # A page of the docs registers losses of its own.
        assert getattr(losses, entry.value.__name__) is entry.value
        assert entry.paper is not None
        assert entry.definition
