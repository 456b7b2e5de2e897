"""ArraySet, and the interface that all kinds of examples share."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    DataSplits,
    ImageSet,
    concatenate,
    eval_batches,
    pipeline,
)
from keras_dml.evaluation import embed, evaluate, evaluate_embeddings

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype("float32")
TEXTS = [f"text {i}" for i in range(40)]
LABELS = np.arange(40) % 5


def in_memory(folder: Path) -> Any:
    return X, TEXTS


def mapped(folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    np.save(folder / "t.npy", np.array(TEXTS))
    return tuple(
        np.load(folder / name, mmap_mode="r") for name in ("x.npy", "t.npy")
    )


def in_hdf5(folder: Path) -> Any:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"], file["t"] = X, TEXTS
    file = h5py.File(folder / "x.h5")
    return file["x"], file["t"]


@pytest.fixture(params=[in_memory, mapped, in_hdf5])
def examples(request, tmp_path) -> ArraySet:
    x, texts = request.param(tmp_path)
    return ArraySet({"x": x, "text": texts}, LABELS)


def texts_of(inputs: Any) -> list[str]:
    return [x.decode() if isinstance(x, bytes) else x for x in inputs["text"]]


@pytest.mark.parametrize(
    "rows", [[3], [7, 2, 7, 39], [-1, 0], range(5, 20), [], LABELS == 2]
)
def test_inputs_return_the_chosen_rows(examples: ArraySet, rows: Any) -> None:
    expected_rows = np.arange(40)[
        list(rows) if isinstance(rows, range) else rows
    ]
    expected_rows = expected_rows.astype(int)
    for inputs in (examples.inputs(rows), examples.select(rows).inputs(...)):
        np.testing.assert_array_equal(inputs["x"], X[expected_rows])
        assert texts_of(inputs) == [TEXTS[row] for row in expected_rows]


def test_selections_can_be_nested_and_joined(examples) -> None:
    first = examples.select(range(30)).select([20, 4, 4])
    joined = concatenate([first, examples.select([]), examples.select([39])])
    assert joined.labels.tolist() == [0, 4, 4, 4]
    inputs = joined.select([3, 0, 1]).inputs(...)
    np.testing.assert_array_equal(inputs["x"], X[[39, 20, 4]])
    assert texts_of(inputs) == ["text 39", "text 20", "text 4"]
    with pytest.raises(IndexError, match="row 4"):
        joined.inputs([4])


def test_pipeline_yields_the_planned_rows(examples) -> None:
    sampler = ClassBalanced(examples.labels, 3, 2, seed=1)
    dataset = pipeline(examples, sampler)
    x, y = dataset.element_spec
    assert x["x"] == tf.TensorSpec((6, 3), tf.float32)
    assert x["text"] == tf.TensorSpec((6,), tf.string)
    for epoch in range(2):
        for (x, y), rows in zip(dataset, sampler.plan(epoch), strict=True):
            np.testing.assert_array_equal(y["index"], rows)
            np.testing.assert_array_equal(y["label"], LABELS[rows])
            np.testing.assert_array_equal(x["x"], X[rows])
            assert texts_of({"text": x["text"].numpy()}) == [
                TEXTS[row] for row in rows
            ]


@pytest.mark.parametrize("dtype", ["int8", "int32", "float64", "bool"])
def test_dtypes_are_kept(dtype: str) -> None:
    x = np.arange(6).reshape(3, 2).astype(dtype)
    (batch,) = eval_batches(ArraySet(x))
    assert batch.dtype == dtype
    np.testing.assert_array_equal(batch, x)


def model() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])


def test_all_sources_give_equal_embeddings_and_metrics() -> None:
    network = model()
    expected = network.predict(X, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((X, LABELS))
    sources = [
        ArraySet(X, LABELS),
        (X, LABELS),
        (X, LABELS[:, None]),
        (X, {"label": LABELS}, np.ones(40)),
        dataset,
        dataset.batch(7),
        (X, [f"class {label}" for label in LABELS]),
    ]
    expected_results = evaluate_embeddings(expected, LABELS)
    for source in sources:
        embeddings = embed(network, source, batch_size=16)
        np.testing.assert_allclose(embeddings, expected, atol=1e-6)
        assert dict(evaluate(network, source)) == dict(expected_results)
    for source in (X, ArraySet(X), dataset.map(lambda x, y: x)):
        np.testing.assert_allclose(embed(network, source), expected, atol=1e-6)
    # Labels come with their examples, in whichever order.
    shuffled = evaluate(network, dataset.shuffle(40))
    assert dict(shuffled) == pytest.approx(dict(expected_results))


def test_strings_are_numbered_and_kept_as_names() -> None:
    first = ArraySet(X[:3], ["b", "a", "b"])
    assert first.labels.tolist() == [1, 0, 1]
    assert dict(first.names) == {0: "a", 1: "b"}
    # Another set numbers them alike where it has the names of the first.
    second = ArraySet(X[:3], ["c", "b", b"b"], names=first.names)
    assert second.labels.tolist() == [2, 1, 1]
    assert dict(second.names) == {0: "a", 1: "b", 2: "c"}
    both = concatenate([first, second])
    assert dict(both.select([0, 3]).relabeled().names) == {0: "b", 1: "c"}
    images = ImageSet(["x.jpg", "y.jpg"], ["cat", "bird"])
    assert [images.names[label] for label in images.labels] == ["cat", "bird"]
    sampler = ClassBalanced(["b", "a", "b", "a"], 2, 2)
    assert sampler.labels.tolist() == [1, 0, 1, 0]


def test_unlabelled_images_can_be_embedded() -> None:
    images = ImageSet(np.zeros((2, 4, 4), np.uint8))
    assert images.labels is None
    assert images.num_classes == 0
    assert "2 images without labels" in repr(images)
    assert images.select([1]).labels is None
    network = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten()])
    assert embed(network, images).shape == (2, 16)


REFUSED = {
    "must have rows of one length.*pad_sequences": lambda: ArraySet(
        [[1, 2], [3]]
    ),
    "`x` of ArraySet must be finite.*1 of 40.*row 3": lambda: ArraySet(
        np.where(np.arange(40)[:, None] == 3, np.nan, X)
    ),
    "same number of rows in all.*40 of 'a', 3 of 'b'": lambda: ArraySet(
        {"a": X, "b": X[:3]}
    ),
    "Received: no array": lambda: ArraySet({}),
    "one row per example.*float": lambda: ArraySet(3.0),
    "must be numbers or strings.*NoneType": lambda: ArraySet([None, 1]),
    "must be numbers or strings.*datetime": lambda: ArraySet(
        np.array(["2020"], "datetime64[Y]")
    ),
    "`size` of pipeline is for images": lambda: pipeline(
        ArraySet(X, LABELS), ClassBalanced(LABELS, 2), size=3
    ),
    "`examples.labels` of pipeline must be known": lambda: pipeline(
        ArraySet(X), ClassBalanced(LABELS, 2)
    ),
    "`labels` of ClassBalanced must.*labels=None": lambda: ClassBalanced(
        None, 2
    ),
    "ClassBalanced must.*ArraySet.*examples.labels": lambda: ClassBalanced(
        ArraySet(X, LABELS), 2
    ),
    "`examples` of pipeline must be.*ndarray.*ArraySet": lambda: pipeline(
        X, ClassBalanced(LABELS, 2)
    ),
    "`x` of ArraySet must have rows of one.*RaggedTensor": lambda: ArraySet(
        tf.ragged.constant([[1.0], [2.0, 3.0]])
    ),
    r"Received: SparseTensor. .*to_dense\(x\)": lambda: ArraySet(
        tf.sparse.from_dense(np.eye(2))
    ),
    "all integers or all strings. .*and 1": lambda: ArraySet(X[:2], ["a", 1]),
    r"Received: none \(nan\) for 1 of 2": lambda: ArraySet(
        X[:2], ["a", float("nan")]
    ),
    "For several labels per example, use sets": lambda: ArraySet(
        X[:2], [["a", "b"], ["c"]]
    ),
    "`images.labels` of split_classes must be one": lambda: DataSplits.by_class(
        ArraySet(X, np.eye(5, dtype=bool)[LABELS]), "x"
    ),
    "of one kind": lambda: concatenate(
        [ArraySet(X), ImageSet(np.zeros((1, 2, 2), "uint8"))]
    ),
    "same names, shapes": lambda: concatenate(
        [ArraySet(X), ArraySet(X[:, :2])]
    ),
    "must all have labels, or none": lambda: concatenate(
        [ArraySet(X), ArraySet(X, LABELS)]
    ),
    "at least one set.*Received: none": lambda: concatenate([]),
    "agree on class names.*names=other.names": lambda: evaluate(
        model(), (X[:2], ["a", "b"]), gallery=(X[:2], ["a", "c"])
    ),
    "`examples` of evaluate must be an ImageSet, an ArraySet": (
        lambda: evaluate(model(), "photographs")
    ),
    "`labels` of evaluate must be known": (
        lambda: evaluate(model(), ArraySet(X))
    ),
    "`train.labels` of DataSplits must be known": (
        lambda: DataSplits(ArraySet(X), ArraySet(X), ArraySet(X), "x")
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_errors_name_the_way_out(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_rows_of_files_are_checked_as_they_are_read(tmp_path: Path) -> None:
    x = X.copy()
    x[37, 1] = np.inf
    np.save(tmp_path / "x.npy", x)
    examples = ArraySet(np.load(tmp_path / "x.npy", mmap_mode="r"), LABELS)
    examples.inputs(range(30))
    with pytest.raises(ValueError, match="must be finite.*row 37"):
        examples.inputs(range(40))
    with pytest.raises(ValueError, match="must be finite.*row 37"):
        embed(model(), examples)


TABLE = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]], bool)


def test_boolean_rows_are_label_sets() -> None:
    examples = ArraySet(np.arange(4.0), TABLE, names=["red", "b", "big"])
    assert examples.has_label_sets
    assert examples.classes.tolist() == [0, 2]
    assert "with some of 2 labels each" in repr(examples)
    few = examples.select([1, 2])
    np.testing.assert_array_equal(few.labels, TABLE[[1, 2]])
    assert few.names == {2: "big"}
    renumbered = examples.relabeled()
    np.testing.assert_array_equal(renumbered.labels, TABLE[:, [0, 2]])
    assert renumbered.names == {0: "red", 1: "big"}
    with pytest.raises(ValueError, match="read-only"):
        examples.labels[0, 0] = False


def test_sets_of_strings_are_label_sets() -> None:
    examples = ImageSet(
        np.zeros((3, 4, 4), np.uint8), [{"red", "big"}, set(), {"odd"}]
    )
    assert examples.names == {0: "big", 1: "odd", 2: "red"}
    assert examples.labels.tolist() == [
        [True, False, True], [False] * 3, [False, True, False],
    ]  # fmt: skip
    more = ArraySet([[0.0]], [{"new", "red"}], names=examples.names)
    assert more.labels.tolist() == [[False, False, True, True]]


def test_sets_of_numbers_are_columns() -> None:
    examples = ArraySet([[0.0], [1.0]], [{0, 3}, {1}])
    assert examples.labels.tolist() == [
        [True, False, False, True], [False, True, False, False],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "names", "message"),
    [
        (TABLE.astype(int), None, r"dtype int64 and shape \(4, 3\).*astype"),
        (TABLE.astype(float), None, "labels.astype"),
        (TABLE[:3], None, "labels"),
        ([{0}, {"a"}, set(), set()], None, "only strings.*'a'"),
        ([{0}, {-1}, set(), set()], None, "'?-1"),
        ([{2**40}, {0}, set(), set()], None, "columns of a table"),
        (TABLE, ["a", "b", "c", "d"], "`names` of ArraySet must name columns"),
    ],
)
def test_unfit_label_sets_raise(labels, names, message) -> None:
    with pytest.raises(ValueError, match=message):
        ArraySet(np.arange(4.0), labels, names)


def test_label_sets_raise_where_one_label_is_needed() -> None:
    examples = ArraySet(np.arange(4.0), TABLE)
    with pytest.raises(ValueError, match="one label per example"):
        _ = examples.known_labels
    with pytest.raises(ValueError, match="MultiLabelBalanced"):
        ClassBalanced(examples.labels, classes_per_batch=2)


def test_joined_sets_must_have_the_same_labels() -> None:
    first = ArraySet(np.arange(4.0), TABLE)
    both = concatenate((first, first.select([0])))
    np.testing.assert_array_equal(both.labels, TABLE[[0, 1, 2, 3, 0]])
    with pytest.raises(ValueError, match="booleans for the same labels"):
        concatenate((first, first.relabeled()))
    with pytest.raises(ValueError, match="booleans for the same labels"):
        concatenate((first, ArraySet([9.0], [1])))
