"""A class has one label in all rows, whoever numbered it."""

import keras
import numpy as np
import pytest

from keras_dml.data import ArraySet
from keras_dml.search import Index

X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])


def animals(*names: str) -> ArraySet:
    return ArraySet(X[: len(names)], names)


def classes(index: Index) -> list[tuple[int, str]]:
    columns = index.columns
    return list(zip(columns["label"], columns["name"], strict=True))


def test_added_classes_get_the_labels_of_the_index(model) -> None:
    """Classes once got two labels, or shared one."""
    index = Index.build(model, animals("crow", "owl", "rhino"))
    index.add(model_rows := animals("rhino", "rhino"))
    assert classes(index)[3:] == [(2, "rhino"), (2, "rhino")]
    # Of two new names, 3 is free; 0 and 1 are not.
    index.add(animals("ant", "bee", "crow", "dog"))
    assert classes(index)[5:] == [
        (4, "ant"), (5, "bee"), (0, "crow"), (3, "dog")
    ]  # fmt: skip
    assert model_rows.labels.tolist() == [0, 0]
    assert len(index) == 9


def test_replaced_classes_get_the_labels_of_the_index(model) -> None:
    names = "crow", "owl", "rhino"
    index = Index.build(model, animals(*names), keys=list("abc"))
    index.add(animals("rhino", "yak"), keys=["b", "d"], replace=True)
    assert [index[key]["label"] for key in "acbd"] == [0, 2, 2, 3]
    # The owl was replaced, so 1 is free.
    index.add(animals("ape", "owl", "yak"), keys=list("xyz"))
    assert [index[key]["label"] for key in "xyz"] == [4, 1, 3]


def test_sets_that_share_numbers_keep_them(model) -> None:
    first = animals("crow", "owl", "rhino")
    index = Index.build(model, first)
    index.add(ArraySet(X[:3], ["yak", "owl", "ape"], names=first.names))
    assert classes(index)[3:] == [(4, "yak"), (1, "owl"), (3, "ape")]
    # Without names, numbers are all that is known.
    index.add(ArraySet(X[:1], [7]))
    assert classes(index)[6:] == [(7, None)]
    index.add(animals("zebra"))
    assert classes(index)[7:] == [(8, "zebra")]


def test_conflicting_labels_and_names_raise(model) -> None:
    index = Index.build(model, animals("crow", "owl", "rhino"))
    columns = {"label": [0], "name": ["rhino"]}
    with pytest.raises(
        ValueError, match=r"label 0 for the name 'rhino', which"
    ):
        index.add(X[:1, :3], columns)
    with pytest.raises(ValueError, match="has label 2 there"):
        index.add(animals("rhino"), {"label": [1]})
    assert len(index) == 3
    index.add(X[:1, :3], {"label": [2], "name": ["rhino"]})
    index = Index.build(
        model, ArraySet(X[:2]), {"label": [0, 2], "name": ["rhino", "rhino"]}
    )
    with pytest.raises(
        ValueError, match=r"'rhino', which has the labels \[0, 2\]"
    ):
        index.add(animals("rhino"))
    index.add(X[:1, :3], {"label": [5], "name": ["rhino"]})


def test_columns_without_classes_are_left_alone() -> None:
    index = Index(X, {"label": [["a"]] * 8, "name": list("abcdefgh")})
    index.add(X[:1], {"label": [["b"]], "name": ["a"]})
    index = Index(X, {"name": list("abcdefgh")})
    index.add(X[:1], {"label": [3], "name": ["a"]})
    assert index.columns["label"][-1] == 3


@pytest.mark.parametrize("labels", [["b", "a", "b", "a"], [3, 2, 3, 2]])
def test_labels_of_embeddings_become_columns(labels: list) -> None:
    index = Index(X[:4], {"price": [1, 2, 3, 4]}, labels=labels)
    is_text = isinstance(labels[0], str)
    assert index.labels == labels
    assert index.columns["label"] == ([1, 0, 1, 0] if is_text else labels)
    assert set(index.types) == {
        "label",
        "price",
        *(["name"] if is_text else []),
    }
    assert index.search(X[:1], where={"label": index.row(1)["label"]}).ids[
        0, :2
    ].tolist() in ([1, 3], [3, 1])
    with pytest.raises(ValueError, match="one value per row"):
        Index(X, labels=labels)
