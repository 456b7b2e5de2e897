"""Signatures that embed by OpenVINO, beside those that TensorFlow runs."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import View
from keras_dml.export import parity
from keras_dml.serve import loading
from keras_dml.serve.current import Current
from keras_dml.serve.sources import find_source
from tests.serve.test_reloading import add


@pytest.mark.peers
def test_answers_are_those_of_the_model(
    written: tuple[Path, Path],
    current: Current,
    view: View,
    pixels: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setattr(parity, "compare", lambda *args: None)
    made, sizes = loading.by_openvino, []

    def counting(*args: Any) -> Any:
        predict = made(*args)
        return lambda x: sizes.append(len(x)) or predict(x)

    monkeypatch.setattr(loading, "by_openvino", counting)
    file, place = map(str, written)
    source = find_source(file, gallery=place, engine="openvino")
    signatures = loading.load(source).signatures
    assert set(signatures) == set(current.signatures)
    model = current.model
    expected = model.predict(view.apply(pixels).numpy(), verbose=0)

    def embedded(count: int) -> None:
        given = tf.constant(pixels[:count], "float32")
        found = signatures["serving_default"](images=given)["embedding"]
        np.testing.assert_allclose(found, expected[:count], atol=1e-5)

    # Two batches run at a time.
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(embedded, [5, 1, 3, 2] * 5))
    assert sorted(sizes) == [1] * 5 + [2] * 5 + [3] * 5 + [5] * 5
    files = tf.stack([*map(tf.io.encode_png, pixels), b"no image"])
    for name in ("encoded", "lookup"):
        found = signatures[name](images=files)
        for key, value in current.signatures[name](images=files).items():
            if value.dtype == tf.float32:
                np.testing.assert_allclose(found[key], value, atol=1e-5)
            else:
                np.testing.assert_array_equal(found[key], value)
    assert signatures["encoded"](images=files[5:])["embedding"].shape == (1, 8)


def test_a_saved_model_is_served_as_it_is(tmp_path: Path, caplog) -> None:
    add(1, tmp_path / "adder" / "1")
    source = find_source(str(tmp_path / "adder"), engine="openvino")
    signature = loading.load(source).signatures["serving_default"]
    assert signature(x=tf.constant([1.0]))["y"].numpy() == 2
    [record] = caplog.records
    assert "OpenVINO does not embed: it takes a run" in record.getMessage()
