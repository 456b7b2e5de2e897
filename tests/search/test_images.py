"""Indexes of images, searched by image."""

import copy
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

from keras_dml import backbones, methods
from keras_dml.data import ArraySet, ImageSet, View
from keras_dml.data.thumbnails import row_thumbnail, thumbnail
from keras_dml.evaluation import embed
from keras_dml.export import Gallery, export_model
from keras_dml.export.gallery import as_gallery
from keras_dml.search import Index
from tests.conftest import blobs
from tests.runs.small_run import write_images


def small_model(seed: int = 0, size: int = 16) -> keras.Model:
    keras.utils.set_random_seed(seed)
    backbone = backbones.small_convnet((size, size, 1), filters=(4, 8))
    return methods.baseline(backbone, embedding_dim=6)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return small_model()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> ImageSet:
    from keras_dml.data import image_folder

    return image_folder(write_images(tmp_path_factory.mktemp("files"), 4, 3))


@pytest.fixture(scope="module")
def index(model, files) -> Index:
    """A shared index, which tests only search."""
    return Index.build(model, files)


@pytest.mark.slow
def test_build_embeds_images_and_keeps_paths_and_classes(model, files) -> None:
    index = Index.build(model, files, {"shop": ["a"] * 12})
    hits = index.search(files, 1)
    assert hits.ids[:, 0].tolist() == list(range(12))
    row = index.row(4)
    assert row["path"] == str(Path(files.paths[4]).resolve())
    assert (row["label"], row["name"], row["shop"]) == (1, "class_01", "a")
    x = embed(model, files)
    by_embedding = index.search(x, 5)
    assert np.array_equal(by_embedding.ids, index.search(files, 5).ids)


def test_all_kinds_of_queries_find_the_same(index, files) -> None:
    path, pixels = files.paths[7], files.read(7)  # (16, 16, 1)
    expected = index.search(files.select([7]), 3)
    kinds = {
        "path": path,
        "Path": Path(path),
        "paths": [path],
        "pixels": pixels,
        "gray pixels": pixels[..., 0],
        "batch": pixels[None],
        "bytes": Path(path).read_bytes(),
        "RGB": Image.open(path).convert("RGB"),
        "floats": pixels.astype(np.float32),
        "batch of floats": pixels[None].astype(np.float64),
        "rounded": np.clip(pixels + 0.3, 0, 255),
        "list of pixels": [pixels],
    }
    for name, query in kinds.items():
        hits = index.search(query, 3)
        assert np.array_equal(hits.ids, expected.ids), name
        np.testing.assert_allclose(hits.scores, expected.scores, atol=1e-5)


def test_images_without_a_set_have_no_label(model, files) -> None:
    index = Index.build(model, list(files.paths[:3]))
    assert list(index.columns) == ["path"]
    ids = index.add(files.select([5]))
    assert index.row(ids[0])["label"] == 1
    assert index.row(0)["label"] is None
    pixels = Index.build(model, blobs().pixels)
    assert pixels.columns == {}


@pytest.mark.slow
def test_saved_folder_contains_the_model(index, files, tmp_path) -> None:
    index.save(tmp_path / "i")
    again = Index.load(tmp_path / "i")
    hits, expected = (x.search(files.paths[0], 4) for x in (again, index))
    assert np.array_equal(hits.ids, expected.ids)
    np.testing.assert_allclose(hits.scores, expected.scores, atol=1e-6)


def test_index_saved_without_a_model_takes_one(
    model, index, files, tmp_path
) -> None:
    index.save(tmp_path / "i", include_model=False)
    alone = Index.load(tmp_path / "i")
    with pytest.raises(ValueError, match="without a model"):
        alone.search(files.paths[0])
    with_model = Index.load(tmp_path / "i", model)
    assert with_model.search(files.paths[0], 1).ids[0, 0] == 0


def scaled(scale: float) -> keras.Model:
    """A model with the same weights and another pixel range."""
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((16, 16, 1))
    x = keras.layers.Rescaling(scale, offset=-0.5)(x)
    x = keras.layers.Dense(8, activation="relu")(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Dense(4)(x))


def squashing() -> keras.Model:
    model = small_model()
    model.view = View((16, 16), 1, resize_mode="squash")
    return model


@pytest.mark.parametrize(
    ("original", "other", "message"),
    [
        (small_model, lambda: small_model(1), "with different weights"),
        (lambda: scaled(1 / 255), lambda: scaled(1 / 127), "same weights"),
        (squashing, small_model, "another size.*shortest.*squash"),
    ],
)
def test_another_model_raises(original, other, message, tmp_path) -> None:
    Index.build(original(), blobs(2, 2, 16)).save(tmp_path, include_model=False)
    Index.load(tmp_path, original())
    with pytest.raises(ValueError, match=message):
        Index.load(tmp_path, other())


def test_index_calibrates_on_images(model) -> None:
    index = Index.build(model, blobs(seed=1))
    threshold = index.calibrate(blobs(seed=2), num_resamples=20)
    assert (threshold.num_images, threshold.num_classes) == (48, 6)
    assert index.search(blobs().pixels[0]).threshold == threshold.value


@pytest.mark.slow
def test_bad_files_and_arrays_raise(model, index, files, tmp_path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"\xff\xd8\xff no image")
    with pytest.raises(ValueError, match="bad.jpg"):
        index.search(bad)
    with pytest.raises(ValueError, match="nothing.png"):
        index.search(tmp_path / "nothing.png")
    with pytest.raises(ValueError, match="ArraySet, files, texts or uint8"):
        Index.build(model, np.zeros((3, 6)))


@pytest.mark.slow
def test_thumbnails_are_kept_on_request(model, files, tmp_path) -> None:
    """Files once had no thumbnails, so pages elsewhere showed none."""
    assert "thumbnail" not in Index.build(model, files).columns
    index = Index.build(model, files, thumbnails=True)
    of_files = [row_thumbnail({"path": path}) for path in files.paths]
    assert index.columns["thumbnail"] == of_files
    path = str(files.paths[0])
    boxed = ImageSet([path], [3], boxes=[[1, 2, 12, 14]])
    (new,) = index.add(boxed)
    part = thumbnail(files.read(0)[2:14, 1:12])
    assert index.row(new)["thumbnail"] == part
    (row_id,) = index.add(path, {"thumbnail": [None]})
    assert index.row(row_id)["thumbnail"] is None
    index.add(index.embeddings[:1])
    wide = Image.new("RGB", (400, 20), "red")
    mixed = [wide, path, Path(files.paths[3]).read_bytes()]
    thumbnails = Index.build(model, mixed, thumbnails=True).columns["thumbnail"]
    assert thumbnails == [thumbnail(np.array(wide)), of_files[0], of_files[3]]
    with pytest.raises(ValueError, match="`thumbnails` of Index.build"):
        Index.build(model, ArraySet(blobs().inputs(...)), thumbnails=True)


def test_boxes_are_kept_as_columns(model, tmp_path) -> None:
    path = tmp_path / "a.png"
    Image.fromarray(blobs().pixels[0]).save(path)
    boxed = ImageSet([path], [3], boxes=[[1, 2, 12, 14]], ids=["a-1"])
    row = Index.build(model, boxed).row(0)
    assert row["box"] == [1, 2, 12, 14]
    assert row["source"] == "a-1"


@pytest.mark.slow
def test_images_of_several_sizes_keep_their_order(model, files) -> None:
    index = Index.build(model, files)
    large = Image.open(files.paths[1]).resize((40, 24))
    mixed = [large, files.paths[5], Path(files.paths[3]).read_bytes(),
             np.asarray(large), files.read(2)]  # fmt: skip
    all_hits = index.search(mixed, 2)
    alone = [index.search(query, 2) for query in mixed]
    assert [hits.ids[0].tolist() for hits in alone] == all_hits.ids.tolist()
    assert all_hits.ids[1:3, 0].tolist() == [5, 3]
    ids = index.add([large, files.read(2)], {"shop": ["a", "b"]})
    assert index.search(large, 1).ids[0, 0] == ids[0]
    built = Index.build(model, mixed, keys=list("abcde"))
    assert built.search(files.paths[5], 1).keys == [["b"]]


REFUSED_QUERIES = [
    (b"", "0 bytes"),
    (b"\xff\xd8\xff no image", "of Index.search must be complete"),
    (np.full((16, 16, 3), 0.5), "look scaled to 0…1. Multiply them"),
    (np.full((16, 16, 3), 300.0), "up to 255|from 0 to 300"),
    (np.full((16, 16, 3), -1.0), "from -1 to"),
    (np.full((2, 16, 16, 1), np.nan), "0 to 255"),
    (np.zeros((9, 9, 4), np.uint8), r"shape \(9, 9, 4\). Use PIL images"),
    (np.zeros((0, 9, 3), np.uint8), r"shape \(0, 9, 3\)"),
    (np.zeros(9, np.uint8), "floats for embeddings"),
    (np.zeros((9, 9, 3), complex), "complex128 of shape"),
    (np.full((9, 9, 3), None), "object of shape"),
    ([np.zeros((9, 9, 3), np.uint8), np.ones(6)], "must be embeddings"),
    ([b"x", 3], "must be embeddings"),
    ([], "must be embeddings"),
]


def test_unfit_queries_raise(index) -> None:
    for query, message in REFUSED_QUERIES:
        with pytest.raises(ValueError, match=message):
            index.search(query)
    with pytest.raises(ValueError, match="`batch_size` of Index.search"):
        index.search(blobs().pixels, batch_size=0)


def test_no_images_make_an_empty_index(model) -> None:
    pixels = blobs().pixels
    index = Index.build(model, pixels[:0])
    assert (len(index), index.dim) == (0, 6)
    assert index.search(pixels[:0]).ids.shape == (0, 10)
    index.add(pixels)
    assert index.search(pixels[3], 1).keys == [[3]]


@pytest.mark.slow
def test_add_replaces_rows_by_image(model, files) -> None:
    index = Index.build(model, files, keys="path")
    path = index.keys[2]
    images = [files.paths[4], files.paths[2]]
    index.add(images, keys=[path, "new"], replace=True)
    assert index.search(files.paths[2], 1).keys == [["new"]]
    assert index[path]["path"] == str(Path(files.paths[4]).resolve())


def plain_model() -> keras.Model:
    layers = keras.Input((16, 16, 1)), keras.layers.Flatten()
    return keras.Sequential([*layers, keras.layers.Dense(6)])


def one_number(model: keras.Model) -> None:
    weight = model.weights[0].numpy()
    weight.flat[7] += 1e-3
    model.weights[0].assign(weight)


def test_changed_model_raises(tmp_path: Path) -> None:
    """Such searches once returned hits, and `add` mixed two models."""
    keras.utils.set_random_seed(0)
    model, images = plain_model(), blobs(2, 2, 16)
    before = model.get_weights()
    index = Index.build(model, images)
    index.save(tmp_path / "index")
    one_number(model)
    changed = "weights have changed since"
    for use in (
        lambda: index.search(images, 1),
        lambda: index.range_search(images, 0.5),
        lambda: index.add(images),
        lambda: index.calibrate(images),
        lambda: copy.deepcopy(index).search(images, 1),
        lambda: index.save(tmp_path / "index"),
        lambda: export_model(model, tmp_path / "out", gallery=index),
    ):
        with pytest.raises(ValueError, match=changed):
            use()
    assert len(index) == 4
    hits = index.search(index.embeddings, 1)
    assert hits.ids[:, 0].tolist() == [0, 1, 2, 3]
    model.set_weights(before)
    assert np.array_equal(index.search(images, 1).ids, hits.ids)
    assert np.array_equal(index.add(images), [4, 5, 6, 7])


def test_recompiled_model_is_accepted(
    model: keras.Model,
) -> None:
    model = small_model()
    images = blobs(2, 2, 16)
    index = Index.build(model, images)
    gallery = Gallery.of(model, images)
    model.compile("adam", run_eagerly=True)
    model.predict(images.inputs(...), verbose=0)
    model.evaluate(images.inputs(...), images.labels, verbose=0)
    for weight in model.objective.weights:
        weight.assign(weight + 1)
    assert index.search(images, 1).ids[:, 0].tolist() == [0, 1, 2, 3]
    assert as_gallery(model, gallery) is gallery
    assert np.array_equal(as_gallery(model, index).labels, [0, 0, 1, 1])
    model.set_weights([x + 1 for x in model.get_weights()])
    for stale in (gallery, index):
        with pytest.raises(ValueError, match="weights have changed since"):
            as_gallery(model, stale)


def test_factory_is_checked_before_images_are_embedded(
    model, files, monkeypatch
) -> None:
    monkeypatch.setattr("keras_dml.search.encoder.embed_argument", None)
    for argument, kind in (
        ("parameters", {"factory": "IVF4,Flat", "parameters": "nprobe=-1;rm"}),
        ("parameters", {"factory": "HNSW8", "parameters": "nprobe=4"}),
        ("parameters", {"parameters": "efSearch"}),
        ("factory", {"factory": "IVF4,PQ5"}),
        ("factory", {"factory": "Flut"}),
    ):
        with pytest.raises(ValueError, match=f"`{argument}` of an Index must"):
            Index.build(model, files, **kind)


def model_of_vectors(width: int) -> keras.Model:
    inputs = keras.Input((width,))
    backbone = keras.Model(inputs, keras.layers.Dense(6)(inputs))
    return methods.baseline(backbone, embedding_dim=6, pooling="none")


@pytest.mark.parametrize("length", [6, 5.9, 0.5])
def test_inputs_as_wide_as_embeddings_raise(length) -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
    x *= length / np.linalg.norm(x, axis=1, keepdims=True)
    labels = np.repeat(np.arange(4), 3)
    index = Index.build(model_of_vectors(6), ArraySet(x, labels))
    asked = "must be examples, or embeddings of unit length"
    for use in (
        lambda: index.search(x),
        lambda: index.search(x[0]),
        lambda: index.search(x.tolist()),
        lambda: index.range_search(x, 0.5),
        lambda: index.add(x, {"label": labels}),
        lambda: index.calibrate(x, labels),
    ):
        with pytest.raises(ValueError, match=asked):
            use()
    assert len(index) == 12
    ids = index.search(ArraySet(x), 1).ids[:, 0]
    assert ids.tolist() == list(range(12))
    unit = embed(index._encoder.model, ArraySet(x)).astype("float16")
    assert index.search(unit, 1).ids[:, 0].tolist() == list(range(12))


def test_embeddings_unlike_the_inputs_may_have_any_length() -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
    wider = np.random.default_rng(0).normal(size=(12, 9)).astype("float32")
    index = Index.build(model_of_vectors(9), ArraySet(wider))
    assert len(index.search(x, 1)) == 12
    inputs = keras.Input((6,))
    plain = keras.Model(inputs, keras.layers.Dense(6)(inputs))
    plain_index = Index(plain.predict(x, verbose=0), model=plain)
    assert len(plain_index.search(3 * x, 1)) == 12
