"""Encoder: from images, or embeddings, to the unit embeddings of an index."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import ImageSet
from keras_dml.evaluation import embed
from keras_dml.search.identity import ModelIdentity
from keras_dml.utils.types import FloatArray
from keras_dml.utils.unit_embeddings import UnitEmbeddings

PathLike: TypeAlias = str | os.PathLike[str]

Images: TypeAlias = (
    ImageSet | PathLike | Sequence[PathLike] | npt.NDArray[np.uint8]
)
"""A set, one or several files, or uint8 pixels (H, W), (H, W, C) or
(B, H, W, C), C being 1 or 3."""


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


def as_image_set(x: Any) -> ImageSet | None:
    """A set of the images that `x` is; None if it is not images.

    Images that are no set have no labels; theirs in the set mean nothing.
    """
    if isinstance(x, ImageSet):
        return x
    if isinstance(x, str | os.PathLike):
        x = [x]
    if isinstance(x, list | tuple) and all(
        isinstance(path, str | os.PathLike) for path in x
    ):
        return ImageSet(x, np.zeros(len(x), np.int64)) if x else None
    if getattr(x, "dtype", None) != np.uint8:
        return None
    is_batch = x.ndim == 4 or (x.ndim == 3 and x.shape[-1] not in (1, 3))
    pixels = x if is_batch else x[None]
    return ImageSet(pixels, np.zeros(len(pixels), np.int64))


def embed_images(
    model: keras.Model, images: ImageSet, batch_size: int
) -> FloatArray:
    """Embeddings of images, (N, D); none of no images.

    Raises:
        ValueError: If a file cannot be decoded.
    """
    if not len(images):
        return np.empty((0, model.output_shape[-1]), np.float32)
    try:
        return embed(model, images, batch_size)
    except Exception:
        # TensorFlow's errors are long; if a file is at fault, name it.
        for row in range(len(images)):
            images.read(row)
        raise


def image_columns(given: Any, images: ImageSet) -> dict[str, list[Any]]:
    """Columns that images bring along.

    Args:
        given: What the user gave; only an `ImageSet` has labels.
        images: The images of it.

    Returns:
        "path", absolute, of files; "label", "name", "source" and "box" of
        a set that has them.
    """
    columns: dict[str, list[Any]] = {}
    if images.paths is not None:
        columns["path"] = [os.path.abspath(path) for path in images.paths]
    if not isinstance(given, ImageSet):
        return columns
    columns["label"] = images.labels.tolist()
    if images.names:
        columns["name"] = [images.names.get(x) for x in columns["label"]]
    if images.ids is not None:
        columns["source"] = list(images.ids)
    if images.boxes is not None:
        columns["box"] = images.boxes.tolist()
    return columns
