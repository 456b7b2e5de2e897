"""Names, numbers and files of before, as `measure.py` wrote them."""

import json
import shutil
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import runs
from keras_dml.embedding import EmbeddingShards
from keras_dml.runs.folder import load_outcome
from keras_dml.search import Index
from tests.goldens import measure
from tests.goldens.measure import HERE

VALUES = json.loads((HERE / "values.json").read_text())
EMBEDDINGS = np.load(HERE / "embeddings.npy")


def test_public_names_are_called_as_before() -> None:
    """What changes on purpose is in the changelog, with the way out."""
    before = json.loads((HERE / "signatures.json").read_text())
    now = measure.signatures()
    changed = {
        name: (before.get(name), now.get(name))
        for name in {*before, *now}
        if before.get(name) != now.get(name)
    }
    assert not changed, "write signatures.json anew if this is meant"


@pytest.mark.slow
@pytest.mark.parametrize("method", measure.METHODS)
def test_weights_after_five_steps(method: str) -> None:
    """Of every variable of the model and of the optimizer."""
    jit = method == "baseline"
    before = VALUES["weights"][f"{method} {'xla' if jit else 'graph'}"]
    now = measure.weights_after_five_steps(method, jit)
    assert now.keys() == before.keys()
    for path, (total, length, _) in before.items():
        np.testing.assert_allclose(
            now[path][:2], [total, length], rtol=1e-3, atol=1e-4, err_msg=path
        )


@pytest.mark.parametrize("name", measure.embedding_sets())
def test_metrics(name: str) -> None:
    assert measure.metrics(name) == pytest.approx(
        VALUES["metrics"][name], abs=1e-12
    )


@pytest.mark.parametrize("factory", measure.FACTORIES)
def test_hits(factory: str) -> None:
    assert measure.hits(factory) == VALUES["hits"][factory]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the converter
def test_outputs_of_exports() -> None:
    before, now = VALUES["outputs"], measure.outputs()
    assert now.keys() == before.keys()
    for signature, outputs in before.items():
        assert now[signature].keys() == outputs.keys()
        for key, value in outputs.items():
            if np.asarray(value).dtype.kind == "f":
                np.testing.assert_allclose(
                    now[signature][key], value, atol=1e-5
                )
            else:
                assert now[signature][key] == value


def embed(model: Any) -> Any:
    return model.predict(measure.images().astype("float32"), verbose=0)


def test_a_model_is_read_with_its_optimizer() -> None:
    model = keras.models.load_model(HERE / "model.keras")
    np.testing.assert_allclose(embed(model), EMBEDDINGS, atol=1e-5)
    assert int(model.optimizer.iterations) == 1


def test_an_index_is_read() -> None:
    index = Index.load(HERE / "index")
    np.testing.assert_allclose(index.embeddings, EMBEDDINGS, atol=1e-5)
    hits = index.search(measure.images(), 1)
    assert hits.ids[:, 0].tolist() == list(range(12))
    assert [x[0].row["label"] for x in hits] == list("aabbccddeeff")


def test_shards_are_read() -> None:
    shards = EmbeddingShards(HERE / "shards", verify=True)
    np.testing.assert_allclose(shards.array(), EMBEDDINGS, atol=1e-5)


@pytest.mark.slow
def test_a_run_is_read(tmp_path: Any, monkeypatch: Any) -> None:
    folder = shutil.copytree(HERE / "run", tmp_path / "run")
    measure.write_images(tmp_path / "images")
    monkeypatch.chdir(tmp_path)
    before = load_outcome(folder).after
    now = runs.remeasure(folder).results
    for name, value in before.items():
        assert now[name] == pytest.approx(value, abs=1e-6)
