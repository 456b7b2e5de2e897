"""A searchable gallery: the index, and the threshold of a match.

Open index.py first: `Index` is built, saved, changed and searched there. It
has a table of rows (rows.py) and a faiss index of their vectors (engine.py); a
search among rows that fulfill conditions (filters.py) compares all of them
(scans.py). store.py writes and reads the folder of an index, also one from a
stranger. lance.py is a thin class on LanceDB's own client.

Imports: `evaluation` and below.
"""

from typing import TYPE_CHECKING

from keras_dml.evaluation import IdentificationThreshold, Threshold, calibrate
from keras_dml.search.hits import Hit, Hits
from keras_dml.search.index import Index
from keras_dml.search.lance import LanceIndex
from keras_dml.search.recall import Recall
from keras_dml.search.store import IndexFileError, is_index
from keras_dml.utils.registry import attribute_hints

if not TYPE_CHECKING:
    __getattr__ = attribute_hints(__name__)

__all__ = [
    "Hit",
    "Hits",
    "IdentificationThreshold",
    "Index",
    "IndexFileError",
    "LanceIndex",
    "Recall",
    "Threshold",
    "calibrate",
    "is_index",
]
