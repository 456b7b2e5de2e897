"""One contract of all engines: what a database does is what faiss does."""

import numpy as np
import pytest

from keras_dml.export.gallery import as_gallery
from keras_dml.reports.search_page import results_page
from keras_dml.search import Index, open_index
from tests.search.conftest import DATABASES, ENGINES

COUNT, DIM = 300, 12
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(COUNT, DIM)).astype(np.float32)
QUERIES = np.concatenate([X[:2], DRAW.normal(size=(4, DIM))])
KEYS = [f"k'{i}\"\\é" for i in range(COUNT)]
TEXTS = ["", "a", "B", "b c", "q'\"\\é\n\t%", "_%", "é", "z" * 40]
COLUMNS = {
    "n": [None if i % 7 == 0 else i % 13 - 5 for i in range(COUNT)],
    "big": [2**53 + i for i in range(COUNT)],
    "x": [None if i % 11 == 0 else i / 7 for i in range(COUNT)],
    "text": [None if i % 5 == 0 else TEXTS[i % 8] for i in range(COUNT)],
    "ok": [None if i % 4 == 0 else i % 3 == 0 for i in range(COUNT)],
    "odd name é": [i % 3 for i in range(COUNT)],
    "in": ["and", "or", "null"] * 100,
    "list": [[1, i, None] for i in range(COUNT)],
    "none": [None] * COUNT,
}


walk = pytest.mark.parametrize("at", ENGINES, indirect=True)
databases = pytest.mark.parametrize("at", DATABASES, indirect=True)


def same(found, expected) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
    assert found.keys == expected.keys


def rows_of(index: Index):
    return index.keys, index.ids.tolist(), index.columns


@walk
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_searches_are_those_of_faiss(at, metric) -> None:
    local = Index(X, COLUMNS, keys=KEYS, metric=metric)
    index = Index(X, COLUMNS, keys=KEYS, metric=metric, store=at("gallery"))
    for k in (1, 7, 90, COUNT + 5):
        same(index.search(QUERIES, k), local.search(QUERIES, k))
    same(index.search(X[:130], 3), local.search(X[:130], 3))
    where = {"n": {">": 0}}
    found = index.search(QUERIES, 5, where=where, exclude=KEYS[:6])
    expected = local.search(QUERIES, 5, where=where, exclude=KEYS[:6])
    same(found, expected)
    assert [x.row for x in found[0]] == [x.row for x in expected[0]]
    threshold = float(local.search(QUERIES, 80).scores[0, 69:71].mean())
    same(
        index.range_search(QUERIES, threshold, where=where),
        local.range_search(QUERIES, threshold, where=where),
    )
    assert np.array_equal(index.embeddings, local.embeddings)
    assert rows_of(index) == rows_of(local)
    index.close()


def some_filter(draw: np.random.Generator):
    """A filter of one or two columns, as a user might write it."""

    def value(name):
        values = COLUMNS[name] if name != "list" else [None]
        kinds = set(map(type, values)) - {type(None)}
        others = [None]
        if kinds & {int, float, bool}:
            others += [True, 0, 1.0, 2.5, -3, 10**30, -(2**63), 1e300, -0.5,
                       2**53, 2.0**53 + 2, float("inf")]  # fmt: skip
        elif str in kinds:
            others += ["c", "\\", "'; --", "é\x01", "B"]
        pool = [*values[:40], *others]
        return pool[draw.integers(len(pool))]

    where = {}
    for name in draw.choice(list(COLUMNS), draw.integers(1, 3), replace=False):
        kind = draw.integers(4)
        if kind == 0:
            where[name] = value(name)
        elif kind == 1:
            where[name] = [value(name) for _ in range(3)]
        elif kind == 2:
            where[name] = {"!=": [value(name), value(name)]}
        else:
            pair = [("<", ">="), ("<=", ">")][draw.integers(2)]
            given = {sign: value(name) for sign in pair}
            where[name] = {s: x for s, x in given.items() if x is not None}
    return where


@databases
def test_filters_pass_what_a_mask_passes(at) -> None:
    local = Index(X, COLUMNS, keys=KEYS)
    index = Index(X, COLUMNS, keys=KEYS, store=at("gallery"))
    draw, passed = np.random.default_rng(1), []
    for _ in range(150):
        where = some_filter(draw)
        expected = local.search(QUERIES[:2], 9, where=where)
        same(index.search(QUERIES[:2], 9, where=where), expected)
        passed.append((expected.ids[0] >= 0).sum())
    assert passed.count(0) > 10
    assert passed.count(9) > 50
    index.close()


@walk
@pytest.mark.parametrize("keys", [KEYS, list(range(7, 7 + COUNT)), None])
def test_changes_are_those_of_faiss(at, keys) -> None:
    both = [
        Index(X[:200], {"n": COLUMNS["n"][:200]}, keys=keys and keys[:200],
              store=address)
        for address in (None, at("gallery"))
    ]  # fmt: skip
    for index in both:
        new = keys and keys[200:203]
        index.add(X[200:203], {"n": [1, 2, 3], "new": list("abc")}, keys=new)
        named = keys or list(range(COUNT))
        index.update(named[:2], {"n": [50, None], "more": [0.5, 1.5]})
        assert index.remove(named[10:12]) == 2
        assert index.remove(where={"n": 4}) > 5
        if keys:
            changed = index.upsert([*keys[4:6], keys[250]], X[4:7],
                                   {"n": [7, 8, 9]})  # fmt: skip
            assert changed.tolist() == [203, 204, 205]
        with pytest.raises(KeyError, match="does not exist"):
            index.remove([named[10], named[20]])
        with pytest.raises(ValueError, match="finite"):
            index.add(np.full((1, DIM), np.nan), keys=keys and keys[260:261])
        if keys:
            with pytest.raises(ValueError, match="must be new"):
                index.add(X[:1], keys=keys[20:21])
        assert named[20] in index
        assert named[10] not in index
    local, index = both
    assert rows_of(index) == rows_of(local)
    assert index[(keys or range(COUNT))[0]]["more"] == 0.5
    same(index.search(QUERIES, 30), local.search(QUERIES, 30))
    index.close()


@databases
def test_an_index_is_opened_as_it_was(at) -> None:
    index = Index(X, COLUMNS, keys=KEYS, store=at("gallery"))
    threshold = index.calibrate(X[:40], np.arange(40) % 4, num_resamples=20)
    again = open_index(at("gallery"))
    assert again.threshold == threshold
    assert (again.factory, again.metric, len(again)) == ("Flat", "cosine", 300)
    hits = again.search(QUERIES, 3)
    same(hits, index.search(QUERIES, 3))
    local = Index(X, COLUMNS, keys=KEYS)
    local.threshold = threshold
    pages = [
        results_page(["a.png"] * 6, i.search(QUERIES, 3))
        for i in (again, local)
    ]
    assert pages[0] == pages[1]
    # A reader sees what is written after it was opened.
    index.add(QUERIES[2], {"text": ["new"]}, keys=["new"])
    assert again.search(QUERIES[2], 1).keys == [["new"]]
    index.close(), again.close()


@databases
@pytest.mark.parametrize("factory", ["IVF8,Flat", "IVF8,PQ4", "HNSW16"])
def test_kinds_that_are_not_exact_find_most(at, factory) -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(1000, DIM)).astype(np.float32)
    share = (draw.permutation(1000) / 1000).tolist()
    index = Index(x, {"share": share}, factory=factory, store=at("gallery"))
    local = Index(x, {"share": share})
    for most, least in ((2, 0.8), (0.1, 0.95), (0.01, 0.95)):
        where = {"share": {"<": most}}
        found = index.search(x[:50], 10, where=where)
        expected = local.search(x[:50], 10, where=where)
        shares = [
            np.isin(a, b).mean()
            for a, b in zip(expected.ids, found.ids, strict=True)
        ]
        assert np.mean(shares) >= least
        hit = found.scores[0, 0]
        assert hit == pytest.approx(expected.scores[0, 0], abs=1e-5)
    assert open_index(at("gallery")).parameters in ("nprobe=3", "efSearch=64")
    index.close()


@databases
@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_precisions_are_kinds_of_a_database(at, precision) -> None:
    if precision == "binary" and at("x").startswith("milvus"):
        pytest.skip("Milvus Lite has no such kind")
    x = np.random.default_rng(3).normal(size=(1000, 32)).astype(np.float32)
    kind = {"factory": "IVF8,Flat", "parameters": "nprobe=8"}
    index = Index(x, precision=precision, store=at("gallery"), **kind)
    found, expected = index.search(x[:50], 10), Index(x).search(x[:50], 10)
    shares = [
        np.isin(a, b).mean()
        for a, b in zip(expected.ids, found.ids, strict=True)
    ]
    # 32 bits tell little of 32 numbers without clusters.
    code, least = {"int8": ("SQ8", 0.95), "binary": ("RaBitQ", 0.8)}[precision]
    assert np.mean(shares) > least
    assert open_index(at("gallery")).factory == f"IVF8,{code}"
    with pytest.raises(ValueError, match="a `precision` is one of the kinds"):
        Index(x, precision=precision, store=at("other"))
    index.close()


@databases
def test_what_a_database_cannot_do_says_which_can(at) -> None:
    index = Index(X[:50], {"n": list(range(50))}, store=at("gallery"))
    for where in (np.ones(50, bool), lambda columns: columns["n"] > 3):
        with pytest.raises(ValueError, match="Functions and masks require"):
            index.search(X[0], where=where)
    with pytest.raises(ValueError, match="to compare lists"):
        Index(X[:2], {"list": [[1], [2]]}, store=at("lists")).search(
            X[0], where={"list": [[1]]}
        )
    with pytest.raises(ValueError, match="'contains' for the column 'list'"):
        open_index(at("lists")).search(X[0], where={"list": {"contains": 1}})
    with pytest.raises(ValueError, match="Available: n"):
        index.search(X[0], where={"m": 3})
    with pytest.raises(ValueError, match="a text, for the column 'n'"):
        index.search(X[0], where={"n": "x"})
    with pytest.raises(ValueError, match="folder to (mix|change) types"):
        index.add(X[:1], {"n": [2.5]})
    with pytest.raises(ValueError, match=r"Use open_index\(uri\)"):
        index.save("somewhere")
    with pytest.raises(ValueError, match="must be in memory"):
        as_gallery(None, index)
    with pytest.raises(ValueError, match="`factory` of an Index in"):
        Index(X, factory="NSG8", store=at("other"))
    with pytest.raises(ValueError, match="`parameters` of an Index in"):
        Index(X, parameters="nprobe=3", store=at("other"))
    assert len(index) == 50
    index.close()


@pytest.mark.parametrize("at", DATABASES[1:], indirect=True)
def test_limits_of_milvus(at) -> None:
    index = Index(X[:50], store=at("gallery"))
    with pytest.raises(ValueError, match="at most 16,384 in Milvus"):
        index.search(X[0], 20_000)
    with pytest.raises(ValueError, match="60,000 bytes per row"):
        index.add(X[:1], {"long": ["x" * 70_000]})
    fast = Index(X[:50], factory="HNSW8", store=at("fast"))
    with pytest.raises(ValueError, match="Use LanceDB or an index in a folder"):
        fast.range_search(X[0], 0.5)
    index.close(), fast.close()
