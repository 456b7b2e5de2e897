"""Encoder: the model of an index, which embeds what is searched for."""

from pathlib import Path
from typing import Any

import keras

from keras_dml.search.embeddings import as_image_set, embed_images
from keras_dml.search.identity import ModelIdentity
from keras_dml.utils.unit_embeddings import UnitEmbeddings


class Encoder:
    """The model that made an index, read when it is needed.

    Args:
        model: The model, if it is at hand.
        identity: Which model it has to be; None if any.
        file: A `.keras` file of it.

    Attributes:
        identity: Which model it is; None if there is none.
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
        """The model.

        Raises:
            ValueError: If there is none, or the one in the file is another.
            FileNotFoundError: If its file was replaced meanwhile.
        """
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

    def use(self, model: keras.Model) -> None:
        """Takes a model.

        Raises:
            ValueError: If it is not the one that made the index.
        """
        if self.identity is None:
            self.identity = ModelIdentity.of(model)
        else:
            self.identity.check(model)
        self._model = model

    def units(
        self, items: Any, dim: int, name: str, owner: str, batch_size: int
    ) -> UnitEmbeddings:
        """Unit embeddings of images or of embeddings.

        Args:
            items: N images, see `Images`, or embeddings, (N, D) or (D,).
            dim: D.
            name: What messages call the argument.
            owner: The method whose argument it is.
            batch_size: Images embedded at a time.

        Raises:
            ValueError: If they are of another dimension, or if there is no
                model for images.
        """
        images = as_image_set(items)
        if images is not None:
            items = embed_images(self.model, images, batch_size)
        return UnitEmbeddings(items, dim, name, owner)
