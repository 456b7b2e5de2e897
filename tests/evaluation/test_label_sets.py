"""Several labels per example, against loops over full rankings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from keras_dml.evaluation import (
    Protocol,
    bootstrap,
    compare,
    evaluate_embeddings,
)
from tests.evaluation import naive

METRICS = ("recall@1", "r_precision", "map@r", "map", "ndcg@4", "mrr", "minp")


def data(seed: int = 0, count: int = 40, tags: int = 6, width: int = 2):
    """Points with many equal scores, and sets of labels, some empty."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-width, width + 1, (count, 3)).astype(np.float32)
    table = (rng.random((count, tags)) < 0.25).astype(int)
    table[:2] = 0
    table[2:4] = np.eye(tags, dtype=int)[0]
    return x, table


def gain(first: set[int], second: set[int], relevance: str) -> float:
    shared = len(first & second)
    if relevance == "all":
        return float(first == second and bool(first))
    if relevance == "shared":
        return float(shared)
    if relevance == "jaccard":
        return shared / len(first | second) if shared else 0.0
    return float(shared > 0)


def expected(order, sets, relevance, name, gallery_sets=None):
    """The metric of every query that has a relevant image."""
    values = []
    for query_set, rows in zip(sets, order, strict=True):
        gains = [
            gain(query_set, (gallery_sets or sets)[j], relevance) for j in rows
        ]
        if any(gains):
            hits = [bool(x) for x in gains]
            is_graded = name.startswith("ndcg@")
            values.append(
                naive.ndcg(gains, int(name[5:]))
                if is_graded
                else naive.metric(name, hits)
            )
    return values


def as_sets(table: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in table]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(6, 30),
    relevance=st.sampled_from(["any", "shared", "jaccard", "all"]),
    distance=st.sampled_from(["euclidean", "dot"]),
)
def test_metrics_match_a_naive_ranking_on_any_lattice(
    seed, count, relevance, distance
):
    x, table = data(seed, count)
    order = naive.rankings(x, x, distance, lambda i, j: i == j)
    results = evaluate_embeddings(
        x, table, metrics=METRICS, distance=distance, relevance=relevance
    )
    for name in METRICS:
        values = expected(order, as_sets(table), relevance, name)
        np.testing.assert_allclose(
            results.per_query[name], values, rtol=1e-12, err_msg=name
        )


def test_all_forms_of_label_sets_are_equivalent():
    x, table = data(1)
    names = [{f"tag {i}" for i in tags} for tags in as_sets(table)]
    results = [
        evaluate_embeddings(x, labels, metrics=METRICS, relevance="shared")
        for labels in (table, table > 0, csr_array(table), names)
    ]
    for other in results[1:]:
        assert compare(results[0], other).keys() == set(METRICS)
        assert dict(other) == dict(results[0])


def test_single_labels_equal_classes():
    x, table = data(2)
    labels = np.random.default_rng(0).integers(0, 5, len(x))
    table = np.eye(5, dtype=int)[labels]
    several = evaluate_embeddings(
        x, table, metrics=METRICS, relevance="jaccard"
    )
    one = evaluate_embeddings(x, labels, metrics=METRICS)
    assert dict(several) == dict(one)
    assert several.num_classes == one.num_classes


def test_galleries_and_cameras_are_heeded():
    x, table = data(4, 60)
    cameras = np.random.default_rng(0).integers(0, 2, 60)
    sets = as_sets(table)

    def ignored(i, j):
        return bool(sets[i] & sets[30 + j]) and cameras[i] == cameras[30 + j]

    order = naive.rankings(x[:30], x[30:], "dot", ignored)
    results = evaluate_embeddings(
        x[:30],
        sets[:30],
        gallery=x[30:],
        gallery_labels=sets[30:],
        exclude=(cameras[:30], cameras[30:]),
        metrics=METRICS,
        distance="dot",
    )
    for name in METRICS:
        values = expected(order, sets[:30], "any", name, sets[30:])
        np.testing.assert_allclose(results.per_query[name], values, rtol=1e-12)


def test_macro_means_count_a_query_for_each_of_its_labels():
    x, table = data(5)
    results = evaluate_embeddings(x, table, metrics=("macro/map", "map"))
    tags = table[results.query_rows]
    values = results.per_query["map"]
    means = {
        label: values[tags[:, label] > 0].mean()
        for label in range(6)
        if tags[:, label].any()
    }
    assert results.per_class("map") == pytest.approx(means)
    expected = np.mean(list(means.values()))
    assert results["macro/map"] == pytest.approx(expected)
    interval = bootstrap(results, num_resamples=50)["macro/map"]
    assert interval.estimate == pytest.approx(expected)
    assert interval.low < expected < interval.high


def test_metrics_of_the_space_need_no_classes():
    x, table = data(6)
    results = evaluate_embeddings(
        x, table, metrics=("pcf@0.5", "fnmr@fmr=0.1", "map")
    )
    assert np.isfinite(list(results.values())).all()
    for metric, message in (
        ("nmi", "must not compare"),
        ("density", "one class"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_embeddings(x, table, metrics=metric)


X, TABLE = data()


@pytest.mark.parametrize(
    "labels, options, message",
    [
        (TABLE * 2, {}, "zeros and ones"),
        (TABLE / 2, {}, "zeros and ones"),
        (TABLE[1:], {}, "labels of 39 and 40 embeddings"),
        (as_sets(TABLE)[1:], {}, "labels of 39 and 40 embeddings"),
        (TABLE, {"relevance": "some"}, "relevance='some'"),
        (TABLE[:, 0], {"relevance": "all"}, "one label per example"),
        (TABLE * 0, {}, "no such pair"),
        (TABLE, {"protocol": "official"}, "one example per class"),
        (
            TABLE,
            {"gallery": X, "gallery_labels": TABLE[:, 1:]},
            "must have the same columns",
        ),
    ],
)
def test_unfit_label_sets_raise(labels, options, message):
    with pytest.raises(ValueError, match="evaluate_embeddings") as error:
        evaluate_embeddings(X, labels, **options)
    error.match(message)


# Levels of a hierarchy.


def hierarchy() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    species = rng.integers(0, 25, 80)
    return rng.standard_normal((80, 4)), species, species // 5


LEVEL_METRICS = ("recall@1", "map@r", "map", "macro/map@r", "nmi", "density")


@pytest.mark.parametrize("memory", ["1MB", "512MB"])
def test_levels_equal_separate_evaluations(memory):
    x, species, family = hierarchy()
    options = {"metrics": LEVEL_METRICS, "memory": memory}
    together = evaluate_embeddings(
        x, {"species": species, "family": family}, **options
    )
    table = np.stack([species, family], axis=1)
    by_name = evaluate_embeddings(
        x, table, levels=("species", "family"), **options
    )
    assert dict(by_name) == dict(together)
    for level, labels in (("species", species), ("family", family)):
        alone = evaluate_embeddings(x, labels, **options)
        for name in LEVEL_METRICS:
            assert together[f"{level}/{name}"] == alone[name]
        values = together.per_query[f"{level}/map"]
        is_common = np.isin(together.query_rows, alone.query_rows)
        np.testing.assert_array_equal(values[is_common], alone.per_query["map"])
        assert np.isnan(values[~is_common]).all()
        means = together.per_class(f"{level}/map@r")
        assert means == alone.per_class("map@r")
    # Some queries are alone in their species, none in its family.
    assert together.num_queries == 80
    assert np.isnan(together.per_query["species/map"]).any()


@pytest.mark.parametrize("kind", [str, object, bytes])
def test_strings_are_classes(kind):
    x, species, family = hierarchy()
    names = np.array([f"é{i:02}" for i in range(25)])
    if kind is bytes:
        names = np.char.encode(names)
    texts = names.astype(object if kind is object else names.dtype)[species]
    options = {"metrics": ("map", "macro/map@r", "density")}
    alone = evaluate_embeddings(x, species, **options)
    results = evaluate_embeddings(x, texts, **options)
    assert dict(results) == dict(alone)
    means = {f"é{k:02}": v for k, v in alone.per_class("map").items()}
    assert results.per_class("map") == means
    # Queries and gallery have different classes, numbered alike.
    for class_ids, of_strings in (
        (species, texts),
        (species[::-1], texts[::-1]),
    ):
        split = {"gallery": x[30:], "gallery_labels": class_ids[30:]}
        expected = evaluate_embeddings(
            x[:30], class_ids[:30], metrics="map", **split
        )
        split["gallery_labels"] = {"a": of_strings[30:]}
        by_level = evaluate_embeddings(
            x[:30], {"a": of_strings[:30]}, metrics="map", **split
        )
        assert by_level["a/map"] == expected["map"]
    with pytest.raises(ValueError, match="`gallery_labels` .* must be integ"):
        evaluate_embeddings(
            x[:30], species[:30], gallery=x[30:], gallery_labels=texts[30:]
        )


def test_level_without_relevant_images_raises():
    x, species, _ = hierarchy()
    with pytest.raises(ValueError, match="at the level 'own'"):
        evaluate_embeddings(x, {"species": species, "own": np.arange(80)})


@pytest.mark.parametrize(
    "labels, levels, message",
    [
        (np.zeros((4, 2), int), ("a",), "one column for each"),
        (np.zeros((4, 2), int), ("a", "a"), "different names"),
        (np.zeros((4, 2), int), ("a", "b/c"), "without a slash"),
        ({"a": np.zeros(4, int)}, ("b",), "must be keys of"),
        ({}, None, "must be keys of"),
        ({"a": np.zeros(3, int)}, None, r"labels\['a'\].shape=\(3,\)"),
    ],
)
def test_unfit_levels_raise(labels, levels, message):
    with pytest.raises(ValueError, match=message):
        evaluate_embeddings(np.eye(4), labels, levels=levels)


# Prefixes.


def test_prefixes_equal_separate_evaluations():
    x, species, family = hierarchy()
    labels = {"species": species, "family": family}
    options = {"metrics": ("recall@1", "nmi", "pcf@0.9", "macro/map")}
    results = evaluate_embeddings(x, labels, prefixes=(2, 4), **options)
    for size in (2, 4):
        alone = evaluate_embeddings(x[:, :size], labels, **options)
        for name, value in alone.items():
            assert results[f"{size}/{name}"] == value
            assert size == 2 or results[name] == value
    assert len(results) == 3 * 2 * 4
    assert set(bootstrap(results, num_resamples=20)) == set(results.per_query)
    means = results.per_class("2/species/macro/map")
    assert results["2/species/macro/map"] == np.mean(list(means.values()))


# Distances of one's own.


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), classes=st.integers(1, 5))
def test_function_may_be_the_distance(seed, classes):
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (20, 2)).astype(np.float32)
    labels, cameras = rng.integers(0, classes, 20), rng.integers(0, 2, 20)
    labels[:2], cameras[:2] = 0, (0, 1)

    def squared(queries, gallery):
        return np.square(queries[:, None] - gallery).sum(-1)

    options = {"metrics": METRICS, "exclude": cameras}
    by_function = evaluate_embeddings(
        x, labels, distance=squared, memory="1MB", **options
    )
    by_name = evaluate_embeddings(x, labels, distance="euclidean", **options)
    assert dict(by_function) == dict(by_name)
    assert by_function.distance == "squared"
    protocol = Protocol(np.arange(15), np.arange(5, 20)[::-1])
    options = {"metrics": METRICS, "protocol": protocol}
    labels[5:7] = 0
    by_function = evaluate_embeddings(x, labels, distance=squared, **options)
    by_name = evaluate_embeddings(x, labels, distance="euclidean", **options)
    assert dict(by_function) == dict(by_name)


@pytest.mark.parametrize(
    "function", [lambda x, y: x @ x.T, lambda x, y: x @ y.T * np.nan]
)
def test_unfit_distances_raise(function):
    labels = np.zeros(4, int)
    protocol = Protocol(np.arange(2))
    with pytest.raises(ValueError, match=r"returns distances, \(n, G\)"):
        evaluate_embeddings(
            np.eye(4), labels, distance=function, protocol=protocol
        )
