"""A searchable gallery: the index, and what counts as a match.

Open index.py first: `Index` is built, saved and loaded there. It inherits what
reads and changes rows from contents.py, and what searches and calibrates from
searches.py. Both ask a gallery (gallery.py): a table of rows (rows.py) and
their vectors (engine.py), of which a search among rows that fulfill conditions
(filters.py) compares all (scans.py). store.py writes and reads the folder of an
index, and faiss_files.py checks vectors from strangers. lance.py is the one
database here: a thin class on LanceDB's own client.

What is here may import evaluation and what is below it.
"""

from typing import TYPE_CHECKING

from keras_dml.evaluation import IdentificationThreshold, Threshold, calibrate
from keras_dml.search.faiss_files import IndexFileError
from keras_dml.search.hits import Hit, Hits
from keras_dml.search.index import Index
from keras_dml.search.lance import LanceIndex
from keras_dml.search.recall import Recall
from keras_dml.search.store import is_index
from keras_dml.utils.registry import renamed

if not TYPE_CHECKING:
    __getattr__ = renamed(__name__)

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
