"""Encoder: the model of an index, and embeddings of images by it."""

from pathlib import Path

import keras
import numpy as np

from keras_dml.data import Examples, ImageSet
from keras_dml.evaluation import embed
from keras_dml.model.identity import ModelIdentity
from keras_dml.utils.types import FloatArray


class Encoder:
    """The model that made an index, read when it is needed.

    Args:
        model: The model, if it is at hand.
        identity: Which model it has to be; None if any. An attribute.
        file: A `.keras` file of it.
    """

    def __init__(
        self,
        model: keras.Model | None = None,
        identity: ModelIdentity | None = None,
        file: Path | None = None,
    ) -> None:
        self.identity = identity
        self._model: keras.Model | None = None
        self._file = file
        if model is not None:
            self.use(model)

    @property
    def exists(self) -> bool:
        """Whether there is a model."""
        return self._model is not None or self._file is not None

    @property
    def model(self) -> keras.Model:
        """The model; an error if there is none, or it is another."""
        if self._model is None:
            if self._file is None:
                raise ValueError(
                    "`model` of an Index is needed to embed images. "
                    "Received: an index without a model. Search by "
                    "embedding, or give Index or Index.load a `model`."
                )
            if not self._file.exists():
                raise FileNotFoundError(
                    f"The model {str(self._file)!r} of an Index is gone: "
                    "the index was saved again. Load it again."
                )
            self.use(keras.models.load_model(self._file, compile=False))
        return self._model

    def difference(self, other: "Encoder") -> str | None:
        """How another's model differs, as far as both are known."""
        if self.identity is None or other.identity is None:
            return None
        return self.identity.difference(other.identity)

    def use(self, model: keras.Model) -> None:
        """Takes a model; ValueError if it did not make the index."""
        if self.identity is None:
            self.identity = ModelIdentity.of(model)
        else:
            self.identity.check(model)
        self._model = model


def embed_images(
    model: keras.Model, images: Examples, batch_size: int
) -> FloatArray:
    """Embeddings of examples, (N, D); errors name a file that is at fault."""
    if not len(images):
        return np.empty((0, model.output_shape[-1]), np.float32)
    try:
        return embed(model, images, batch_size)
    except Exception:
        # TensorFlow's errors are long.
        if isinstance(images, ImageSet):
            for row in range(len(images)):
                images.read(row)
        raise
