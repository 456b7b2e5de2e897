"""Models with their cards, in a folder and through a stand-in of the Hub."""

import json
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
def model(tiny_backbone):
    return dml.methods.baseline(tiny_backbone, embedding_dim=4)


def front_matter(folder) -> dict:
    _, head, _ = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head)


def test_a_model_comes_back_the_same(model, images, tmp_path) -> None:
    folder = dml.hub.save_pretrained(model, tmp_path / "owl", tags=["birds"])
    again = dml.hub.from_pretrained(folder)
    x = images.images[:4, ..., None]
    np.testing.assert_array_equal(
        model.predict(x, verbose=0), again.predict(x, verbose=0)
    )
    head = front_matter(folder)
    assert head["library_name"] == "keras"
    assert {"metric-learning", "birds"} <= set(head["tags"])
    assert "license" not in head
    assert (
        json.loads((folder / "config.json").read_text())["embedding_dim"] == 4
    )
    dml.hub.save_pretrained(model, folder)  # Its own it may replace.


@pytest.mark.slow
def test_the_card_of_a_run_has_its_metrics_and_intervals(
    run_of, tmp_path, images
) -> None:
    run = run_of("baseline")
    folder = dml.hub.save_pretrained(run, tmp_path / "small", name="me/small")
    outcome = load_outcome(run)
    text = (folder / "README.md").read_text()
    interval = bootstrap(outcome.after)["map@r"]
    value = outcome.after["map@r"]
    assert f"| map@r | {value:.4f} | [{interval.low:.4f}, " in text
    assert 'from_pretrained("me/small")' in text
    head = front_matter(folder)
    assert head["datasets"] == ["image_folder"]
    (result,) = head["model-index"][0]["results"]
    found = {x["type"]: x["value"] for x in result["metrics"]}
    assert found["map@r"] == pytest.approx(value, abs=1e-6)
    best, again = load_model(run), dml.hub.from_pretrained(folder)
    for a, b in zip(best.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert dml.recipes.load(folder / "recipe.yaml") == outcome.recipe


def test_what_is_no_model_of_ours_is_refused(model, tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="`folder` of save_pretrained"):
        dml.hub.save_pretrained(model, tmp_path)
    with pytest.raises(ValueError, match="`folder_or_repo` of from_pretrained"):
        dml.hub.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="`folder_or_repo` of from_pretrained"):
        dml.hub.from_pretrained(tmp_path)


def test_code_in_a_model_is_not_run(model, tmp_path) -> None:
    folder = dml.hub.save_pretrained(model, tmp_path / "owl")
    layer = keras.layers.Lambda(lambda x: x)
    keras.Sequential([keras.Input((2,)), layer]).save(folder / "model.keras")
    with pytest.raises(ValueError, match="cannot be read"):
        dml.hub.from_pretrained(folder)


def test_a_push_is_what_from_pretrained_downloads(
    model, tmp_path, monkeypatch
) -> None:
    hub, asked = tmp_path / "hub", []

    class Api:
        def __init__(self, token=None) -> None:
            asked.append(("token", token))

        def create_repo(self, repo_id, *, private, exist_ok) -> None:
            asked.append((repo_id, private, exist_ok))

        def upload_folder(self, *, repo_id, folder_path, **options):
            asked.append((repo_id, options["revision"]))
            shutil.copytree(folder_path, hub / repo_id)
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def snapshot_download(repo_id, **options) -> str:
        asked.append((repo_id, options["revision"], options["allow_patterns"]))
        return str(hub / repo_id)

    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    url = dml.hub.push_to_hub(model, "me/owl", private=True, token="t")
    assert url == "https://hub/me/owl/commit/1"
    assert asked == [("token", "t"), ("me/owl", True, True), ("me/owl", None)]
    again = dml.hub.from_pretrained("me/owl", revision="v1")
    assert again.output.shape == (None, 4)
    files = ["model.keras", "config.json", "README.md", "recipe.yaml"]
    assert asked[-1] == ("me/owl", "v1", files)


def test_a_missing_package_is_named(model, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"keras-dml\[hub\]"):
        dml.hub.push_to_hub(model, "me/owl")
    with pytest.raises(ImportError, match=r"keras-dml\[hub\]"):
        dml.hub.from_pretrained("me/owl")
