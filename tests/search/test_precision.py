"""Indexes of compressed vectors, beside NumPy and exact indexes."""

import copy
import pickle

import numpy as np
import pytest

from keras_dml.embedding import write_shards
from keras_dml.search import Index, IndexFileError
from keras_dml.search.rescored import Floats
from tests.search.test_manifest import forge, forge_file
from tests.search.test_mutations import check

COUNT, DIM = 600, 32
DRAW = np.random.default_rng(0)
CENTERS = DRAW.normal(size=(30, DIM))
X = CENTERS[np.arange(COUNT) % 30] + 0.7 * DRAW.normal(size=(COUNT, DIM))
X = X.astype(np.float32)
QUERIES = X[:40] + 0.3 * DRAW.normal(size=(40, DIM))
COLUMNS = {"n": list(range(COUNT))}
PRECISIONS = ("float16", "int8", "binary")
KINDS = [
    ("int8", "Flat"),
    ("binary", "Flat"),
    ("binary", "IVF4,Flat"),
    ("int8", "HNSW16"),
    pytest.param("float16", "Flat", marks=pytest.mark.slow),
    pytest.param("float16", "IVF4,Flat", marks=pytest.mark.slow),
    pytest.param("int8", "IVF4,Flat", marks=pytest.mark.slow),
]

walk = pytest.mark.parametrize(("precision", "factory"), KINDS)


def made(precision, factory="Flat", x=X, **options) -> Index:
    if factory.startswith("IVF"):
        options["parameters"] = "nprobe=4"
    return Index(x, {"n": list(range(len(x)))}, factory=factory,
                 precision=precision, **options)  # fmt: skip


def share(found, expected) -> float:
    pairs = zip(found.ids, expected.ids, strict=True)
    return float(np.mean([np.isin(b, a).mean() for a, b in pairs]))


def codes(x: np.ndarray, precision: str) -> np.ndarray:
    """What a search in a precision compares, for unit vectors."""
    if precision == "float16":
        return x.astype(np.float16).astype(np.float64)
    if precision == "int8":
        low, high = x.min(axis=0), x.max(axis=0)
        return low + (high - low) * (np.floor((x - low) / (high - low) * 255)
                                     + 0.5) / 255  # fmt: skip
    # RaBitQ: signs about the mean, scaled so that c·x keeps the length of x.
    mean = x.mean(axis=0)
    signs = np.sign(x - mean)
    scale = ((x - mean) ** 2).sum(1) / np.abs(x - mean).sum(1)
    return mean + scale[:, None] * signs


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_finds_what_numpy_does(precision) -> None:
    """Quantize, find candidates, score these by whole vectors."""
    index = made(precision, parameters="k_factor_rf=3")
    found = index.search(QUERIES, 10)
    x = X / np.linalg.norm(X, axis=1, keepdims=True)
    queries = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    rough = queries @ codes(x.astype(np.float64), precision).T
    expected = np.empty((40, 10), int)
    for row, (query, scores) in enumerate(zip(queries, rough, strict=True)):
        near = np.argsort(-scores)[:30]
        expected[row] = near[np.argsort(-(x[near] @ query))[:10]]
    # Codes that are equally far, or nearly so, are rounded otherwise.
    least = 0.95 if precision == "binary" else 0.99
    assert (found.ids == expected).mean() > least
    whole = np.take_along_axis(queries @ x.T, found.ids, axis=1)
    np.testing.assert_allclose(found.scores, whole, atol=1e-6)


@walk
@pytest.mark.parametrize(
    "metric",
    ["cosine", "euclidean", pytest.param("dot", marks=pytest.mark.slow)],
)
def test_hits_have_the_scores_of_an_exact_index(
    precision, factory, metric
) -> None:
    index = made(precision, factory, metric=metric)
    exact = Index(X, COLUMNS, metric=metric)
    found, expected = index.search(QUERIES, 10), exact.search(QUERIES, 10)
    assert share(found, expected) > 0.98
    same = found.ids == expected.ids
    assert np.array_equal(found.scores[same], expected.scores[same])
    assert index.recall.at[10] > 0.98
    assert index.recall.score_error < 1e-5
    assert np.array_equal(index.embeddings, exact.embeddings)
    assert (index.precision, index.factory) == (precision, factory)
    assert precision in repr(index)
    # All rows, and more than there are.
    everything = index.search(QUERIES[:3], COUNT + 5)
    assert np.array_equal(
        everything.ids, exact.search(QUERIES[:3], COUNT + 5).ids
    )
    threshold = float(expected.scores[0, 6])
    for where in (None, {"n": {"<": 300}}):
        ranged = index.range_search(QUERIES, threshold, where=where)
        wanted = exact.range_search(QUERIES, threshold, where=where)
        assert np.array_equal(ranged.ids, wanted.ids)
        assert np.array_equal(ranged.scores, wanted.scores)


@walk
def test_filters_cost_no_recall(precision, factory) -> None:
    index, exact = made(precision, factory), Index(X, COLUMNS)
    for most in (500, 300, 60, 7, 0):
        where = {"n": {"<": most}}
        found = index.search(QUERIES, 10, where=where)
        assert found.ids.max() < most
        assert share(found, exact.search(QUERIES, 10, where=where)) > 0.97
    found = index.search(X[:40], 5, exclude=list(range(40)))
    assert not (found.ids == np.arange(40)[:, None]).any()


@walk
def test_changes_are_those_of_an_exact_index(
    precision, factory, tmp_path
) -> None:
    """Built, and read from its folder, whose files stay as they were."""
    built, exact = made(precision, factory), Index(X, COLUMNS)
    built.save(tmp_path / "i")
    before = {p: p.read_bytes() for p in (tmp_path / "i" / "data").iterdir()}
    loaded = Index.load(tmp_path / "i")
    both = [built, loaded, copy.deepcopy(built),
            pickle.loads(pickle.dumps(loaded))]  # fmt: skip
    for index in (*both, exact):
        index.remove(np.arange(0, COUNT, 3))
        assert index.add(X[:3] + 0.01, {"n": [7, 8, 9]}).tolist()[0] == COUNT
        index.update(COUNT, {"n": [1000]})
        index.remove(where={"n": {"in": [10, 11]}})
        with pytest.raises(ValueError, match="finite"):
            index.add(np.full((1, DIM), np.nan))
    expected = exact.search(QUERIES, 10)
    for index in both:
        assert np.array_equal(index.embeddings, exact.embeddings)
        assert share(index.search(QUERIES, 10), expected) > 0.97
        assert index.search(X[0] + 0.01, 1).ids[0, 0] == COUNT
        assert index.search(X[0], 1, where={"n": 1000}).ids[0, 0] == COUNT
    assert {p: p.read_bytes() for p in before} == before
    loaded.save(tmp_path / "i")
    again = Index.load(tmp_path / "i")
    assert again.columns == exact.columns
    found = again.search(QUERIES, 10)
    assert np.array_equal(found.ids, loaded.search(QUERIES, 10).ids)
    again.remove(again.ids)
    again.save(tmp_path / "i")
    emptied = Index.load(tmp_path / "i")
    assert (len(emptied), emptied.search(X[0])[0]) == (0, [])
    assert emptied.add(X[:2]).tolist() == [COUNT + 3, COUNT + 4]
    assert emptied.search(X[1], 1).ids[0, 0] == COUNT + 4


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_written_is_read(precision, tmp_path) -> None:
    index = made(precision, parameters="k_factor_rf=7", labels=COLUMNS["n"])
    threshold = index.calibrate(X[:300], np.arange(300) % 30, num_resamples=5)
    index.save(tmp_path / "i")
    loaded = Index.load(tmp_path / "i")
    assert (loaded.precision, loaded.parameters) == (precision, "k_factor_rf=7")
    assert (loaded.threshold, loaded.recall) == (threshold, index.recall)
    found, again = index.search(QUERIES, 10), loaded.search(QUERIES, 10)
    assert np.array_equal(found.ids, again.ids)
    assert np.array_equal(found.scores, again.scores)
    exact = Index(np.empty((0, DIM)))
    exact.merge(loaded)
    assert np.array_equal(exact.embeddings, index.embeddings)
    # A prefix of a Matryoshka embedding, in a precision.
    short = Index(X[:, :16], precision=precision)
    assert short.dim == 16
    assert short.recall.at[10] > 0.9


def test_codes_are_searched_in_as_many_lists_as_vectors() -> None:
    """More candidates are not more neighbors, for which lists would grow."""
    x = np.random.default_rng(5).normal(size=(4000, 16))
    plain = Index(x, factory="IVF16,Flat", parameters="nprobe=1")
    coded = Index(x, factory="IVF16,Flat", precision="int8",
                  parameters="nprobe=1,k_factor_rf=5")  # fmt: skip
    expected = plain.recall.at[10]
    assert expected < 0.7
    assert coded.recall.at[10] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_shards(precision, tmp_path) -> None:
    pytest.importorskip("pyarrow")
    shards = write_shards(X, tmp_path, rows_per_shard=170, progress=False)
    index, plain = Index(shards, precision=precision), made(precision)
    found, expected = index.search(QUERIES, 10), plain.search(QUERIES, 10)
    assert share(found, expected) > 0.98
    assert np.array_equal(index.embeddings, plain.embeddings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int4"}, "must be one of"),
        ({"precision": "int8", "factory": "IVF4,PQ4"}, "for this `factory`"),
        ({"precision": "binary", "factory": "HNSW8"}, "for this `factory`"),
        ({"precision": "int8", "parameters": "nprobe=3"}, "nprobe=3"),
        ({"parameters": "k_factor_rf=3"}, "k_factor_rf=3"),
    ],
)
def test_what_cannot_be(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        Index(X[:50], **options)


def test_files_that_do_not_fit(tmp_path) -> None:
    made("binary").save(tmp_path)
    for change in (
        lambda x: x["content"].update(precision="float32"),
        lambda x: x["content"].update(precision="int8"),
        lambda x: x["content"].update(precision="int4"),
        lambda x: x["files"].pop("vectors.float32"),
    ):
        text = (tmp_path / "index.json").read_text()
        forge(tmp_path, change)
        with pytest.raises(IndexFileError, match="is damaged"):
            Index.load(tmp_path)
        (tmp_path / "index.json").write_text(text)
    forge_file(tmp_path, "vectors.float32", bytes(4 * DIM * (COUNT - 1)))
    with pytest.raises(IndexFileError, match="is not of 600 vectors"):
        Index.load(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["Flat", "IVF4,Flat"])
@pytest.mark.parametrize("fits", [False, True])
def test_random_changes(factory, fits, tmp_path) -> None:
    made("binary", factory, X[:50, :8]).save(tmp_path)
    outcomes = check(tmp_path, Index.load(tmp_path), 80, fits)
    assert "refused" in outcomes


def test_vectors_that_no_disk_holds(monkeypatch) -> None:
    """What could not be added is not there; what is there can be searched."""
    index = made("int8")

    def full(self, x):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Floats, "append", full)
        with pytest.raises(OSError, match="No space"):
            index.add(X[:2])
    assert (len(index), index.search(X[5], 1).ids[0, 0]) == (COUNT, 5)
    assert index.add(X[:1]).tolist() == [COUNT]
