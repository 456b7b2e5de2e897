"""Every kind of index in the docs is built, saved and loaded."""

import re
from pathlib import Path

import numpy as np
import pytest

from keras_dml.search import Index

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 32)).astype("float32")
QUERIES = RNG.normal(size=(5, 32)).astype("float32")

PART = "(?:IVF|HNSW|PQ|SQ|RaBitQ|PCA|OPQ|Flat)[A-Za-z0-9_]*"
STRING = re.compile(rf"[`\"']({PART}(?:,{PART})*)[`\"']")
NOT_FACTORIES = {"PQ", "IVF", "HNSW", "SQ", "IVF,PQ", "FlatIndex"}


def kinds_of_pages() -> list[str]:
    """Factory strings that the docs name, with lists for 300 vectors."""
    names = {
        name
        for page in (ROOT / "docs").rglob("*.md")
        if page.name != "changelog.md"
        for name in STRING.findall(page.read_text(encoding="utf-8"))
    } - NOT_FACTORIES
    small = {re.sub(r"IVF\d+", "IVF8", x) for x in names}
    return sorted({re.sub(r"PQ\d+(?=np|,|$)", "PQ8x4", x) for x in small})


OTHERS = [
    "SQ4", "SQ6", "SQbf16", "PQ8x4", "RaBitQ", "HNSW8,SQ8", "HNSW8_SQ8",
    "IVF8,SQ8,RFlat", "IVF8_HNSW8,Flat", "IVF8,RaBitQ,RFlat", "PCA8,Flat",
    "HNSW8,SQ8,RFlat",
]  # fmt: skip


@pytest.mark.parametrize("factory", sorted({*kinds_of_pages(), *OTHERS}))
def test_each_kind_finds_the_same_after_loading(tmp_path, factory):
    index = Index(X, {"n": np.arange(300)}, factory=factory)
    before = index.search(QUERIES, 7)
    index.save(tmp_path / "index")
    after = Index.load(tmp_path / "index").search(QUERIES, 7)
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.scores, before.scores)
    assert (after.ids >= 0).all()


@pytest.mark.parametrize(
    "factory", ["PQ8x4fs", "IVF8,PQ4+4", "LSH", "IVF8(IVF2,Flat),Flat", "NSG8"]
)
def test_kind_that_cannot_be_loaded_raises_at_build(factory):
    with pytest.raises(ValueError, match="`factory` of an Index must be"):
        Index(X, factory=factory)
