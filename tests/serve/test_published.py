"""The examples of TensorFlow Serving's page on its REST API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from starlette.testclient import TestClient

from keras_dml.serve.app import application
from keras_dml.serve.loading import load
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings
from keras_dml.serve.sources import find_source
from tests.serve.conftest import LOCAL

NAN, INFINITY = float("nan"), float("inf")


def half_plus_three(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"y": 0.5 * x + 3.0}


def with_names(
    tag: tf.Tensor, signal: tf.Tensor, sensor: tf.Tensor
) -> dict[str, tf.Tensor]:
    """What was given, of several types; a name says that it is bytes."""
    return {
        "tag": tag,
        "tag_bytes": tag,
        "total": tf.reduce_sum(signal, axis=1),
        "first": sensor[:, 0],  # float64
    }


def of_all(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """No rows: it must not be joined with others."""
    return {"mean": tf.reduce_mean(x)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("half") / "half_plus_three" / "123"
    floats = tf.TensorSpec((None,), "float32", name="x")
    named = [
        tf.TensorSpec((None,), "string", name="tag"),
        tf.TensorSpec((None, 5), "int32", name="signal"),
        tf.TensorSpec((None, 2, 2), "float64", name="sensor"),
    ]
    signatures = {
        "serving_default": tf.function(half_plus_three, [floats]),
        "named": tf.function(with_names, named),
        "of_all": tf.function(of_all, [floats]),
    }
    tf.saved_model.save(tf.Module(), str(folder), signatures)
    return folder.parent


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    current = load(find_source(str(folder)))
    settings = Settings()
    app = application(Service(current, settings), settings)
    with TestClient(app, LOCAL) as x:
        yield x


def predict(client: TestClient, body: str) -> Any:
    answer = client.post("/v1/models/half_plus_three:predict", content=body)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.text)


def test_status(client: TestClient) -> None:
    published = {
        "model_version_status": [
            {
                "version": "123",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    for address in ("half_plus_three", "half_plus_three/versions/123"):
        assert client.get(f"/v1/models/{address}").json() == published


ROWS = """
{
 "signature_name": "named",
 "instances": [
   {
     "tag": "foo",
     "signal": [1, 2, 3, 4, 5],
     "sensor": [[1, 2], [3, 4]]
   },
   {
     "tag": "bar",
     "signal": [3, 4, 1, 2, 5],
     "sensor": [[4, 5], [6, 8]]
   }
 ]
}
"""
COLUMNS = """
{
 "signature_name": "named",
 "inputs": {
   "tag": ["foo", "bar"],
   "signal": [[1, 2, 3, 4, 5], [3, 4, 1, 2, 5]],
   "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]]
 }
}
"""


def test_rows_of_names(client: TestClient) -> None:
    first, second = [[1.0, 2.0], [4.0, 5.0]]
    assert predict(client, ROWS) == {
        "predictions": [
            {
                "tag": "foo",
                "tag_bytes": {"b64": "Zm9v"},
                "total": 15,
                "first": first,
            },
            {
                "tag": "bar",
                "tag_bytes": {"b64": "YmFy"},
                "total": 15,
                "first": second,
            },
        ]
    }


def test_columns_of_names(client: TestClient) -> None:
    assert predict(client, COLUMNS) == {
        "outputs": {
            "tag": ["foo", "bar"],
            "tag_bytes": [{"b64": "Zm9v"}, {"b64": "YmFy"}],
            "total": [15, 15],
            "first": [[1.0, 2.0], [4.0, 5.0]],
        }
    }


def test_binary_values(client: TestClient) -> None:
    body = json.loads(COLUMNS)
    body["inputs"]["tag"] = [{"b64": "aW1hZ2UgYnl0ZXM="}, {"b64": "/w"}]
    found = predict(client, json.dumps(body))["outputs"]
    assert found["tag"] == ["image bytes", "�"]
    assert found["tag_bytes"] == [{"b64": "aW1hZ2UgYnl0ZXM="}, {"b64": "/w=="}]


def test_nan_and_infinity(client: TestClient) -> None:
    body = '{"instances": [1.0, -3.3, NaN, Infinity, -Infinity]}'
    found = predict(client, body)["predictions"]
    assert str(found) == "[3.5, 1.35, nan, inf, -inf]"


def test_an_answer_without_rows_has_the_column_format_only(client) -> None:
    body = {"signature_name": "of_all", "inputs": [1.0, 2.0]}
    assert predict(client, json.dumps(body)) == {"outputs": 1.5}
    body = {"signature_name": "of_all", "instances": [1.0, 2.0]}
    answer = client.post(
        "/v1/models/half_plus_three:predict", content=json.dumps(body)
    )
    assert answer.status_code == 400
    assert "outputs have no common rows" in answer.json()["error"]
