"""Loaded models, and galleries that replace each other."""

import shutil
import time

import numpy as np
import pytest

from keras_dml.search import Index
from keras_dml.serve.app import application
from keras_dml.serve.current import load, scores_of_negatives
from keras_dml.serve.service import GalleryWatcher, Service
from keras_dml.serve.settings import Settings
from tests.conftest import blobs
from tests.serve.conftest import client_of, encode, make_model
from tests.serve.test_rest import rows


@pytest.fixture
def gallery(written, tmp_path):
    """A copy of the gallery."""
    shutil.copytree(written[1], tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def watcher(current, gallery):
    service = Service(current, Settings())
    watching = GalleryWatcher(service, str(gallery))
    watching.service, watching.outcomes = service, []
    watching.app = application(service, service.settings, watching)
    watching.on_reload = watching.outcomes.append
    return watching


def test_saved_gallery_replaces_the_previous_one(
    watcher, current, gallery, pixels
) -> None:
    watcher.look()
    assert watcher.service.current is current
    index = Index.load(gallery)
    gone = index.search(current.embed(np.float32(pixels)), 1).keys
    index.remove([x for [x] in gone])
    index.save(gallery)
    watcher.look()
    now = watcher.service.current
    assert (now.version, len(now.index)) == (2, 43)
    assert now.model is current.model
    assert (watcher.problem, watcher.outcomes) == (None, ["ok"])
    # Who began with the other one finds all of it.
    assert len(current.index) == 48


def test_broken_or_missing_gallery_is_logged_and_not_served(
    watcher, current, gallery, tmp_path, caplog
) -> None:
    (gallery / "index.json").write_text("{")
    watcher.look()
    watcher.look()
    assert watcher.outcomes == ["failed"]
    assert "the previous one is still served" in watcher.problem
    shutil.rmtree(gallery)
    watcher.look()
    assert watcher.problem.endswith("the previous one is still served.")
    assert "no longer exists" in caplog.records[-1].getMessage()
    other = Index.build(make_model(seed=3), blobs())
    other.save(gallery)
    watcher.look()
    assert "must be the one that computed the embeddings" in watcher.problem
    assert watcher.service.current is current


def test_gallery_is_prepared_before_it_is_served(
    current, gallery, pixels
) -> None:
    """A gallery's derived values are computed before it is served."""
    now = current.with_gallery(str(gallery))
    assert {"negatives", "label_column"} <= vars(now).keys()


@pytest.mark.slow
def test_gallery_of_many_rows_is_swapped_in_two_seconds(
    current, tmp_path
) -> None:
    """By processor time, as other programs may run."""
    x = np.random.default_rng(0).normal(size=(100_000, 8))
    columns = {"path": [f"/pictures/{row}.jpg" for row in range(len(x))]}
    labels = [f"class {row % 999}" for row in range(len(x))]
    index = Index(x, columns, labels=labels, model=current.model)
    index.save(tmp_path / "index")
    current.with_gallery(str(tmp_path / "index"))
    began = time.process_time()
    current.with_gallery(str(tmp_path / "index"))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda x: None, "There is nothing at .* Use the folder of a run"),
        (lambda x: x.mkdir(), "recipe.yaml"),
        (lambda x: x.write_bytes(b"text"), "cannot be read"),
        (lambda x: (x / "2").mkdir(parents=True)
         or (x / "2" / "saved_model.pb").touch(), "TensorFlow Serving serves"),
    ],
    ids=["nothing", "an empty folder", "no model", "a SavedModel"],
)  # fmt: skip
def test_unfit_models_raise(tmp_path, make, error) -> None:
    path = tmp_path / "x.keras"
    make(path)
    with pytest.raises((OSError, ValueError), match=error):
        load(str(path))


def test_name_must_fit_into_an_address(written, tmp_path) -> None:
    path = shutil.copy(written[0], tmp_path / "a:b.keras")
    with pytest.raises(ValueError, match="must not contain / or :.*Use --name"):
        load(path)
    assert load(path, "ab").name == "ab"


def test_scores_of_negatives_sample_pairs(current) -> None:
    index = current.index
    every, sample = scores_of_negatives(index), scores_of_negatives(index, 100)
    assert len(sample) == 100 < len(every)
    assert set(sample) <= set(every)
    assert (sample == scores_of_negatives(index, 100)).all()

    for labels in (None, [1, 1, 1], [[1], [1, 2], [2]]):
        index = Index(np.eye(3), labels and {"label": labels})
        assert scores_of_negatives(index) is None


def test_engine_may_be_a_function(written, pixels) -> None:
    batches = []

    def embed(batch):
        batches.append(batch)
        return np.eye(8, dtype="float32")[: len(batch)]

    current = load(str(written[0]), engine=embed)
    with client_of(current) as client:
        answer = client.post(
            "/v1/models/glyphs:predict", json={"instances": pixels.tolist()}
        )
    assert answer.json()["predictions"] == np.eye(8)[: len(pixels)].tolist()
    assert np.concatenate(batches).shape == pixels.shape


@pytest.mark.peers
def test_openvino_answers_like_keras(written, client, pixels) -> None:
    pytest.importorskip("openvino")
    file, place = map(str, written)
    current = load(file, engine="openvino").with_gallery(place)
    body = rows("lookup", *map(encode, pixels))
    address = "/v1/models/glyphs:predict"
    with client_of(current) as other:
        answers = [x.post(address, json=body).json() for x in (client, other)]
    for one, two in zip(*(x["predictions"] for x in answers), strict=True):
        np.testing.assert_allclose(
            one.pop("scores"), two.pop("scores"), atol=1e-5
        )
        assert one == two
