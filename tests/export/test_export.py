"""Tests of the export: what it holds, and what it refuses."""

import gc
import weakref
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones
from keras_dml.data import View
from keras_dml.export import Gallery, export_model, files
from tests.export.serving import (
    assert_same,
    contents,
    file_of,
    make_model,
    predict,
    random_images,
    serve,
)

# What it holds.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "input_dtype"),
    [("float32", "uint8"), ("mixed_float16", "float32")],
)
def test_signatures_whatever_the_model_computes_in(
    policy: str, input_dtype: str, tmp_path: Path
) -> None:
    keras.config.set_dtype_policy(policy)
    path = export_model(make_model(), tmp_path / "1", input_dtype=input_dtype)
    signatures = tf.saved_model.load(str(path)).signatures
    taken = {}
    for name, signature in signatures.items():
        images = signature.structured_input_signature[1]["images"]
        taken[name] = (images.shape.rank, images.dtype.name)
        embedding = signature.structured_outputs["embedding"]
        assert embedding.dtype == "float32"
        assert embedding.shape.as_list() == [None, 8]
    assert taken == {
        "serving_default": (4, input_dtype),
        "encoded": (1, "string"),
    }
    images = random_images(2, 21, 19, 1)
    sent = tf.cast(images, input_dtype)
    served = signatures["serving_default"](images=sent)["embedding"]
    encoded = serve(path, [file_of(x) for x in images])["embedding"]
    assert_same(served, encoded)


@pytest.mark.slow
def test_encoded_files_take_the_channels_of_the_model(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    color_model = make_model(channels=3)
    color_exported = export_model(color_model, tmp_path / "1")
    for channels in (1, 3):
        image = random_images(20, 18, channels)
        for x, folder in ((model, exported), (color_model, color_exported)):
            served = serve(folder, [file_of(image)])["embedding"]
            assert_same(served, predict(x, image[None]))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["longest", "squash"])
def test_images_are_resized_in_the_way_of_the_model(
    mode: str, tmp_path: Path
) -> None:
    view = View((16, 16), 3, 20, mode)
    model = make_model(channels=3, view=view)
    path = export_model(model, tmp_path / "1")
    images = [random_images(*size, 3) for size in ((30, 41), (41, 23), (1, 9))]
    by_file = serve(path, [file_of(x) for x in images])["embedding"]
    by_pixels = [
        serve(path, x[None].astype("float32"), "serving_default")["embedding"]
        for x in images
    ]
    assert_same(by_file, np.concatenate(by_pixels))
    assert_same(by_file, np.concatenate([predict(model, [x]) for x in images]))
    model.view = View((16, 16), 3, 20)
    other = np.concatenate([predict(model, [x]) for x in images])
    assert (np.abs(by_file - other).max(axis=1) > 1e-3).all()


@pytest.mark.slow
def test_plain_keras_model_is_exported_as_it_is(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    backbone = backbones.small_convnet((16, 16, 3), filters=(4, 8))
    pooled = keras.layers.GlobalAveragePooling2D()(backbone.output)
    plain = keras.Model(backbone.input, pooled)
    images = random_images(4, 33, 20, 3)
    predicted = predict(plain, images)
    path = export_model(
        plain, tmp_path / "1", gallery=Gallery(predicted, [0, 1, 2, 3]), k=4
    )
    served = serve(path, images.astype("float32"), "serving_default")
    embedding = served["embedding"]
    assert (embedding.dtype, predicted.dtype) == (np.float32, np.float16)
    assert_same(embedding, predicted)
    # Cosines do not need embeddings in unit length.
    found = serve(path, [file_of(x) for x in images], "lookup")
    np.testing.assert_array_equal(found["labels"][:, 0], range(4))
    np.testing.assert_allclose(found["scores"][:, 0], 1, atol=1e-5)


def test_only_what_an_embedding_needs_is_exported(
    model: keras.Model, gallery: Gallery, exported: Path
) -> None:
    assert model.objective.variables and model.optimizer.variables
    stored = tf.train.list_variables(str(exported / "variables/variables"))
    held = [np.prod(x) for name, x in stored if "_CHECKPOINTABLE" not in name]
    wanted = [*model.backbone.variables, *model.head.variables]
    searched = [gallery.embeddings.size, *[len(gallery)] * 3]
    assert sorted(held) == sorted(
        [*(np.prod(x.shape) for x in wanted), *searched]
    )


def test_nothing_of_an_export_is_kept_once_it_is_not_served(
    exported: Path,
) -> None:
    """Gradients of its own would stay registered, with all that they see."""
    loaded = tf.saved_model.load(str(exported))
    graph = weakref.ref(loaded.signatures["lookup"].graph)
    del loaded
    gc.collect()
    assert graph() is None


@pytest.mark.slow
def test_gallery_is_no_part_of_the_graph(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    # A graph ends at 2 GiB.
    rows = np.random.default_rng(0).normal(size=(20_000, 8))
    gallery = Gallery(rows, [f"class {i}" for i in range(len(rows))])
    path = export_model(model, tmp_path, gallery=gallery, k=3)
    sizes = [(x / "saved_model.pb").stat().st_size for x in (exported, path)]
    assert abs(sizes[1] - sizes[0]) < 1000


# Refusals.


@pytest.mark.slow
def test_other_weights_than_the_models_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    save = tf.saved_model.save

    def save_then_train(*args: Any, **kwargs: Any) -> None:
        save(*args, **kwargs)
        weight = model.backbone.get_layer("norm_1").beta
        weight.assign_add(keras.random.normal(weight.shape) * 1e-3)

    monkeypatch.setattr(tf.saved_model, "save", save_then_train)
    with pytest.raises(RuntimeError, match="differs by"):
        export_model(model, tmp_path / "saved_models" / "glyphs" / "1")
    assert contents(tmp_path) == {}


@pytest.mark.slow
def test_refusal_names_the_signature_that_differs(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = files.decode_plain
    monkeypatch.setattr(files, "decode_plain", lambda x: 255 - decode(x))
    with pytest.raises(RuntimeError, match="'encoded' differs"):
        export_model(model, tmp_path / "1")
    assert contents(tmp_path) == {}


@pytest.mark.slow
def test_searches_that_find_other_rows_are_refused(
    model: keras.Model,
    gallery: Gallery,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    top_k = tf.math.top_k

    def second_best(x: Any, k: int) -> Any:
        best = top_k(x, k)
        return best._replace(values=best.values + 0.1)

    monkeypatch.setattr(tf.math, "top_k", second_best)
    with pytest.raises((RuntimeError, tf.errors.OpError)):
        export_model(model, tmp_path / "1", gallery=gallery)
    assert contents(tmp_path) == {}


@pytest.mark.slow
def test_decoders_that_fail_are_refused(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_PIXELS", 100)
    with pytest.raises(RuntimeError, match=r"status(.|\s)*too large"):
        export_model(model, tmp_path / "1")
    assert contents(tmp_path) == {}


@pytest.mark.slow
def test_embeddings_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model = make_model()
    model.backbone.get_layer("norm_1").beta.assign([float("nan")] * 8)
    with pytest.raises(RuntimeError, match="differs by nan"):
        export_model(model, tmp_path / "1")
    assert contents(tmp_path) == {}


@pytest.mark.slow
def test_given_images_are_compared_too(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = View.apply

    def wrong_in_the_graph(view: View, images: Any) -> Any:
        seen = apply(view, images)
        is_wrong = (tf.shape(images)[-3] == 90) & (not tf.executing_eagerly())
        return tf.where(is_wrong, 255.0 - seen, seen)

    monkeypatch.setattr(View, "apply", wrong_in_the_graph)
    export_model(model, tmp_path / "1")
    with pytest.raises(RuntimeError, match="differs by"):
        export_model(model, tmp_path / "2", check=[random_images(90, 20, 1)])


@pytest.mark.parametrize("shape, dtype", [((9, 9, 3), "u1"), ((9, 9, 1), "f4")])
def test_unfit_images_are_refused(
    model: keras.Model, tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    images = [np.zeros((9, 9, 1), "u1"), np.zeros(shape, dtype)]
    with pytest.raises(ValueError, match=r"`check` of(.|\s)*check\[1\]"):
        export_model(model, tmp_path / "1", check=images)


def test_unfit_models_and_arguments_are_refused(
    model: keras.Model, gallery: Gallery, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="input_dtype='float16'"):
        export_model(model, tmp_path / "1", input_dtype="float16")
    with pytest.raises(ValueError, match="format='h5'"):
        export_model(model, tmp_path / "1", format="h5")
    with pytest.raises(ValueError, match="one embedding per image"):
        export_model(backbones.small_convnet((16, 16, 1)), tmp_path / "1")
    with pytest.raises(ValueError, match="of known size"):
        export_model(backbones.small_convnet((None, None, 1)), tmp_path / "1")
    with pytest.raises(ValueError, match="k=41, 40 embeddings"):
        export_model(model, tmp_path / "1", gallery=gallery, k=41)
    with pytest.raises(ValueError, match="`k` of export"):
        export_model(model, tmp_path / "1", gallery=gallery, k=0)
    assert contents(tmp_path) == {}
