"""Encoder: the model of an index, and images in all forms that it embeds."""

import io
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image

from keras_dml.data import ArraySet, Examples, ImageSet
from keras_dml.data.decode import pixels_of, read_image
from keras_dml.data.reading import check_one_set
from keras_dml.data.relations import Relations
from keras_dml.data.thumbnails import row_thumbnail, thumbnail
from keras_dml.data.validation import Pixels
from keras_dml.embedding.engines import KERAS, Engine, Predict, predict_function
from keras_dml.embedding.in_memory import embed_argument
from keras_dml.model.checks import check_channels_last
from keras_dml.model.embedding_model import EmbeddingModel
from keras_dml.model.generated import input_specs
from keras_dml.model.identity import ModelIdentity, WatchedWeights
from keras_dml.search.rows import label_values
from keras_dml.utils.arguments import check_count
from keras_dml.utils.models import check_model, read_model
from keras_dml.utils.progress import track
from keras_dml.utils.trust import reading
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import row_norms

_LENGTH_TOLERANCE = 0.01
"""Allowed deviation of a length from 1, as rounded to half precision."""

THUMBNAIL = "thumbnail"
"""The column of small pictures, data URIs; see `row_thumbnail`."""


@dataclass(eq=False)
class Encoder:
    """The model behind an index, loaded from its file when it is needed.

    It must have the identity, if that is known. For `trust`, see `Index.load`.
    """

    identity: ModelIdentity | None = None
    file: Path | None = None
    trust: bool = False
    _model: keras.Model | None = field(default=None, init=False)
    _weights: WatchedWeights | None = field(default=None, init=False)

    @property
    def exists(self) -> bool:
        return self._model is not None or self.file is not None

    @property
    def model(self) -> keras.Model:
        """The model; raises an error if it is missing or a different one."""
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
            with reading(trust=self.trust):
                self.use(read_model(self.file))
        return self._model

    @property
    def dim(self) -> int | None:
        """Dimensions of the embeddings; None if they cannot be inferred."""
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
        check_model(model, "an Index")
        if self.identity is None:
            self.identity = ModelIdentity.of(model)
        else:
            self.identity.check(model)
        self._model, self._weights = model, WatchedWeights(model)

    def unchanged_model(self, owner: str) -> keras.Model:
        """The model; raises ValueError if its weights changed since `use`."""
        model = self.model
        assert self._weights is not None  # noqa: S101
        self._weights.check(owner)
        return model

    def check(self, model: keras.Model, owner: str) -> None:
        """Raises ValueError unless a model computed the embeddings."""
        if model is self._model:
            self.unchanged_model(owner)
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
        """Embeddings of the user's images, (N, D); None if not images."""
        check_count(owner, "batch_size", batch_size)
        check_one_set(items, name, owner)
        if isinstance(items, Mapping | Relations):
            hint = "ArraySet(x)" if isinstance(items, Mapping) else "x.examples"
            raise ValueError(
                f"`{name}` of {owner} must be examples, images or embeddings. "
                f"Received: x of type {type(items).__name__}. Use {hint}, "
                "which has one row per example."
            )
        sets = self.sets(items, name, owner)
        if sets is None:
            self._check_unit(items, name, owner)
            return None
        model = self.unchanged_model(owner)
        check_channels_last(model, items, name, owner)
        predict = predict_function(model, engine, owner)
        parts = [self._embed(x, batch_size, predict) for _, x in sets]
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate([rows for rows, _ in sets]))
        result: FloatArray = np.concatenate(parts)[order]
        return result

    def _check_unit(self, items: Any, name: str, owner: str) -> None:
        """Raises ValueError if numbers look like inputs of the model.

        They do if they are as wide and not of unit length, which all embeddings
        of this package's models have.
        """
        if not self.exists:
            return
        try:
            rows = np.atleast_2d(np.asarray(items))
        except (TypeError, ValueError):
            return  # The next check raises an error for these.
        if rows.dtype.kind not in "fiu" or rows.ndim != 2 or not rows.size:
            return
        with np.errstate(invalid="ignore"):
            lengths = row_norms(rows)
        is_unit = np.all(np.abs(lengths - 1) <= _LENGTH_TOLERANCE)
        if is_unit or not np.isfinite(lengths).all():
            return
        model = self.model
        if not isinstance(model, EmbeddingModel):
            return
        specs = keras.tree.flatten(input_specs(model))
        if len(specs) == 1 and tuple(specs[0].shape[1:]) == rows.shape[1:]:
            raise ValueError(
                f"`{name}` of {owner} must be examples, or embeddings of unit "
                "length, as those of its model are. Received: rows of length "
                f"{lengths.min():.3g} to {lengths.max():.3g}, as wide as the "
                f"inputs of the model, {rows.shape[1]}. For inputs, use "
                "ArraySet(x); for other embeddings, x / np.linalg.norm(x, "
                "axis=1, keepdims=True)."
            )

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
        if not len(images) and self.identity:
            dim = len(self.identity.test_embeddings[0])
            return np.empty((0, dim), np.float32)
        return embed_argument(
            self.model,
            images,
            "examples",
            "embed",
            batch_size,
            progress=None,
            predict=predict,
        ).with_gaps


def image_sets(items: Any, who: str) -> list[tuple[Rows, Examples]] | None:
    """Converts a user's images to sets, each with its rows in the input.

    Items are examples; a path, bytes of a file, a PIL image, pixels, or a list
    of these; for anything else, the result is None. There are several sets if
    images differ in size. Messages call the items `who`.
    """
    images = as_image_set(items)
    if images is None and getattr(items, "dtype", None) == np.uint8:
        images = ImageSet(_batch(np.asarray(items), who))
    if images is not None:
        return [(np.arange(len(images)), images)]
    pictures = _pictures(items, who)
    if pictures is None:
        return None
    rows = defaultdict(list)
    for row, pixels in enumerate(pictures):
        rows[pixels.shape].append(row)
    return [
        (np.array(its), ImageSet(np.stack([pictures[i] for i in its])))
        for its in rows.values()
    ]


def thumbnail_column(
    sets: Sequence[tuple[Rows, Examples]],
) -> dict[str, list[str]]:
    """A column with data URIs of the images of `image_sets`, for pages.

    There is no column unless all sets are of images.
    """
    thumbnails: dict[int, str] = {}
    for rows, images in sets:
        if not isinstance(images, ImageSet):
            return {}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = pool.map(partial(_thumbnail, images), range(len(images)))
            uris = track(results, len(images), "Making thumbnails")
            thumbnails.update(zip(rows.tolist(), uris, strict=True))
    column = [thumbnails[row] for row in sorted(thumbnails)]
    return {THUMBNAIL: column} if sets else {}


def _thumbnail(images: ImageSet, row: int) -> str:
    if images.paths is None:
        return thumbnail(images.read(row))
    box = None if images.boxes is None else images.boxes[row].tolist()
    return row_thumbnail({"path": images.paths[row], "box": box}) or ""


def _batch(pixels: Pixels, who: str) -> Pixels:
    shape = pixels.shape
    has_channels = len(shape) in (3, 4) and shape[-1] in (1, 3)
    # A batch of gray images that are 2 or 4 wide would be a rare one.
    is_gray = len(shape) in (2, 3) and shape[-1] not in (2, 4)
    is_one = len(shape) == 2 or (len(shape) == 3 and has_channels)
    batch = pixels[None] if is_one else pixels
    if not (has_channels or is_gray) or 0 in batch.shape[1:]:
        raise ValueError(
            f"{who} must be pixels, (H, W), (H, W, C) or (N, H, W, C), with C "
            f"1 or 3. Received: uint8 of shape {shape}. Use PIL images for "
            "images with an alpha channel, and floats for embeddings."
        )
    return batch


def _pictures(items: Any, who: str) -> list[Pixels] | None:
    """Pixels of each image, (H, W, C); None if `items` are not images."""
    if isinstance(items, PIL.Image.Image | bytes):
        return [_pixels(items, who)]
    if isinstance(items, list | tuple):
        kinds = str | os.PathLike | bytes | PIL.Image.Image
        are_images = items and all(
            isinstance(x, kinds)
            or (getattr(x, "dtype", None) == np.uint8 and x.ndim == 2)
            or (_are_pixels(x) and np.ndim(x) == 3)
            for x in items
        )
        return [_pixels(item, who) for item in items] if are_images else None
    if not _are_pixels(items):
        return None
    array = np.asarray(items)
    batch = array if array.ndim == 4 else array[None]
    return [_as_uint8(pixels, who) for pixels in batch]


def _are_pixels(x: Any) -> bool:
    """Whether the shape is that of one image or several, (H, W, C) each."""
    shape: Any = getattr(x, "shape", ())
    return len(shape) in (3, 4) and shape[-1] in (1, 3)


def _pixels(item: Any, who: str) -> Pixels:
    if isinstance(item, str | os.PathLike):
        return read_image(item)
    if isinstance(item, PIL.Image.Image):
        return pixels_of(item)
    if not isinstance(item, bytes):
        return _as_uint8(np.asarray(item), who)
    try:
        return read_image(io.BytesIO(item))
    except ValueError as error:
        raise ValueError(
            f"{who} must be complete image files if they are bytes. Received: "
            f"{len(item)} bytes, {item[:8]!r}…: {error}"
        ) from error


def _as_uint8(pixels: Any, who: str) -> Pixels:
    """Pixels, (H, W, C); numbers in 0 to 255 are rounded."""
    if pixels.dtype.kind not in "uif" or not pixels.size:
        raise ValueError(
            f"{who} must be pixels, numbers from 0 to 255. Received: "
            f"{pixels.dtype} of shape {pixels.shape}."
        )
    if pixels.dtype == np.uint8:
        return np.atleast_3d(pixels)
    numbers = np.asarray(pixels, np.float32)
    lowest, highest = numbers.min(initial=0), numbers.max(initial=0)
    # NaN fails both comparisons.
    if not (lowest >= 0 and highest <= 255):
        raise ValueError(
            f"{who} must be pixels from 0 to 255. Received: pixels of dtype "
            f"{pixels.dtype} from {lowest:.3g} to {highest:.3g}."
        )
    if 0 < highest <= 1:
        raise ValueError(
            f"{who} must be pixels from 0 to 255. Received: pixels of dtype "
            f"{pixels.dtype} up to {highest:.3g}, which look scaled to 0…1. "
            "Multiply them by 255."
        )
    return np.rint(numbers).astype(np.uint8)


def as_image_set(x: Any) -> Examples | None:
    """Examples unchanged, a set of one or several paths, or None."""
    if isinstance(x, Examples):
        return x
    if isinstance(x, str | os.PathLike):
        x = [x]
    if not isinstance(x, list | tuple) or not x:
        return None
    if not all(isinstance(path, str | os.PathLike) for path in x):
        return None
    for path in x:  # Reading a pipe would wait forever.
        if not os.path.isfile(path) and os.path.exists(path):
            raise ValueError(
                f"The image file {os.fspath(path)!r} cannot be read: it is a "
                "folder, a pipe or a device. Use regular files."
            )
    return ImageSet(x)


def image_columns(items: Any) -> dict[str, list[Any]]:
    """Index columns that come from images, if `items` are images.

    "path", absolute, for files; for a set also "label", "name", "source" and
    "box". With several labels per example, "label" lists their numbers.
    """
    columns: dict[str, list[Any]] = {}
    if (images := as_image_set(items)) is None:
        return columns
    paths = images.paths if isinstance(images, ImageSet) else None
    if paths is not None:
        columns["path"] = [os.path.abspath(path) for path in paths]
    if not isinstance(items, Examples):
        return columns
    if images.labels is not None:
        columns["label"] = label_values(images.labels)
        if images.names and images.has_label_sets:
            rows = range(len(images))
            columns["name"] = [images.class_called(row) for row in rows]
        elif images.names:
            columns["name"] = [images.names.get(x) for x in columns["label"]]
    if images.ids is not None:
        columns["source"] = list(images.ids)
    if isinstance(images, ImageSet) and images.boxes is not None:
        columns["box"] = images.boxes.tolist()
    return columns
