"""Indexes of models that take strings."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_dml import methods
from keras_dml.data import ArraySet, PairSet
from keras_dml.search import Index

TEXTS = ["red shoe", "blue hat", "green coat"]


@pytest.mark.parametrize(
    ("input_shape", "query_shape"),
    [
        ((), ()),
        ((1,), ()),
        pytest.param((), (1,), marks=pytest.mark.slow),
        pytest.param((1,), (1,), marks=pytest.mark.slow),
    ],
)
def test_texts_are_searched_as_a_column_or_a_vector(
    input_shape: tuple[int, ...], query_shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Models used to be traced for both shapes, which fails in Keras."""
    words = [word for text in TEXTS for word in text.split()]
    vectorize = keras.layers.TextVectorization(
        vocabulary=words, output_sequence_length=2
    )
    embed = keras.layers.Embedding(9, 4)
    inputs = keras.Input(input_shape, dtype="string")
    x = keras.layers.GlobalAveragePooling1D()(embed(vectorize(inputs)))
    model = methods.baseline(keras.Model(inputs, x), embedding_dim=4)
    examples = ArraySet(np.array(TEXTS).reshape(-1, *query_shape), TEXTS)
    index = Index.build(model, examples)
    assert index.search(examples, 1).ids[:, 0].tolist() == [0, 1, 2]
    for queries in (
        np.array(TEXTS[1:2]),
        np.array(TEXTS[1:2], object)[:, None],
        np.array(TEXTS[1]),
        TEXTS[1],
        ArraySet(TEXTS[1:2]),
    ):
        assert index.search(queries, 1).ids.tolist() == [[1]]
    index.add(np.array(["blue shoe"]))
    assert index.search("blue shoe", 1).ids.tolist() == [[3]]
    if input_shape == query_shape:
        index.save(tmp_path / "index", include_model=True)
        hits = Index.load(tmp_path / "index").search(["green coat", TEXTS[0]])
        assert hits.ids[:, 0].tolist() == [2, 0]
        np.testing.assert_allclose(hits.scores[:, 0], 1.0, atol=1e-5)


def test_dict_of_inputs_and_relations_raise() -> None:
    inputs = {name: keras.Input((2,), name=name) for name in ("a", "b")}
    x = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    inputs_by_name = {"a": np.eye(2), "b": np.eye(2) * 2}
    index = Index.build(model, ArraySet(inputs_by_name))
    with pytest.raises(
        ValueError, match=r"`queries` of Index.search .*Use Arra"
    ):
        index.search(inputs_by_name)
    assert index.search(ArraySet(inputs_by_name), 1).ids[:, 0].tolist() == [
        0,
        1,
    ]
    pairs = PairSet(ArraySet(inputs_by_name), [[0, 1]])
    with pytest.raises(
        ValueError, match=r"`images` of Index.build .*x.examples"
    ):
        Index.build(model, pairs)
