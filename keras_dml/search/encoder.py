"""Encoder: the model of an index, which embeds images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.data import ArraySet, Examples
from keras_dml.data.relations import Relations
from keras_dml.embedding.engines import KERAS, Engine, Predict, predict_function
from keras_dml.embedding.in_memory import embedded
from keras_dml.model.checks import check_channels_last
from keras_dml.model.generated import input_specs
from keras_dml.model.identity import ModelIdentity, WatchedWeights
from keras_dml.search.pictures import image_sets
from keras_dml.utils.arguments import check_count
from keras_dml.utils.models import read_model
from keras_dml.utils.types import FloatArray, Rows


@dataclass(eq=False)
class Encoder:
    """The model behind an index, loaded from its file when it is needed.

    It must have the identity, if that is known.
    """

    identity: ModelIdentity | None = None
    file: Path | None = None
    _model: keras.Model | None = field(default=None, init=False)
    _weights: WatchedWeights | None = field(default=None, init=False)

    @property
    def exists(self) -> bool:
        """Whether there is a model."""
        return self._model is not None or self.file is not None

    @property
    def model(self) -> keras.Model:
        """The model; an error if there is none, or it is a different one."""
        if self._model is None:
            if self.file is None:
                raise ValueError(
                    "`model` of an Index is needed to embed images. Received: "
                    "an index without a model. Search by embedding, or pass a "
                    "`model` to Index or Index.load."
                )
            if not self.file.exists():
                raise FileNotFoundError(
                    f"The model {str(self.file)!r} of an Index no longer "
                    "exists, because the index was saved again. Use Index.load "
                    "to load it again."
                )
            self.use(read_model(self.file))
        return self._model

    @property
    def dim(self) -> int | None:
        """Dimensions of the embeddings; None before a model says them."""
        try:
            shapes = keras.tree.map_structure(
                lambda x: x.shape, input_specs(self.model)
            )
            return int(self.model.compute_output_shape(shapes)[-1])
        except (NotImplementedError, RuntimeError, TypeError, ValueError):
            return None

    def expect(self, identity: ModelIdentity | None) -> None:
        """Sets the required identity; ValueError if the model differs."""
        if identity is None:
            return
        if self.identity is None:
            self.identity = identity
        elif difference := identity.difference(self.identity):
            raise ValueError(
                "`model` of an Index must be the one that computed its "
                f"embeddings. Received: one {difference}."
            )

    def use(self, model: keras.Model) -> None:
        """Sets the model; ValueError if the index was not built with it."""
        if self.identity is None:
            self.identity = ModelIdentity.of(model)
        else:
            self.identity.check(model)
        self._model, self._weights = model, WatchedWeights(model)

    def unchanged(self, owner: str) -> keras.Model:
        """The model; ValueError if its weights have changed since `use`."""
        model = self.model
        assert self._weights is not None  # noqa: S101
        self._weights.check(owner)
        return model

    def check(self, model: keras.Model, owner: str) -> None:
        """ValueError if a model is not the one behind the embeddings."""
        if model is self._model:
            self.unchanged(owner)
        elif self.identity is not None:
            self.identity.check(model, owner)

    def sets(
        self, items: Any, name: str, owner: str
    ) -> list[tuple[Rows, Examples]] | None:
        """The user's images, or texts if the model takes text; `image_sets`."""
        kind = getattr(getattr(items, "dtype", None), "kind", "")
        if kind in ("O", "U") and np.shape(items)[1:] in ((), (1,)):
            items = np.reshape(np.asarray(items, object), -1).tolist()
        return self._texts(items) or image_sets(items, f"`{name}` of {owner}")

    def embed(
        self,
        items: Any,
        name: str,
        owner: str,
        batch_size: int,
        engine: Engine = KERAS,
    ) -> FloatArray | None:
        """Embeddings of the user's images, (N, D); None if not images.

        Raises:
            ValueError: If an image is invalid, or there is no model.
        """
        check_count(owner, "batch_size", batch_size)
        if isinstance(items, Mapping | Relations):
            of = "ArraySet(x)" if isinstance(items, Mapping) else "x.examples"
            raise ValueError(
                f"`{name}` of {owner} must be examples, images or embeddings. "
                f"Received: x of type {type(items).__name__}. Use {of}, which "
                "has one row per example."
            )
        sets = self.sets(items, name, owner)
        if sets is None:
            return None
        model = self.unchanged(owner)
        check_channels_last(model, items, name, owner)
        predict = predict_function(model, engine, owner)
        parts = [self._embed(x, batch_size, predict) for _, x in sets]
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate([rows for rows, _ in sets]))
        result: FloatArray = np.concatenate(parts)[order]
        return result

    def _texts(self, items: Any) -> list[tuple[Rows, Examples]] | None:
        """Texts as a set, if `items` are texts and the model takes text."""
        texts = [items] if isinstance(items, str) else items
        if not (isinstance(texts, list | tuple) and texts and self.exists):
            return None
        if not all(isinstance(x, str) for x in texts):
            return None
        specs = keras.tree.flatten(input_specs(self.model))
        if [spec.dtype for spec in specs] != ["string"]:
            return None
        x = np.array(texts).reshape(-1, *specs[0].shape[1:])
        return [(np.arange(len(texts)), ArraySet(x))]

    def _embed(
        self, images: Examples, batch_size: int, predict: Predict
    ) -> FloatArray:
        """Embeddings of a set, which may be empty."""
        if not len(images) and self.identity:
            dim = len(self.identity.test_embeddings[0])
            return np.empty((0, dim), np.float32)
        return embedded(
            self.model,
            images,
            "examples",
            "embed",
            batch_size,
            progress=None,
            predict=predict,
        ).embeddings
