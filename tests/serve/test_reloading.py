"""New versions are served, broken and missing ones are not."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from starlette.testclient import TestClient

from keras_dml.search import Index
from keras_dml.serve import loading
from keras_dml.serve.app import application
from keras_dml.serve.loading import load
from keras_dml.serve.reloading import Reloader
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings
from keras_dml.serve.sources import find_source
from tests.serve.conftest import LOCAL, make_model, write


def add(amount: float, folder: Path) -> None:
    spec = tf.TensorSpec((None,), "float32", name="x")
    signature = tf.function(lambda x: {"y": x + amount}, [spec])
    tf.saved_model.save(
        tf.Module(), str(folder), {"serving_default": signature}
    )


class Served:
    """An application, and the reloader to be called by hand."""

    def __init__(self, path: Path, gallery: Path | None = None) -> None:
        place = None if gallery is None else str(gallery)
        source = find_source(str(path), gallery=place)
        stamps = source.stamps()
        settings = Settings()
        self.service = Service(load(source), settings)
        self.reloader = Reloader(self.service, source, stamps)
        app = application(self.service, settings, self.reloader)
        self.client = TestClient(app, LOCAL)
        self.outcomes: list[str] = []
        self.reloader.on_reload = self.outcomes.append

    def predict(self, *x: float) -> Any:
        name = self.service.current.name
        address = f"/v1/models/{name}:predict"
        answer = self.client.post(address, json={"instances": x})
        return answer.json()["predictions"]

    def problem(self) -> str | None:
        return self.client.get("/healthz").json()["problem"]


def test_the_highest_version_is_served_and_a_higher_one_then(tmp_path) -> None:
    model = tmp_path / "adder"
    for version in (2, 10):
        add(version, model / str(version))
    served = Served(model)
    assert served.predict(1) == [11]
    served.reloader.look()
    assert served.outcomes == []
    before = served.service.current
    add(11, tmp_path / ".hidden")
    (tmp_path / ".hidden").rename(model / "11")
    served.reloader.look()
    assert served.predict(1) == [12]
    assert served.outcomes == ["ok"]
    status = served.client.get("/v1/models/adder").json()
    assert status["model_version_status"][0]["version"] == "11"
    # A request that began with the version before ends with it.
    assert before.signatures["serving_default"](x=tf.constant([1.0]))["y"] == 11


def test_a_broken_version_is_said_and_tried_once(tmp_path, caplog) -> None:
    model = tmp_path / "adder"
    add(1, model / "1")
    served = Served(model)
    (model / "2").mkdir()
    (model / "2" / "saved_model.pb").write_bytes(b"nothing")
    for _ in range(2):
        served.reloader.look()
    assert served.outcomes == ["failed"]
    assert served.predict(1) == [2]
    assert "the previous one is still served" in served.problem()
    shutil.rmtree(model / "2")
    add(2, model / "2")
    served.reloader.look()
    assert served.predict(1) == [3]
    assert served.problem() is None


def test_models_and_galleries_that_are_gone_are_served_on(tmp_path) -> None:
    model = tmp_path / "adder"
    add(1, model / "1")
    served = Served(model)
    shutil.rmtree(model)
    served.reloader.look()
    assert served.predict(1) == [2]
    assert served.problem().startswith("The model in")
    assert served.problem().endswith("the loaded version is still served.")
    assert served.client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_a_run_s_model_and_its_gallery_are_replaced(tmp_path, pixels) -> None:
    file, place = write(tmp_path)
    served = Served(file, place)
    first = served.service.current
    (tmp_path / "new").mkdir()
    write(tmp_path / "new", seed=1)
    (tmp_path / "new" / "glyphs.keras").replace(file)
    served.reloader.look()
    # The gallery is still of the model before.
    assert served.service.current is first
    assert "must be the one that computed the embeddings" in served.problem()
    shutil.rmtree(place)
    (tmp_path / "new" / "index").rename(place)
    served.reloader.look()
    second = served.service.current
    assert (second.version, served.problem()) == (2, None)
    found = [
        np.asarray(x.signatures["serving_default"](
            images=tf.constant(np.float32(pixels)))["embedding"])
        for x in (first, second)
    ]  # fmt: skip
    assert not np.allclose(*found)
    shutil.rmtree(place)
    served.reloader.look()
    assert served.problem().startswith("The gallery in")
    hits = served.service.current.index.search(pixels, 3)
    assert len(hits[0]) == 3


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: None, "There is nothing at"),
        (lambda x: x.mkdir(), "There is no model in"),
        (lambda x: x.write_bytes(b"text"), "cannot be read"),
    ],
    ids=["nothing", "an empty folder", "no model"],
)
def test_what_cannot_be_served_is_named(tmp_path, make, error) -> None:
    path = tmp_path / "x.keras"
    make(path)
    with pytest.raises((OSError, ValueError), match=error):
        load(find_source(str(path)))


@pytest.mark.slow
def test_a_new_gallery_is_swapped_without_an_export(
    tmp_path, pixels, monkeypatch
) -> None:
    file, place = write(tmp_path)
    served = Served(file, place)
    first = served.service.current
    monkeypatch.setattr(loading, "export_model", None)
    images = tf.constant([tf.io.encode_png(x).numpy() for x in pixels])

    def keys(current: Any) -> tuple[Any, Any]:
        ids = current.signatures["lookup"](images=images)["ids"].numpy()
        own = current.signatures["lookup_k"](
            images=images, k=tf.constant([3] * len(pixels))
        )
        return ids, own["ids"].numpy()

    index = Index.load(place)
    gone = keys(first)[0][:, 0].tolist()
    index.remove(gone)
    index.save(place)
    served.reloader.look()
    second = served.service.current
    assert served.problem() is None
    assert (second.version, second.model) == (2, first.model)
    hits = index.search(pixels, 10)
    expected = [[hit.key for hit in found] for found in hits]
    ids, own = keys(second)
    assert ids.tolist() == expected
    assert own.tolist() == [x[:3] for x in expected]
    assert not np.isin(ids, gone).any()
    # A damaged one keeps it served, and says so.
    (place / "index.json").write_text("{")
    served.reloader.look()
    assert served.service.current is second
    assert "the previous one is still served" in served.problem()
    assert served.reloader.loading is None


def test_a_name_must_fit_into_an_address(tmp_path) -> None:
    (tmp_path / "a:b.keras").write_bytes(b"")
    path = str(tmp_path / "a:b.keras")
    with pytest.raises(ValueError, match="must not contain / or :.*Use --name"):
        find_source(path)
    assert find_source(path, "ab").name == "ab"


def test_a_gallery_must_be_of_the_model(written, tmp_path) -> None:
    file = tmp_path / "glyphs.keras"
    make_model(seed=3).save(file)
    with pytest.raises(ValueError, match="must be the one that computed"):
        load(find_source(str(file), gallery=str(written[1])))


@pytest.mark.slow
def test_a_saved_model_is_served_with_the_gallery_of_its_model(
    current, written, tmp_path, pixels
) -> None:
    from keras_dml.export import export_model

    path = export_model(current.model, tmp_path / "glyphs")
    served = Served(path.parent, written[1])
    assert served.service.current.view == current.view
    assert "lookup" not in served.service.current.signatures
    health = json.loads(served.client.get("/healthz").text)
    assert health["gallery"] == {"rows": 48}
    other, place = write(tmp_path, seed=3)
    with pytest.raises(ValueError, match="built with a different model"):
        load(find_source(str(path), gallery=str(place)))
