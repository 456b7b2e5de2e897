"""Lists of masks or of mixed filters raise."""

import numpy as np
import pytest

from keras_dml.search import Index

X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
MASK = np.arange(8) < 5
CONDITION = {"kind": {"in": [0, 1]}}
MIXED = {
    "a mask and None": [MASK, None],
    "masks": [MASK, MASK],
    "a mask and conditions": (CONDITION, MASK),
    "a function": [lambda columns: MASK, None],
    "a function of lists of two lengths": lambda columns: [[1], [2, 3]],
    "rows": np.stack([MASK, MASK]),
}


@pytest.mark.parametrize("use", ["search", "range_search", "remove"])
@pytest.mark.parametrize("kind", MIXED)
def test_list_of_masks_raises(kind, use) -> None:
    index = Index(X, {"kind": np.arange(8) // 2})
    uses = {
        "search": lambda where: index.search(X[:2], k=3, where=where),
        "range_search": lambda where: index.range_search(
            X[:2], 0.5, where=where
        ),
        "remove": lambda where: index.remove(where=where),
    }
    with pytest.raises(ValueError, match="one filter per query, must have co"):
        uses[use](MIXED[kind])
    assert len(index) == 8
