"""Errors for unusable data give the reason and a way out at once."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import (
    LossObjective,
    MetricModel,
    callbacks,
    data,
    evaluation,
    export,
    losses,
    methods,
)
from keras_dml.data import ArraySet
from keras_dml.model import Objective
from keras_dml.search import Index
from tests.model.test_keras_contract import LABELS, small, vectors
from tests.model.test_traps import FEEDS

SEVERAL = np.eye(6, dtype="int64")[LABELS]
SEVERAL[:, 0] = 1


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("feed", FEEDS)
def test_label_tables_raise_and_name_booleans(feed, dtype) -> None:
    with pytest.raises(ValueError, match=r"astype\(bool\)") as error:
        small().fit(**FEEDS[feed](vectors(), SEVERAL.astype(dtype)), verbose=0)
    # The values of a dataset are not known yet, so it gets both ways.
    is_seen = feed not in ("dataset", "dict")
    assert ("argmax" in str(error.value)) is not is_seen


@pytest.mark.parametrize(
    ("table", "way"),
    [
        (SEVERAL, r"astype\(bool\)"),
        (SEVERAL.astype("float32"), r"astype\(bool\)"),
        (SEVERAL * LABELS[:, None], r"labels\[:, 0\]"),
    ],
)
def test_loss_raises_and_tells_how_to_convert_a_table(table, way) -> None:
    embeddings = np.ones((48, 4), "float32")
    with pytest.raises(ValueError, match=way) as error:
        losses.TripletLoss()(table, embeddings)
    assert "argmax" not in str(error.value)


@pytest.mark.parametrize("feed", ["arrays", "plain arrays", "dataset"])
def test_square_label_table_raises(feed) -> None:
    table = np.zeros((48, 48), "int64")
    table[:, :6] = SEVERAL
    data = FEEDS[feed](vectors(), table)
    if feed == "dataset":
        batches = tf.data.Dataset.from_tensors((vectors(), table))
        data = {"x": batches}
    with pytest.raises(ValueError, match=r"relation matrix.*astype\(bool\)"):
        small().fit(**data, verbose=0)


def test_boolean_label_sets_train() -> None:
    model = small()
    history = model.fit(vectors(), SEVERAL.astype(bool), verbose=0).history
    assert np.isfinite(history["loss"]).all()


def images(shape=(8, 8, 3), **options) -> MetricModel:
    network = keras.Sequential([keras.Input(shape), keras.layers.Conv2D(4, 3)])
    model = methods.baseline(network, embedding_dim=4, **options)
    model.compile()
    return model


RGB = np.random.default_rng(0).integers(0, 256, (48, 8, 8, 3), "uint8")
FIRST = np.moveaxis(RGB, -1, 1)
USES = {
    "fit": lambda m, x: m.fit(x, LABELS, verbose=0),
    "dataset": lambda m, x: m.fit(**FEEDS["dataset"](x, LABELS), verbose=0),
    "PyDataset": lambda m, x: m.fit(**FEEDS["PyDataset"](x, LABELS), verbose=0),
    "validation": lambda m, x: m.fit(
        np.zeros((48, *m.input_shape[1:])), LABELS, validation_data=(x, LABELS)
    ),
    "evaluate": lambda m, x: m.evaluate(x, LABELS, verbose=0),
    "predict": lambda m, x: m.predict(x, verbose=0),
    "train_on_batch": lambda m, x: m.train_on_batch(x, LABELS),
    "a set": lambda m, x: evaluation.evaluate(m, ArraySet(x, LABELS)),
}
SHAPES = {
    "channels first": ((8, 8, 3), FIRST, r"last: use numpy.moveaxis\(x, 1, -1"),
    "one channel first": ((8, 8, 1), FIRST[:, :1], "Channels come last"),
    "another size": ((6, 6, 3), RGB, r"pipeline\(…, size=\(6, 6\)\)"),
    "gray": ((8, 8, 3), RGB[..., :1], r"input_shape=\(8, 8, 1\)"),
    "without channels": ((8, 8, 3), RGB[..., 0], r"input_shape=\(8, 8\)"),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("use", USES)
def test_inputs_of_another_shape_raise(use, kind) -> None:
    shape, x, way = SHAPES[kind]
    with pytest.raises(ValueError, match=f"shape that the model .*{way}"):
        USES[use](images(shape), x)


def test_gray_images_need_no_axis_of_channels() -> None:
    for x in (RGB[..., 0], RGB[..., :1]):
        model = images((8, 8, 1))
        USES["fit"](model, x)
        assert USES["predict"](model, x).shape == (48, 4)


def no_rows() -> tf.data.Dataset:
    spec = tf.TensorSpec((None, 5)), tf.TensorSpec((None,), tf.int64)
    return tf.data.Dataset.from_generator(
        lambda: [(vectors()[:0], LABELS[:0])], output_signature=spec
    )


EMPTY = {
    "train_on_batch": lambda m: m.train_on_batch(vectors()[:0], LABELS[:0]),
    "predict": lambda m: m.predict(vectors()[:0], verbose=0),
    "evaluate": lambda m: evaluation.evaluate(m, (vectors()[:0], LABELS[:0])),
    "dataset": lambda m: m.fit(no_rows(), verbose=0),
    "tensors": lambda m: m.fit(
        tf.data.Dataset.from_tensors((vectors()[:0], LABELS[:0])), verbose=0
    ),
    "loss": lambda m: losses.TripletLoss()(LABELS[:0], vectors()[:0]),
    "another loss": lambda m: losses.VICRegLoss()(LABELS[:0], vectors()[:0]),
}


@pytest.mark.parametrize("use", EMPTY)
def test_empty_batch_raises(use) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        EMPTY[use](small())


@pytest.mark.parametrize("targets", [{"labels": LABELS}, {"y": LABELS}, {}])
@pytest.mark.parametrize("use", ["fit", "evaluate", "validation"])
def test_targets_without_labels_raise(use, targets) -> None:
    model, x = small(), vectors()
    uses = {
        "fit": lambda: model.fit(x, targets, verbose=0),
        "evaluate": lambda: model.evaluate(x, targets, verbose=0),
        "validation": lambda: model.fit(
            x, LABELS, validation_data=(x, targets), verbose=0
        ),
    }
    with pytest.raises(ValueError, match='must have labels.*"label"'):
        uses[use]()


SPLITS = data.DataSplits.by_class(ArraySet(vectors(), LABELS), "six", 0.5, 0.2)
NO_SET = {
    "evaluate": lambda m, x: evaluation.evaluate(m, x),
    "embed": lambda m, x: evaluation.embed(m, x),
    "fit": lambda m, x: m.fit(x, verbose=0),
    "callback": lambda m, x: callbacks.RetrievalEvaluation(x),
    "Index.build": lambda m, x: Index.build(m, x),
}


@pytest.mark.parametrize("splits", [SPLITS, data.glyphs])
@pytest.mark.parametrize("use", NO_SET)
def test_splits_instead_of_one_set_raise(use, splits) -> None:
    with pytest.raises(ValueError, match="one set.*data.train, data.valid"):
        NO_SET[use](small(), splits)


NO_MODEL = {
    "evaluate": lambda m: evaluation.evaluate(m, SPLITS.test),
    "embed": lambda m: evaluation.embed(m, SPLITS.test),
    "Index.build": lambda m: Index.build(m, SPLITS.test),
    "Index": lambda m: Index(vectors(), model=m),
    "export": lambda m: export.export_model(m, "exported"),
}


@pytest.mark.parametrize("path", ["runs/quickstart", Path("runs/quickstart")])
@pytest.mark.parametrize("use", NO_MODEL)
def test_folder_of_a_run_raises_as_a_model(use, path) -> None:
    with pytest.raises(ValueError, match=r"runs/quickstart.*load_model\(folde"):
        NO_MODEL[use](path)


@pytest.mark.parametrize(
    "name", ["m.tflite", "m.onnx", "m.xml", "m.TFLITE", "a/m.keras", "m.h5"]
)
def test_export_folder_named_like_a_file_raises(name, tmp_path) -> None:
    way = {"tflite": "litert", "onnx": "onnx", "xml": "openvino"}
    format = way.get(name.lower().rpartition(".")[2])
    match = f"Use format='{format}'" if format else "Use model.save"
    with pytest.raises(ValueError, match=match):
        export.export_model(small(), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["baseline", "hdc", "diva", "from a file"])
def test_model_with_a_head_raises_as_a_backbone(method, tmp_path) -> None:
    backbone = images()
    if method == "from a file":
        path = tmp_path / "model.keras"
        backbone.save(path)
        backbone, method = str(path), "baseline"
    with pytest.raises(ValueError, match="without a head.*Use its `backbone`"):
        getattr(methods, method)(backbone)
    assert methods.baseline(images().backbone, embedding_dim=4).built


@pytest.mark.parametrize("objective", [LossObjective("triplet"), Objective()])
def test_base_class_raises_as_an_objective(objective) -> None:
    with pytest.raises(ValueError, match=r"defines `call`.*EmbeddingObjective"):
        MetricModel(images().backbone, methods.EmbeddingHead(4), objective)


class OwnLoss(losses.TripletLoss):
    """A loss that is not registered with Keras."""


def test_unregistered_class_is_named_when_loading(tmp_path) -> None:
    path = tmp_path / "model.keras"
    model = images(loss=OwnLoss())
    model.save(path)
    with pytest.raises(ValueError, match='custom_objects={"OwnLoss"') as error:
        keras.models.load_model(path)
    assert len(str(error.value)) < 600
    custom_objects = {"OwnLoss": OwnLoss}
    loaded = keras.models.load_model(path, custom_objects, compile=False)
    np.testing.assert_array_equal(
        loaded.predict(RGB, verbose=0), model.predict(RGB, verbose=0)
    )


@pytest.mark.parametrize("part", [lambda m: m, lambda m: m.encoder])
def test_two_models_can_be_joined(part, tmp_path) -> None:
    model = images()
    model.save(tmp_path / "model.keras")
    both = [
        keras.models.load_model(tmp_path / "model.keras", compile=False)
        for _ in "ab"
    ]
    inputs = keras.Input((8, 8, 3))
    embeddings = [part(x)(inputs) for x in (model, *both)]
    joined = keras.Model(inputs, keras.layers.Concatenate()(embeddings))
    expected = np.tile(model.predict(RGB, verbose=0), (1, 3))
    np.testing.assert_allclose(joined.predict(RGB, verbose=0), expected, 1e-5)


def test_name_given_by_the_user_is_kept(tmp_path) -> None:
    path = tmp_path / "model.keras"
    images(name="birds").save(path)
    assert keras.models.load_model(path, compile=False).name == "birds"
