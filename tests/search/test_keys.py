"""Keys of rows: reading, searching, replacing and removing."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from keras_dml.search import Index

X = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)


def small(**options) -> Index:
    columns = {"price": [5, 7, 9], "name": ["a", "b", "c"]}
    return Index(X[:3], columns, keys=["p", "q", "r"], **options)


def replace(index: Index, keys, x, **columns) -> np.ndarray:
    return index.add(x, columns, keys=keys, replace=True)


def state(index: Index):
    hits = index.search(X[:5], len(index))
    return index.keys, index.ids.tolist(), index.columns, hits.scores.tolist()


def test_rows_are_addressed_by_keys() -> None:
    index = small()
    assert index.keys == list(index) == ["p", "q", "r"]
    assert index["q"] == {"price": 7, "name": "b"}
    assert ("q" in index, "x" in index, 1 in index) == (True, False, False)
    hits = index.search(X[1])
    assert hits.keys[0][0] == hits[0][0].key == "q"
    without_p = index.search(X[:2], 3, exclude=["p", "not there"])
    assert [len(keys) for keys in without_p.keys] == [2, 3]
    assert "p" not in without_p.keys[0]
    with pytest.raises(KeyError, match="no row 'x'"):
        index["x"]


def test_rows_without_keys_are_addressed_by_ids() -> None:
    index = Index(X[:3], {"price": [5, 7, 9]})
    index.remove(0)
    assert (index.keys, index[2], 2 in index, 0 in index) == (
        [1, 2], {"price": 9}, True, False)  # fmt: skip
    with pytest.raises(KeyError):
        index[0]
    with pytest.raises(ValueError, match="have no keys"):
        index["p"]


def test_keys_may_be_a_column() -> None:
    index = Index(X[:2], {"sku": [7, 2**62]}, keys="sku")
    assert index.keys == [7, 2**62]
    with pytest.raises(ValueError, match="Available: sku"):
        Index(X[:2], {"sku": [7, 8]}, keys="path")


@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat", "HNSW8"])
def test_add_replaces_rows_with_the_same_keys(factory, tmp_path) -> None:
    keys = [f"k{i}" for i in range(150)]
    parameters = "nprobe=4" if "IVF" in factory else None
    index = Index(X[:150], {"n": range(150)}, keys=keys, factory=factory,
                  parameters=parameters)  # fmt: skip
    # What was at the place of one is then at that of another.
    ids = replace(index, ["k3", "new", "k9"], X[[160, 161, 3]], m=[1, 2, 3])
    assert ids.tolist() == [150, 151, 152]
    assert len(index) == 151
    assert index["k3"] == {"n": None, "m": 1}
    assert index.keys[-3:] == ["k3", "new", "k9"]
    for loaded in (False, True):
        if loaded:
            index.save(tmp_path / "i")
            index = Index.load(tmp_path / "i")
        hits = index.search(X[[160, 161, 3, 9, 5]], 151)
        assert all(len(set(x)) == len(x) > 130 for x in hits.keys)
        assert [x[0] for x in hits.keys[:3]] == ["k3", "new", "k9"]
        assert (hits.scores[:3, 0] > 0.999).all()
        assert hits.scores[3, 0] < 0.999  # The old vector of k9.
        assert hits.keys[4][0] == "k5"
    assert replace(index, "k3", X[7]).tolist() == [153]
    assert index["k3"] == {"n": None, "m": None}


def test_empty_index_takes_keys() -> None:
    index = Index(np.empty((0, 8)))
    replace(index, [3, 4], X[:2])
    assert index.keys == [3, 4]
    index.remove([3, 4])
    # It has not forgotten that rows have keys.
    with pytest.raises(ValueError, match="must be given"):
        index.add(X[:1])
    index.add(X[:1], keys=["now text"])
    assert index.keys == ["now text"]


def test_remove_takes_keys_or_a_filter() -> None:
    index = small()
    assert index.remove("q") == 1
    assert index.remove(where={"price": {">": 100}}) == 0
    assert index.remove(where={"name": ["c", "z"]}) == 1
    assert index.keys == ["p"]
    index.add(X[9], {"price": [1]}, keys=["q"])
    assert index["q"] == {"price": 1, "name": None}
    for options in ({}, {"keys": "q", "where": {"price": 1}}):
        with pytest.raises(ValueError, match="but not both"):
            index.remove(**options)
    with pytest.raises(KeyError, match="'z'"):
        index.remove(["q", "z"])
    assert "q" in index


NAN = np.where(np.arange(16).reshape(2, 8) == 9, np.nan, 1.0)

BAD = {
    "one key too few": lambda i: replace(i, ["p"], X[:2]),
    "no keys": lambda i: replace(i, None, X[:2]),
    "keys that are floats": lambda i: replace(i, [1.0, 2.0], X[:2]),
    "keys that are booleans": lambda i: replace(i, [True, False], X[:2]),
    "keys that are bytes": lambda i: replace(i, b"pq", X[:2]),
    "keys of two kinds": lambda i: replace(i, ["p", 2], X[:2]),
    "keys of another kind": lambda i: replace(i, [1, 2], X[:2]),
    "a key twice": lambda i: replace(i, ["p", "p"], X[:2]),
    "None as a key": lambda i: replace(i, ["p", None], X[:2]),
    "text as embeddings": lambda i: replace(i, "p", np.full((1, 8), "a")),
    "complex numbers": lambda i: replace(i, "p", X[:1] * 1j),
    "objects": lambda i: replace(i, "p", X[:1].astype(object)),
    "NaN": lambda i: replace(i, ["p", "q"], NAN),
    "a zero vector": lambda i: replace(i, "p", np.zeros(8)),
    "another dimension": lambda i: replace(i, "p", X[:1, :7]),
    "bad columns": lambda i: replace(i, "p", X[:1], price=[1, 2]),
    "a column of objects": lambda i: replace(i, "p", X[:1], price=[{}]),
    "an infinite number": lambda i: replace(i, "p", X[:1], price=[np.inf]),
    "a list with NaN": lambda i: replace(i, "p", X[:1], price=[[1.0, np.nan]]),
    "a list of objects": lambda i: replace(i, "p", X[:1], price=[[{}]]),
    "a number as a column": lambda i: replace(i, "p", X[:1], price=3),
    "text as a column": lambda i: replace(i, "p", X[:1], name="x"),
    "a column without a name": lambda i: i.add(X[:1], {3: [1]}, keys="new"),
    "a list as columns": lambda i: i.add(X[:1], [3], keys="new"),
    "embeddings of two sizes": lambda i: replace(i, ["p", "q"], [[1], [2, 3]]),
    "added again": lambda i: i.add(X[:2], keys=["new", "p"]),
    "added without keys": lambda i: i.add(X[:2]),
    "removed by another kind": lambda i: i.remove(3),
    "removed by an unknown column": lambda i: i.remove(where={"x": 1}),
}


def test_failed_change_leaves_the_index_unchanged() -> None:
    index = small()
    before = state(index)
    for name, change in BAD.items():
        with pytest.raises(ValueError, match=r"`\w+` of .*(Received|that is)"):
            change(index)
        assert state(index) == before, name


def test_keys_require_rows_with_keys() -> None:
    index = Index(X[:3])
    for is_replaced in (True, False):
        with pytest.raises(ValueError, match="keys=…"):
            index.add(X[:2], keys=[1, 2], replace=is_replaced)
    assert index.keys == [0, 1, 2]


@pytest.mark.parametrize("kind", [str, int])
def test_keys_are_saved(kind, tmp_path) -> None:
    keys = [kind(i) for i in (5, 2**40, -3)]
    index = Index(X[:3], keys=keys)
    index.remove(keys[1])
    index.save(tmp_path / "i")
    again = Index.load(tmp_path / "i")
    assert again.keys == [keys[0], keys[2]]
    assert again.search(X[2], 1).keys == [[keys[2]]]


class Changes(RuleBasedStateMachine):
    """Compares an index with a dictionary through random changes."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index(np.empty((0, 8)), keys=[])
        self.rows: dict[int, int] = {}

    @rule(keys=st.sets(st.integers(0, 9)), first=st.integers(0, 150))
    def replace(self, keys, first) -> None:
        chosen = range(first, first + len(keys))
        replace(self.index, list(keys), X[chosen], n=list(chosen))
        for key, row in zip(keys, chosen, strict=True):
            self.rows.pop(key, None)
            self.rows[key] = row

    @rule(upper=st.integers(0, 150))
    def remove(self, upper) -> None:
        if "n" not in self.index.columns:
            return
        removed = [k for k, row in self.rows.items() if row < upper]
        assert self.index.remove(where={"n": {"<": upper}}) == len(removed)
        for key in removed:
            del self.rows[key]

    @rule(key=st.integers(0, 9))
    def add(self, key) -> None:
        if key in self.rows:
            with pytest.raises(ValueError, match="must be new"):
                self.index.add(X[:1], {"n": [0]}, keys=[key])
        else:
            self.index.add(X[:1], {"n": [0]}, keys=[key])
            self.rows[key] = 0

    @invariant()
    def is_the_same(self) -> None:
        assert self.index.keys == list(self.rows)
        assert self.index.columns.get("n", []) == list(self.rows.values())
        plain = Index(X[list(self.rows.values())])
        hits, expected = self.index.search(X[:2]), plain.search(X[:2])
        expected_keys = [
            [list(self.rows)[i] for i in row] for row in expected.keys
        ]
        assert hits.keys == expected_keys
        assert np.array_equal(hits.scores, expected.scores)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=15, stateful_step_count=12)
