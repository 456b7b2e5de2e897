"""Current: what is served now."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras

from keras_dml.data import View
from keras_dml.search import Index
from keras_dml.serve.definitions import Definition


@dataclass(frozen=True)
class Current:
    """A model, its gallery and its signatures: what one version serves.

    It is replaced as a whole when a new version is loaded. A request keeps
    the one that it began with.

    Attributes:
        name: Of the model, as addresses name it.
        version: Its version.
        model: From views to embeddings; None if only signatures are known.
        view: What the model sees of an image; None without a model, and
            for one that takes no images.
        index: The gallery; None without one.
        signatures: Functions by name: from tensors by keyword to a dict of
            tensors.
        definitions: What signatures take and return, by name.
        loaded: What the signatures belong to, and must not outlive.
    """

    name: str
    version: int
    model: keras.Model | None
    view: View | None
    index: Index | None
    signatures: Mapping[str, Callable[..., Mapping[str, Any]]]
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    loaded: Any = None
