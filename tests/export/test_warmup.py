"""Tests of the requests that warm a server up, and of its list of models."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.export import write_models_config
from keras_dml.export.warmup import WARMUP, prediction_log
from tests.export import messages
from tests.export.serving import signatures


def records(exported: Path) -> list[bytes]:
    return [x.numpy() for x in tf.data.TFRecordDataset(str(exported / WARMUP))]


def test_requests_are_for_every_signature(exported: Path) -> None:
    # That they can be played is tested by the server of test_serving.
    assert (exported / "assets.extra/tf_serving_warmup_requests").exists()
    sent = {}
    for record in records(exported):
        request = messages.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "glyphs"
        name = request.model_spec.signature_name
        inputs = {entry.key: entry.value for entry in request.inputs}
        assert inputs.keys() == {"images", *["k"] * (name == "lookup_k")}
        sent.setdefault(name, []).append(inputs["images"])
    assert sent.keys() == signatures(exported).keys()
    assert len(sent["serving_default"]) == 2  # Of different sizes.
    assert len(sent["lookup"][0].string_val) == 4


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 70_000])
def test_records_are_what_the_protocol_says(length: int) -> None:
    images = tf.constant([b"x" * length, b"", b"\xff"])
    written = prediction_log("n" * length, "lookup", {"images": images})
    log = messages.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "n" * length
    request.model_spec.signature_name = "lookup"
    entry = request.inputs.add(key="images")
    content = tf.make_tensor_proto(images).SerializeToString()
    entry.value.MergeFromString(content)
    assert messages.PredictionLog.FromString(written) == log


@pytest.mark.peers
def test_messages_are_those_of_tensorflow_serving(exported: Path) -> None:
    predict = pytest.importorskip("tensorflow_serving.apis.predict_pb2")
    from tensorflow_serving.apis import prediction_log_pb2 as logs

    images = tf.constant([b"a file", b""])
    record = prediction_log("glyphs", "lookup", {"images": images})
    theirs = logs.PredictionLog.FromString(record).predict_log.request
    assert theirs.model_spec.name == "glyphs"
    assert theirs.model_spec.signature_name == "lookup"
    sent = tf.make_ndarray(theirs.inputs["images"])
    np.testing.assert_array_equal(sent, images.numpy())
    ours = messages.PredictRequest.FromString(theirs.SerializeToString())
    again = predict.PredictRequest.FromString(ours.SerializeToString())
    assert again == theirs


def test_models_config_names_every_model(tmp_path: Path) -> None:
    for name in ("glyphs/3", "cars & co/1", 'quote"/1', "empty/1", "x/old"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if not name.startswith("empty"):
            (folder / "saved_model.pb").write_bytes(b"")
    (tmp_path / "README.md").write_text("not a model")
    path = write_models_config(tmp_path, "/srv/")
    assert write_models_config(tmp_path, "/srv/") == path
    files = {x.name for x in tmp_path.iterdir() if x.is_file()}
    assert files == {"README.md", "models.config"}
    text = path.read_text("utf-8")
    for name in ("glyphs", "cars & co", r"quote\""):
        assert f'name: "{name}"' in text
        assert f'base_path: "/srv/{name}"' in text
    assert text.count("config {") == 3


def test_folder_without_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="folder/NAME/VERSION"):
        write_models_config(tmp_path)
