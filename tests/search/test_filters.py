"""Searches among rows that pass a filter, against sorting their scores."""

import datetime
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml.search import Index, scans
from keras_dml.search.filters import Filters

COUNT, DIM = 500, 16

RNG = np.random.default_rng(0)
X = RNG.normal(size=(COUNT, DIM)).astype(np.float32)
QUERIES = RNG.normal(size=(30, DIM)).astype(np.float32)
SHARE = RNG.permutation(COUNT) / COUNT
COLUMNS = {"share": SHARE.tolist(), "name": [f"n{i % 5}" for i in range(COUNT)]}

KINDS = ["Flat", "IVF16,Flat", "HNSW8", "SQ8", "IVF16,PQ4x4np", "PQ4x4np",
         "HNSW8_SQ8", "PCA8,IVF16,Flat", "IVF16,PQ4x4np,RFlat"]  # fmt: skip


@functools.cache
def index_of(factory: str) -> Index:
    return Index(X, COLUMNS, factory=factory)


def units(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


@functools.cache
def all_scores(factory: str) -> np.ndarray:
    """Scores of the queries with all vectors as they are kept."""
    if factory in ("Flat", "IVF16,Flat", "HNSW8", "IVF16,PQ4x4np,RFlat"):
        return units(QUERIES) @ units(X).T
    settings = {"IVF": "nprobe=16", "HNSW": f"efSearch={COUNT}"}
    parameters = next((v for k, v in settings.items() if k in factory), "")
    index = Index(X, factory=factory, parameters=parameters)
    hits = index.search(QUERIES, COUNT)
    scores = np.empty((len(QUERIES), COUNT))
    np.put_along_axis(scores, hits.ids, hits.scores, axis=1)
    return scores


@pytest.mark.parametrize("share", [0.5, 0.01])
@pytest.mark.parametrize("factory", KINDS)
@pytest.mark.parametrize("count", [3, scans.GATHERED_QUERIES])
def test_filtered_search_is_exact(factory, share, count) -> None:
    index, queries = index_of(factory), QUERIES[:count]
    hits = index.search(queries, 10, where={"share": {"<": share}})
    rows = np.flatnonzero(share > SHARE)
    scores = all_scores(factory)[:count, rows]
    k = min(10, len(rows))
    expected = -np.sort(-scores, axis=1)[:, :k]
    np.testing.assert_allclose(hits.scores[:, :k], expected, atol=2e-6)
    assert set(hits.ids[:, :k].ravel()) <= set(rows)
    assert (hits.ids[:, k:] == -1).all()


CLASS = np.arange(2000) % 10
CENTERS = RNG.normal(size=(10, DIM))
APPROXIMATE = [
    ("HNSW16", 0.1),
    ("IVF32,Flat", 0.6),
    ("IVF32_HNSW8,Flat", 0.6),
    ("HNSW16,SQ8,RFlat", 0.1),
]


def near(classes, spread: float) -> np.ndarray:
    shape = len(classes), DIM
    return CENTERS[classes] + spread * np.random.default_rng(
        len(classes)
    ).normal(size=shape)


def recall_of(hits, scores: np.ndarray) -> float:
    """Recall by scores, (Q, N), -inf for filtered rows; k hits must exist."""
    assert (hits.ids >= 0).all()
    best = np.argsort(-scores, axis=1)[:, : hits.ids.shape[1]]
    pairs = zip(best, hits.ids, strict=True)
    return float(np.mean([np.isin(a, b).mean() for a, b in pairs]))


@pytest.mark.parametrize(("factory", "spread"), APPROXIMATE)
def test_recall_survives_removed_and_filtered_rows(factory, spread) -> None:
    """Filtered and removed classes are those of the queries."""
    x = near(CLASS, spread)
    index = Index(x, {"class": CLASS}, factory=factory)
    queries = near(np.arange(8) % 2, spread)
    min_recall = index.recall.at[10] - 0.02
    scores = units(queries) @ units(x).T
    scores[:, CLASS < 2] = -np.inf
    for k in (10, 60):
        hits = index.search(queries, k, where={"class": {">=": 2}})
        assert recall_of(hits, scores) == 1
    index.remove(np.flatnonzero(CLASS == 0))
    hits = index.search(queries, 10, where={"class": {"!=": 1}})
    assert recall_of(hits, scores) == 1
    scores[:, CLASS == 1] = (units(queries) @ units(x).T)[:, CLASS == 1]
    assert recall_of(index.search(queries, 10), scores) >= min_recall
    assert len(index._engine.hidden) == 200
    index.remove(where={"class": 1})
    scores[:, CLASS == 1] = -np.inf
    assert len(index._engine.hidden) == 400
    assert recall_of(index.search(queries, 10), scores) >= min_recall
    assert recall_of(index.search(queries, 1600), scores) == 1
    index.remove(where={"class": [2, 3, 4, 5]})  # Now more than half is gone.
    assert (len(index), len(index._engine.hidden)) == (800, 0)
    scores = index.search(x[CLASS > 5], 1).scores
    assert np.mean(scores > 0.999) > 0.99


@pytest.mark.parametrize(
    ("factory", "metric"),
    [("IVF64,SQ8", "euclidean"), ("PCA16,IVF64,Flat", "cosine")],
)  # fmt: skip
def test_neighbors_of_removed_rows_are_found(factory, metric) -> None:
    """Removed rows empty no list, so the nearest lie in other lists."""
    draw = np.random.default_rng(0)
    centers, group = draw.normal(size=(150, 16)), np.arange(6000) % 150
    x = centers[group] + 0.7 * draw.normal(size=(6000, 16))
    queries = centers[0] + 0.7 * draw.normal(size=(40, 16))
    index = Index(x, {"class": group}, metric=metric, factory=factory)
    least = index.recall.at[10] - 0.02
    index.remove(where={"class": 0})
    a, b = (units(queries), units(x)) if metric == "cosine" else (queries, x)
    scores = a @ b.T
    if metric == "euclidean":
        scores -= (x**2).sum(axis=1) / 2
    scores[:, group == 0] = -np.inf
    assert recall_of(index.search(queries, 10), scores) >= least


@pytest.mark.parametrize(
    ("factory", "parameters"),
    [("IVF32,SQ8,RFlat", None), ("HNSW16", "efSearch=10"),
     ("IVF32,Flat", "nprobe=2")],
)  # fmt: skip
def test_larger_k_keeps_the_recall(factory, parameters) -> None:
    x = np.random.default_rng(1).normal(size=(2000, DIM))
    index = Index(x, factory=factory, parameters=parameters)
    scores = units(QUERIES) @ units(x).T
    for k in (100, 500, 2000):
        hits = index.search(QUERIES, k)
        assert recall_of(hits, scores) >= index.recall.at[10] - 0.02


def test_lists_beyond_the_graph_are_searched() -> None:
    x = np.random.default_rng(1).normal(size=(4000, DIM))
    exact, graph = Index(x), Index(x, factory="IVF128_HNSW32,Flat")
    half = np.arange(4000) < 2000
    for search in (
        lambda index: index.search(QUERIES, 50, where=half),
        lambda index: index.range_search(QUERIES, 0.5),
    ):
        ids, expected = (np.sort(search(x).ids) for x in (graph, exact))
        assert ids.tolist() == expected.tolist()


def test_blockwise_comparison_gives_equal_scores(monkeypatch) -> None:
    monkeypatch.setattr(scans, "_COPIED_NUMBERS", 7 * DIM)
    index, where = index_of("PQ4x4np"), {"share": {"<": 0.5}}
    blockwise = index.search(QUERIES, 10, where=where)
    monkeypatch.undo()
    whole = index.search(QUERIES, 10, where=where)
    np.testing.assert_allclose(blockwise.scores, whole.scores, atol=1e-6)


DAY = datetime.date(2024, 5, 1)
NOON = datetime.datetime(2024, 5, 1, 12)

VALUES = {
    "edge": [2**53, 2**53 + 1, None, -(2**53) - 1, 5],
    "wide": [2.0**53, 2.0**53 + 2, None, -(2.0**60), 0.1],
    "tags": [["a", "b"], [], None, ["b", 3], ["c"]],
    "whole": [3, -1, None, 2**60, 2**60 + 1],
    "real": [0.5, None, -1.0, 3.0, 1e300],
    "mixed": [1, 2.5, None, 2**53 + 1, -3],
    "huge": [10**30, 1, None, -(10**30), 2],
    "flag": [True, False, None, True, False],
    "text": ["b", "a", None, "", "é"],
    "any": ["b", 1, None, 2.5, "1"],
    "box": [[1, 2], [3, 4], None, [1, 2], [0]],
    "none": [None] * 5,
}

FILTERS = Filters(VALUES, 5)

CASES = [
    ("whole", 2**60, [3]),
    ("whole", [3, -1, 4], [0, 1]),
    ("whole", range(-1, 4), [0, 1]),
    ("whole", {">": 3}, [3, 4]),
    ("whole", {">=": 2**60 + 1}, [4]),
    ("whole", 0, []),
    ("whole", 3.5, []),
    ("whole", {"!=": 3}, [1, 2, 3, 4]),
    ("whole", None, [2]),
    ("whole", [None, 3], [0, 2]),
    ("whole", np.array([3, -1]), [0, 1]),
    ("whole", np.int64(3), [0]),
    ("real", {">": 0, "<=": 3}, [0, 3]),
    ("real", 3, [3]),
    ("real", 10**400, []),
    ("mixed", {"<": 2}, [0, 4]),
    ("huge", 10**30, [0]),
    ("huge", {"<": 1}, [3]),
    ("real", {"<": 10**400}, [0, 2, 3, 4]),
    ("real", {"<": -(10**400)}, []),
    ("flag", True, [0, 3]),
    ("flag", 0, [1, 4]),
    ("flag", 10**20, []),
    ("text", "a", [1]),
    ("text", {"a", "b"}, [0, 1]),
    ("text", {">=": "b"}, [0, 4]),
    ("text", {"!=": ["a", "b"]}, [2, 3, 4]),
    ("any", 1, [1]),
    ("any", {"<": 2}, [1]),
    ("any", {"<": "2"}, [4]),
    ("box", [[1, 2]], [0, 3]),
    ("none", "a", []),
    ("edge", {">=": 4.5}, [0, 1, 4]),
    ("edge", {"<": float("inf")}, [0, 1, 3, 4]),
    ("edge", {"<": -(10**30)}, []),
    ("wide", {"<=": 2**53 + 1}, [0, 3, 4]),
    ("wide", {">": 2**53 + 1}, [1]),
    ("wide", np.float32(0.1), [4]),
    ("wide", {"<=": np.float32(0.1)}, [3, 4]),
    ("mixed", {"<=": np.float32(2.5)}, [0, 1, 4]),
    ("wide", float("inf"), []),
    ("whole", {"in": [3, -1]}, [0, 1]),
    ("whole", {"not in": [3, None]}, [1, 3, 4]),
    ("text", {"not in": ["a", "b"]}, [2, 3, 4]),
    ("tags", {"contains": "b"}, [0, 3]),
    ("tags", {"contains": ["a", "c"]}, [0, 4]),
    ("tags", {"contains": 3}, [3]),
    ("tags", {"in": [["a", "b"], []]}, [0, 1]),
    ("none", {"contains": "a"}, []),
]


@pytest.mark.parametrize(("name", "condition", "expected"), CASES)
def test_conditions_select_rows(name, condition, expected) -> None:
    mask = FILTERS.mask({name: condition})
    assert np.flatnonzero(mask).tolist() == expected


def test_masks_and_functions_select_rows() -> None:
    mask = [True, False, True, False, False]
    assert np.flatnonzero(FILTERS.mask(np.array(mask))).tolist() == [0, 2]
    index = Index(X[:5], {"a": [1, 2, 3, 4, 5], "t": list("xyxyx")})
    hits = index.search(X[0], where=lambda c: (c["a"] > 1) & (c["t"] == "x"))
    assert sorted(hits.keys[0]) == [2, 4]

    def writes(columns):
        columns["a"][:] = 0

    with pytest.raises(ValueError, match="read-only"):
        index.search(X[0], where=writes)
    assert list(FILTERS.mask(lambda c: c["text"] == None)) == [  # noqa: E711
        False, False, True, False, False]  # fmt: skip


REFUSED = [
    ({"wohle": 1}, "Did you mean 'whole'"),
    ({"whole": "3"}, "for the column 'whole', which holds number"),
    ({"text": {"<": 3}}, "3, a number, for the column 'text', which"),
    ({"text": {"contains": "a"}}, "contains with a column of lists"),
    ({"whole": {"=": 3}}, "Received: '=' for the column 'whole'"),
    ({"whole": {"<": None}}, "<, <=, > and >= with text or a number"),
    ({"whole": {"<": [1, 2]}}, "<, <=, > and >= with text or a number"),
    ({"real": np.nan}, "nan for the column 'real'"),
    ({"real": {">": np.nan}}, "nan for the column 'real'"),
    ({"text": b"a"}, "b'a' for the column 'text'"),
    ("whole", "Received: str of shape"),
    ([True] * 4, r"list of shape \(4,\)"),
    (lambda columns: [1, 0, 1, 0, 1], "dtype int64"),
    (lambda columns: columns["nothing"], "the names of its columns"),
]


def test_unfit_filters_raise() -> None:
    for where, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            FILTERS.mask(where)
    for k in (2**40, 2**70):
        with pytest.raises(ValueError, match=f"the gallery, 500, .*k={k}"):
            index_of("Flat").search(X[0], k)


def test_numbers_of_fewer_bits_equal_their_literals() -> None:
    prices = np.array([0.1, 2.5, 16777216], np.float32)
    index = Index(X[:3], {"p": prices, "h": prices[:2].astype("f2").tolist() + [
        np.float16(0.7)]})  # fmt: skip
    for condition in (0.1, np.float32(0.1), {"<=": 0.1}, [0.1, 7]):
        assert index.search(X[0], where={"p": condition}).keys == [[0]]
    assert index.search(X[0], where={"h": 0.7}).keys == [[2]]
    assert index[0]["p"] == 0.1


def test_dates_and_missing_values_of_a_frame_are_filtered(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    zone = datetime.timezone(datetime.timedelta(hours=2))
    frame = pandas.DataFrame(
        {
            "day": pandas.to_datetime(
                ["2024-04-30 00:00", "2024-05-01 12:00", None]
            ),
            "price": [1.5, np.nan, 2.0],
            "count": pandas.array([1, None, 3], "Int64"),
            "kind": pandas.Categorical(["x", None, "y"]),
            "date": [DAY, None, np.datetime64("2023-01-01")],
            "zone": [NOON.replace(tzinfo=zone), pandas.NaT, pandas.NA],
        },
        index=[7, 8, 9],
    )
    Index(X[:3], frame).save(tmp_path / "i")
    index = Index.load(tmp_path / "i")
    assert index[1]["price"] is None
    assert index[1]["count"] is None
    assert index.columns["kind"] == ["x", None, "y"]
    assert index[0]["zone"] == "2024-05-01T10:00:00+00:00"
    for where, keys in [
        ({"day": {">": DAY}}, [1]),
        ({"day": NOON}, [1]),
        ({"day": pandas.Timestamp(NOON)}, [1]),
        ({"day": np.datetime64("2024-05-01T12:00:00", "ns")}, [1]),
        ({"day": None}, [2]),
        ({"day": {"!=": pandas.NaT}}, [0, 1]),
        ({"date": {"in": [DAY]}}, [0]),
        ({"date": {"<": DAY}}, [2]),
        ({"zone": {"==": NOON.replace(hour=10, tzinfo=datetime.UTC)}}, [0]),
        ({"count": {">=": 1}}, [0, 2]),
        ({"price": None}, [1]),
    ]:
        assert sorted(index.search(X[0], where=where).keys[0]) == keys, where


@pytest.mark.parametrize("factory", ["Flat", "HNSW8"])
def test_each_query_may_have_its_own_conditions(factory) -> None:
    cameras = np.arange(COUNT) % 3
    index = Index(X, {"camera": cameras}, factory=factory)
    where = [{"camera": {"!=": i % 3}} for i in range(5)] + [None]
    hits = index.search(X[:6], 4, where=where, exclude=range(6))
    near = index.range_search(X[:6], 0.5, where=where)
    for i, one in enumerate(where):
        alone = index.search(X[i], 4, where=one, exclude=i)
        assert hits.ids[i].tolist() == alone.ids[0].tolist()
        assert hits.scores[i].tolist() == alone.scores[0].tolist()
        assert near.keys[i] == index.range_search(X[i], 0.5, where=one).keys[0]
    assert (cameras[hits.ids[:5]] != cameras[:5, None]).all()
    with pytest.raises(ValueError, match="6 conditions for 2 queries"):
        index.search(X[:2], where=where)


plain = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(
    [0.5, 1.0, -2.5, 2**53 + 1, 10**20, 10**400, "a", "b", "1"]
)  # fmt: skip


@given(st.lists(plain, min_size=1, max_size=8), st.lists(plain, max_size=3))
@settings(max_examples=60)
def test_equality_matches_python(values, choices) -> None:
    numbers = [x for x in values if x is not None]
    kinds = {isinstance(x, str) for x in numbers}
    fits = [
        x
        for x in choices
        if x is None or not kinds or isinstance(x, str) in kinds
    ]
    mask = Filters({"c": values}, len(values)).mask({"c": fits})
    assert mask.tolist() == [x in fits for x in values]
