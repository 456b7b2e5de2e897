"""A searchable gallery: the index, and what counts as a match."""

from typing import TYPE_CHECKING

from keras_dml.evaluation.identification import IdentificationThreshold
from keras_dml.evaluation.verification import Threshold, calibrate
from keras_dml.search.hits import Hit, Hits
from keras_dml.search.index import Index, open_index, push
from keras_dml.search.manifest import IndexFileError
from keras_dml.search.pushing import Pushed
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
    "Pushed",
    "Recall",
    "Threshold",
    "calibrate",
    "is_index",
    "open_index",
    "push",
]
