"""An index of a model that takes strings, searched by text."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import methods
from keras_dml.data import ArraySet
from keras_dml.search import Index

TEXTS = ["red shoe", "blue hat", "green coat"]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_strings_are_texts(shape: tuple[int, ...], tmp_path: Path) -> None:
    layers = [
        keras.Input(shape, dtype="string"),
        keras.layers.TextVectorization(
            vocabulary=[word for text in TEXTS for word in text.split()],
            output_sequence_length=2,
        ),
        keras.layers.Embedding(9, 4),
        keras.layers.GlobalAveragePooling1D(),
    ]
    model = methods.baseline(keras.Sequential(layers), embedding_dim=4)
    examples = ArraySet(np.array(TEXTS).reshape(-1, *shape), ids=TEXTS)
    index = Index.build(model, examples)
    index.save(tmp_path / "index", include_model=True)
    index = Index.load(tmp_path / "index")
    assert index.search("blue hat", 1).ids.tolist() == [[1]]
    found = index.search(["green coat", "red shoe"], 1)
    assert found.ids[:, 0].tolist() == [2, 0]
    np.testing.assert_allclose(found.scores, 1.0, atol=1e-5)
