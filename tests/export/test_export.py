"""SavedModel exports: contents and errors."""

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones
from keras_dml.data import View
from keras_dml.export import Gallery, export_model
from keras_dml.export.served import (
    ServedImages,
    generated_batches,
)
from keras_dml.export.served import (
    compare as compare_with,
)
from tests.export.serving import (
    assert_same,
    contents,
    file_of,
    make_model,
    predict,
    random_images,
    serve,
    signatures,
)

# What it holds.


@pytest.mark.slow
def test_export_prepares_images_like_the_model(
    model: keras.Model, exported: Path, tmp_path: Path
) -> None:
    view = View((16, 16), 3, 20, "longest")
    color_model = make_model(channels=3, view=view)
    path = export_model(color_model, tmp_path / "1")
    images = [random_images(*size, 3) for size in ((30, 41), (41, 23), (1, 9))]
    by_file = serve(path, [file_of(x) for x in images])["embedding"]
    by_pixels = [
        serve(path, x[None].astype("float32"), "serving_default")["embedding"]
        for x in images
    ]
    assert_same(by_file, np.concatenate(by_pixels))
    expected = [predict(color_model, [x]) for x in images]
    assert_same(by_file, np.concatenate(expected))
    # Files have the channels of the model, whatever their own.
    for channels in (1, 3):
        image = random_images(20, 18, channels)
        for x, folder in ((model, exported), (color_model, path)):
            served = serve(folder, [file_of(image)])["embedding"]
            assert_same(served, predict(x, image[None]))
    color_model.view = View((16, 16), 3, 20)
    other = np.concatenate([predict(color_model, [x]) for x in images])
    assert (np.abs(by_file - other).max(axis=1) > 1e-3).all()


@pytest.mark.slow
def test_pixels_in_another_range_warn(exported: Path, capfd) -> None:
    pixels = random_images(3, 18, 25, 1).astype("float32")
    mean = pixels.mean()

    def told(images: Any) -> bool:
        serve(exported, images, "serving_default")
        return "should range from 0 to 255" in capfd.readouterr().err

    for wrong in (pixels / 255, pixels / 127.5 - 1, (pixels - mean) / 64):
        assert told(wrong)
    for right in (pixels, pixels * 0, pixels[:0], np.ones_like(pixels) * 9):
        assert not told(right)


def test_long_pixels_raise(exported: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 50"):
        serve(exported, np.zeros((2, 51, 1, 1), "f4"), "serving_default")


@pytest.mark.slow
def test_plain_model_in_half_precision_is_exported(
    tmp_path: Path,
) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    backbone = backbones.small_convnet((16, 16, 3), filters=(4, 8))
    pooled = keras.layers.GlobalAveragePooling2D()(backbone.output)
    plain = keras.Model(backbone.input, pooled)
    images = random_images(4, 33, 20, 3)
    predicted = predict(plain, images)
    path = export_model(
        plain,
        tmp_path / "1",
        gallery=Gallery(predicted, [0, 1, 2, 3]),
        k=4,
        input_dtype="uint8",
    )
    assert predicted.dtype == np.float16
    for name, batch in (
        ("serving_default", images),
        ("encoded", [file_of(x) for x in images]),
    ):
        embeddings = serve(path, batch, name)["embedding"]
        assert embeddings.dtype == np.float32
        assert_same(embeddings, predicted)
    # Cosines do not need embeddings in unit length.
    hits = serve(path, [file_of(x) for x in images], "lookup")
    np.testing.assert_array_equal(hits["labels"][:, 0], range(4))
    np.testing.assert_allclose(hits["scores"][:, 0], 1, atol=1e-5)


def test_export_holds_only_inference_variables(
    model: keras.Model, gallery: Gallery, exported: Path
) -> None:
    assert model.objective.variables and model.optimizer.variables
    stored = tf.train.list_variables(str(exported / "variables/variables"))
    held = [np.prod(x) for name, x in stored if "_CHECKPOINTABLE" not in name]
    variables = [*model.backbone.variables, *model.head.variables]
    searched = [gallery.embeddings.size, *[len(gallery)] * 2]
    assert sorted(held) == sorted(
        [*(np.prod(x.shape) for x in variables), *searched]
    )


def test_deleted_export_is_garbage_collected(
    exported: Path,
) -> None:
    """Custom gradients would stay registered and keep the export alive."""
    loaded = tf.saved_model.load(str(exported))
    graph = weakref.ref(loaded.signatures["lookup"].graph)
    del loaded
    gc.collect()
    assert graph() is None


# Refusals.


@pytest.mark.slow
def test_export_that_differs_for_a_check_image_raises(
    model: keras.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = View.apply

    def wrong_in_the_graph(view: View, images: Any) -> Any:
        seen = apply(view, images)
        is_wrong = (tf.shape(images)[-3] == 90) & (not tf.executing_eagerly())
        return tf.where(is_wrong, 255.0 - seen, seen)

    monkeypatch.setattr(View, "apply", wrong_in_the_graph)
    path = tmp_path / "saved_models" / "glyphs" / "1"
    with pytest.raises(RuntimeError, match="differs by"):
        export_model(model, path, check=[random_images(90, 20, 1)])
    assert contents(tmp_path) == {}


def compare(folder: Path, model: keras.Model, gallery: Gallery) -> None:
    """Runs the comparison before an export gets its name."""
    view = View.of(model)
    batches = generated_batches(view)[:1]
    served = ServedImages(model, gallery, 3, view, "float32", batches)
    loaded = SimpleNamespace(signatures=signatures(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.saved_model, "load", lambda path: loaded)
        compare_with(served, folder, 1e-5)


@pytest.mark.slow
def test_export_that_differs_raises(
    model: keras.Model,
    gallery: Gallery,
    exported: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compare(exported, model, gallery)
    other = Gallery(gallery.embeddings[::-1] + 0.01, gallery.labels)
    with pytest.raises(RuntimeError, match="'lookup' differs"):
        compare(exported, model, other)
    changed = keras.models.clone_model(model)
    changed.set_weights(model.get_weights())
    weight = changed.backbone.get_layer("norm_1").beta
    weight.assign_add(keras.random.normal(weight.shape) * 1e-3)
    with pytest.raises(RuntimeError, match="'serving_default' differs by"):
        compare(exported, changed, gallery)
    weight.assign([float("nan")] * 8)
    with pytest.raises(RuntimeError, match="differs by nan"):
        compare(exported, changed, gallery)
    for file, message in (
        (lambda x: tf.io.encode_jpeg(255 - x), "'encoded' differs"),
        (lambda x: b"no image", r"status(.|\s)*unsupported"),
    ):
        monkeypatch.setattr(tf.io, "encode_png", file)
        with pytest.raises(RuntimeError, match=message):
            compare(exported, model, gallery)


def test_unfit_models_and_arguments_raise(
    model: keras.Model, gallery: Gallery, tmp_path: Path
) -> None:
    fit = np.zeros((9, 9, 1), "u1")
    check = r"`check` of(.|\s)*check\[1\]"
    short = Gallery(gallery.embeddings[:, :5], gallery.labels)
    for arguments, message in (
        ({"check": [fit, np.zeros((9, 9, 3), "u1")]}, check),
        ({"check": [fit, np.zeros((9, 9, 1), "f4")]}, check),
        ({"input_dtype": "float16"}, "input_dtype='float16'"),
        ({"format": "h5"}, "format='h5'"),
        ({"model": backbones.small_convnet((16, 16, 1))}, "one embedding per"),
        ({"model": backbones.small_convnet((None, None, 1))}, "of known size"),
        ({"gallery": gallery, "format": "onnx"}, "`gallery` of export"),
        ({"gallery": short}, "5 dimensions.*model has 8"),
        ({"gallery": gallery, "k": 41}, "k=41, 40 embeddings"),
        ({"gallery": gallery, "k": 0}, "`k` of export"),
    ):
        with pytest.raises(ValueError, match=message):
            export_model(
                **{"model": model, "path": tmp_path / "1", **arguments}
            )
    assert contents(tmp_path) == {}
