"""`evaluate_embeddings`: inputs, errors and results."""

import json
import pickle

import keras
import numpy as np
import pytest

from keras_dml.data import ArraySet
from keras_dml.evaluation import Results, evaluate, evaluate_embeddings


def data(count: int = 60, dims: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, dims)), rng.integers(0, 8, count)


def test_default_metrics_are_recalls_and_map_at_r():
    x, labels = data()
    results = evaluate_embeddings(x, labels)
    assert list(results) == [
        "recall@1",
        "recall@2",
        "recall@4",
        "recall@8",
        "r_precision",
        "map@r",
    ]
    assert results["recall@1"] <= results["recall@2"] <= results["recall@4"]
    assert (results.num_queries, results.gallery_size, results.num_classes) == (
        60,
        60,
        8,
    )


def test_names_keep_their_order_and_come_once():
    x, labels = data()
    names = ["nmi", "map@k", "recall@3", "map@10", "mrr", "recall@3"]
    results = evaluate_embeddings(x, labels, metrics=names, ks=(5, 10))
    assert list(results) == ["nmi", "map@5", "map@10", "recall@3", "mrr"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int16"])
def test_other_dtypes_give_equal_results(dtype):
    x, labels = data()
    x = (x * 100).astype(dtype)
    expected = evaluate_embeddings(x.astype(np.float64), labels)
    for same in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        assert dict(evaluate_embeddings(same, labels)) == dict(expected)


def test_inputs_are_not_modified():
    x, labels = data()
    before = x.copy(), labels.copy()
    x.flags.writeable = labels.flags.writeable = False
    evaluate_embeddings(x, labels, metrics=("recall@1", "nmi", "density"))
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(labels, before[1])


def test_excluded_queries_are_counted():
    x, labels = data()
    labels[:3] = [100, 101, 102]
    results = evaluate_embeddings(x, labels)
    assert (results.num_queries, results.num_excluded) == (57, 3)
    np.testing.assert_array_equal(results.query_rows, np.arange(3, 60))
    np.testing.assert_array_equal(results.query_labels, labels[3:])
    assert "57 queries (3 more without a relevant image)" in str(results)


@pytest.mark.parametrize("count", [1, 60])
def test_queries_without_relevant_images_raise(count):
    message = f"at least one query.*{count} queries, {count} gallery images"
    with pytest.raises(ValueError, match=message):
        evaluate_embeddings(data(count)[0], np.arange(count) * 2**40)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_embeddings_raise(bad):
    x, labels = data()
    x[[7, 30], 2] = bad
    with pytest.raises(ValueError, match="2 of 60 rows .* row 7"):
        evaluate_embeddings(x, labels)
    with pytest.raises(ValueError, match="`gallery` of .* 2 of 60"):
        evaluate_embeddings(x[:5], labels[:5], gallery=x, gallery_labels=labels)


X, LABELS = data()


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"embeddings": X[:0], "labels": LABELS[:0]},
            r"`embeddings` .* embeddings.shape=\(0, 4\)",
        ),
        ({"embeddings": X[0]}, r"embeddings.shape=\(4,\)"),
        ({"embeddings": X[:, :0]}, r"embeddings.shape=\(60, 0\)"),
        ({"embeddings": X * 1j}, "embeddings.dtype=complex128"),
        ({"embeddings": X > 0}, "embeddings.dtype=bool"),
        ({"embeddings": X.astype(str)}, "embeddings.dtype=<U"),
        ({"labels": None}, "labels of type NoneType"),
        ({"labels": LABELS[1:]}, r"labels.shape=\(59,\) for 60"),
        ({"labels": LABELS[:, None]}, r"labels.shape=\(60, 1\)"),
        ({"labels": LABELS + 0.0}, "labels.dtype=float64"),
        ({"labels": LABELS > 3}, "labels.dtype=bool"),
        ({"distance": "l2"}, "distance='l2'"),
        ({"metrics": ()}, r"metrics=\(\)"),
        ({"metrics": "recal@1"}, "Did you mean 'recall@1'"),
        ({"metrics": ["map@R"]}, "which is 'map@r' here"),
        ({"metrics": ["recall"]}, "which is 'recall@k' here"),
        ({"metrics": ["recall@0"]}, "'recall@0'"),
        ({"metrics": ["zzz"]}, "'zzz'. Known: ami, density"),
        ({"ks": (1, 0)}, r"ks=\(1, 0\)"),
        ({"ks": ()}, r"ks=\(\)"),
        ({"seeds": ()}, r"seeds=\(\)"),
        ({"memory": "lots"}, "memory='lots'"),
        ({"memory": -5}, "memory=-5"),
        ({"memory": "3KB"}, "at least 1MB"),
        ({"gallery_labels": LABELS}, "gallery=None"),
        ({"gallery": X}, "gallery_labels of type NoneType"),
        (
            {"gallery": X[:, 1:], "gallery_labels": LABELS},
            r"embeddings.shape=\(60, 4\), gallery.shape=\(60, 3\)",
        ),
        *(
            ({"prefixes": prefixes}, "`prefixes` of")
            for prefixes in ((), (0,), (5,), (2.0,))
        ),
        # Of three parts, none is left for the last.
        *(({"parts": parts}, "`parts` of") for parts in (1, 2.0, 5, 3)),
        ({"protocol": "vehicleid"}, "`protocol` of"),
        ({"protocol": []}, "`protocol` of"),
        (
            {
                "gallery": X[1:],
                "gallery_labels": LABELS[1:],
                "protocol": "all_vs_all",
            },
            "Omit one of them",
        ),
        *(
            ({"metrics": f"fnmr@fmr={share}"}, "x a share such as 0.01")
            for share in ("x", "2", "0.0")
        ),
        ({"metrics": "macro/nmi"}, "must be known metrics"),
        ({"metrics": "x/map@r"}, "must be known metrics"),
        (
            {"metrics": "fnmr@fmr=0.1", "distance": lambda x, y: x @ y.T},
            "`distance` of .* must be one of",
        ),
        ({"exclude": LABELS[1:]}, r"exclude.shape=\(59,\)"),
        ({"exclude": X[:, 0]}, "exclude.dtype=float64"),
        (
            {"gallery": X, "gallery_labels": LABELS, "exclude": LABELS},
            "exclude of type ndarray",
        ),
    ],
)
def test_unfit_arguments_raise(changes, message):
    with pytest.raises(ValueError, match="of evaluate_embeddings") as error:
        evaluate_embeddings(**{"embeddings": X, "labels": LABELS, **changes})
    error.match(message)
    error.match("Received: ")


# Results.


@pytest.fixture
def results() -> Results:
    metrics = "recall@1", "nmi"
    return evaluate_embeddings(X, LABELS, metrics=metrics, seeds=(0, 1))


def test_results_are_a_mapping(results):
    assert list(results) == ["recall@1", "nmi"]
    assert all(type(value) is float for value in results.values())
    with pytest.raises(KeyError, match="'map@r' was not measured"):
        results["map@r"]
    assert "map@r" not in results


def test_results_print_metrics_and_setting(results):
    lines = str(results).splitlines()
    assert lines[0].split() == ["recall@1", f"{results['recall@1']:.4f}"]
    assert lines[1].startswith("nmi") and lines[1].endswith("(2 seeds)")
    assert lines[2] == "60 queries, gallery of 60, 8 classes, cosine"
    assert repr(results) == (
        f"Results(recall@1={results['recall@1']:.4f}, nmi={results['nmi']:.4f})"
    )


def test_results_convert_to_json(results):
    loaded = json.loads(json.dumps(results.to_dict()))
    assert loaded["metrics"] == dict(results)
    assert loaded["num_queries"] == 60
    assert len(loaded["per_seed"]["nmi"]) == 2


def test_class_means_are_keyed_by_name_if_all_have_one():
    x, labels = data()
    x = x.astype("float32")
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Identity()])
    options = {"metrics": "map@r", "progress": False}
    by_number = evaluate_embeddings(x, labels, **options).per_class("map@r")
    called = {n: f"class {n}" for n in range(8)}
    texts = [called[n] for n in labels]
    means = {called[n]: mean for n, mean in by_number.items()}
    for examples in (ArraySet(x, texts), ArraySet(x, labels, called)):
        results = evaluate(plain, examples, **options)
        assert results.per_class("map@r") == means
        assert pickle.loads(pickle.dumps(results)).per_class("map@r") == means  # noqa: S301
        # Labels that are given have no names of these examples.
        other = evaluate(plain, examples, labels, **options)
        assert other.per_class("map@r") == by_number
    partial_names, same = {0: "class 0"}, dict.fromkeys(range(8), "class")
    for names in (partial_names, same):
        results = evaluate(plain, ArraySet(x, labels, names), **options)
        assert results.per_class("map@r") == by_number
    queries, gallery = ArraySet(x, texts), ArraySet(x[::-1], texts[::-1])
    results = evaluate(plain, queries, gallery=gallery, **options)
    assert set(results.per_class("map@r")) == set(texts)


def test_progress_names_the_search(monkeypatch):
    seen = []

    def track(items, total, description):
        items = list(items)
        assert len(items) == total
        seen.append(description)
        return items

    monkeypatch.setattr("keras_dml.utils.progress.track", track)
    expected = dict(evaluate_embeddings(X, LABELS))
    assert not seen
    assert dict(evaluate_embeddings(X, LABELS, progress=True)) == expected
    assert seen == ["Searching for 60 of 60"]
