"""Uploads to a stand-in of the Hub, from which Keras loads."""

import shutil
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import yaml

import keras_dml as dml
from keras_dml.evaluation import bootstrap
from keras_dml.runs.folder import load_model, load_outcome


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Folders of repositories, and the arguments of calls."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    stand_in = SimpleNamespace(folder=tmp_path / "hub", calls=[])

    class Api:
        def __init__(self, token=None) -> None:
            stand_in.calls.append(("token", token))

        def create_repo(self, repo_id, *, private, exist_ok) -> None:
            stand_in.calls.append((repo_id, private, exist_ok))

        def upload_folder(self, *, repo_id, folder_path):
            shutil.copytree(folder_path, stand_in.folder / repo_id)
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda repo_id, **_: str(stand_in.folder / repo_id),
    )
    return stand_in


def front_matter(folder) -> dict:
    _, head, _ = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head)


def test_keras_loads_an_uploaded_model(tiny_backbone, images, hub) -> None:
    model = dml.methods.baseline(tiny_backbone, embedding_dim=4)
    url = dml.hub.push_to_hub(
        model, "me/owl", private=True, tags=["birds"], token="t"
    )
    assert url == "https://hub/me/owl/commit/1"
    assert hub.calls == [("token", "t"), ("me/owl", True, True)]
    loaded = keras.saving.load_model("hf://me/owl")
    x = images.images[:4, ..., None]
    np.testing.assert_array_equal(
        model.predict(x, verbose=0), loaded.predict(x, verbose=0)
    )
    head = front_matter(hub.folder / "me" / "owl")
    assert head["library_name"] == "keras"
    assert {"metric-learning", "birds"} <= set(head["tags"])
    assert "license" not in head


@pytest.mark.slow
def test_card_of_a_run_has_its_metrics_and_intervals(run_of, hub) -> None:
    run, folder = run_of("baseline"), hub.folder / "me" / "small"
    dml.hub.push_to_hub(run, "me/small")
    outcome = load_outcome(run)
    text = (folder / "README.md").read_text()
    interval, value = bootstrap(outcome.after)["map@r"], outcome.after["map@r"]
    assert f"| map@r | {value:.4f} | [{interval.low:.4f}, " in text
    assert 'load_model("hf://me/small")' in text
    head = front_matter(folder)
    assert head["datasets"] == ["image_folder"]
    (result,) = head["model-index"][0]["results"]
    metrics = {x["type"]: x["value"] for x in result["metrics"]}
    assert metrics["map@r"] == pytest.approx(value, abs=1e-6)
    loaded = keras.saving.load_model("hf://me/small")
    pairs = zip(
        load_model(run).get_weights(), loaded.get_weights(), strict=True
    )
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)
    assert dml.recipes.load(folder / "recipe.yaml") == outcome.recipe


def test_missing_package_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"keras-dml\[hub\]"):
        dml.hub.push_to_hub("runs/small", "me/owl")
