"""ImageSet: images and their class labels, in a fixed order."""

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.types import Rows

Pixels: TypeAlias = npt.NDArray[np.uint8]
Names: TypeAlias = Mapping[int, str] | Sequence[str]


class ImageSet:
    """Images and their class labels, in a fixed order.

    The images are either pixels in memory or files that are read when
    they are needed. An image's only identity is its row number: labels
    and ids say something about it, they never find it. The set does not
    change; `select` makes another one.

    Args:
        images: uint8 pixels 0..255 of shape (N, H, W), (N, H, W, 1) or
            (N, H, W, 3), or a sequence of N file paths.
        labels: (N,) integers of any size, kept as int64.
        names: Optional class names: a mapping from label to name, or a
            sequence whose item `i` names label `i`.
        ids: Optional N strings: what the images' source calls them.

    Raises:
        ValueError: If the images are neither, if the labels are not
            integers, or if lengths differ.

    Example:

    ```python
    images = ImageSet(["a/1.jpg", "a/2.jpg", "b/1.jpg"], [0, 0, 1])
    images.select([2])  # the third image alone
    ```
    """

    def __init__(
        self,
        images: Pixels | Sequence[str | os.PathLike[str]],
        labels: npt.ArrayLike,
        names: Names | None = None,
        ids: Iterable[str] | None = None,
    ) -> None:
        self._images = _as_images(images)
        self._labels = as_labels(labels, owner="ImageSet")
        self._names = _as_names(names, self._labels)
        self._ids = None if ids is None else tuple(map(str, ids))
        _check_length("labels", len(self._labels), len(self._images))
        if self._ids is not None:
            _check_length("ids", len(self._ids), len(self._images))

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def images(self) -> Pixels | tuple[str, ...]:
        """The pixels, read-only, or the file paths."""
        return self._images

    @property
    def pixels(self) -> Pixels | None:
        """The pixels, read-only, or None for a set of files."""
        return self._images if isinstance(self._images, np.ndarray) else None

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The file paths, or None for a set of pixels."""
        return self._images if isinstance(self._images, tuple) else None

    @property
    def labels(self) -> Rows:
        """Class labels, (N,) int64, read-only."""
        return self._labels

    @property
    def names(self) -> Mapping[int, str]:
        """Class names by label; empty where none were given."""
        return self._names

    @property
    def ids(self) -> tuple[str, ...] | None:
        """What the images' source calls them, where it was given."""
        return self._ids

    @property
    def classes(self) -> Rows:
        """The labels that occur, ascending, each once."""
        return np.unique(self._labels)

    @property
    def num_classes(self) -> int:
        """Number of labels that occur."""
        return len(self.classes)

    @property
    def channels(self) -> int | None:
        """1 or 3 for pixels; None for files, which may differ."""
        if self.pixels is None:
            return None
        return 1 if self.pixels.ndim == 3 else self.pixels.shape[3]

    def select(self, rows: npt.ArrayLike) -> "ImageSet":
        """The images at `rows`, in that order.

        Args:
            rows: Row numbers, or a (N,) boolean mask.

        Raises:
            ValueError: If `rows` is neither.
            IndexError: If a row number is out of range.
        """
        picked = self._as_rows(rows)
        labels = self._labels[picked]
        present = set(labels.tolist())
        images = (
            self._images[picked]
            if isinstance(self._images, np.ndarray)
            else [self._images[row] for row in picked]
        )
        return ImageSet(
            images,
            labels,
            names={k: v for k, v in self._names.items() if k in present},
            ids=None if self._ids is None else [self._ids[r] for r in picked],
        )

    def read(self, row: int) -> Pixels:
        """The pixels of one image, (H, W, 1) or (H, W, 3) uint8.

        Raises:
            ValueError: If the image's file cannot be decoded; it is named.
        """
        if isinstance(self._images, np.ndarray):
            pixels = self._images[row]
            return pixels[..., None] if pixels.ndim == 2 else pixels
        from keras_dml.data.decode import read_image

        return read_image(self._images[row])

    def _as_rows(self, rows: npt.ArrayLike) -> Rows:
        array = np.asarray(rows)
        if array.dtype == bool and array.shape == (len(self),):
            return np.flatnonzero(array)
        if array.size == 0:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                "`rows` of ImageSet.select must be a vector of row numbers "
                f"or a mask of {len(self)} booleans. Received: rows of "
                f"dtype {array.dtype} and shape {array.shape}."
            )
        return array.astype(np.int64)

    def __repr__(self) -> str:
        kind = (
            "files"
            if self.pixels is None
            else "×".join(map(str, self.pixels.shape[1:])) + " pixels"
        )
        return (
            f"ImageSet({len(self):,} images of {self.num_classes:,} "
            f"classes, {kind})"
        )


def concatenate(sets: Sequence[ImageSet]) -> ImageSet:
    """One set with the rows of several, one after the other.

    Ids are kept where every set has them.

    Raises:
        ValueError: If some sets hold pixels and others files, if image
            sizes differ, or if two sets name a class differently.
    """
    names: dict[int, str] = {}
    for part in sets:
        for label, name in part.names.items():
            if names.setdefault(label, name) != name:
                raise ValueError(
                    "`sets` of concatenate must agree on class names. "
                    f"Received: label {label} is named {names[label]!r} "
                    f"and {name!r}."
                )
    pixels = [part.pixels for part in sets if part.pixels is not None]
    if len({p.shape[1:] for p in pixels}) > 1 or 0 < len(pixels) < len(sets):
        raise ValueError(
            "`sets` of concatenate must all hold files, or all hold pixels "
            f"of one size. Received: {', '.join(map(repr, sets))}."
        )
    files = [path for part in sets for path in part.paths or ()]
    ids = [name for part in sets for name in part.ids or ()]
    labels = np.concatenate([part.labels for part in sets])
    return ImageSet(
        np.concatenate(pixels) if pixels else files,
        labels,
        names=names,
        ids=ids if len(ids) == len(labels) else None,
    )


def as_labels(labels: npt.ArrayLike, owner: str) -> Rows:
    """Class labels as a read-only int64 vector.

    Args:
        labels: Integers; floats and strings are refused even where they
            could be converted, as 1.0 and 1.5 would become one class.
        owner: Who asks, for the error.

    Raises:
        ValueError: If `labels` are not a vector of integers.
    """
    array: npt.NDArray[Any] = np.asarray(labels)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1:
        raise ValueError(
            f"`labels` of {owner} must be a vector, one label an image. "
            f"Received: labels of shape {array.shape}. One-hot labels "
            "become integers by labels.argmax(-1)."
        )
    too_large = array.dtype.kind == "u" and np.any(array > 2**63 - 1)
    if array.dtype.kind not in "iu" or too_large:
        raise ValueError(
            f"`labels` of {owner} must be integers that fit int64. "
            f"Received: labels of dtype {array.dtype}, starting with "
            f"{array[:3].tolist()}. Number the classes by "
            "np.unique(labels, return_inverse=True)[1]."
        )
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def _as_images(
    images: Pixels | Sequence[str | os.PathLike[str]],
) -> Pixels | tuple[str, ...]:
    if isinstance(images, np.ndarray) and images.dtype.kind not in "UO":
        gray = images.ndim == 3
        if images.dtype != np.uint8 or not (
            gray or (images.ndim == 4 and images.shape[3] in (1, 3))
        ):
            raise ValueError(
                "`images` of ImageSet must be uint8 pixels of shape "
                "(N, H, W), (N, H, W, 1) or (N, H, W, 3), or file paths. "
                f"Received: an array of dtype {images.dtype} and shape "
                f"{images.shape}. Pixels in 0..1 become uint8 by "
                "np.round(255 * images).astype('uint8')."
            )
        view = images.view()
        view.flags.writeable = False
        return view
    if isinstance(images, str | bytes | os.PathLike):
        raise ValueError(
            "`images` of ImageSet must be a sequence of paths, one an "
            f"image. Received: images={images!r}. A folder of images is "
            "read by keras_dml.data.image_folder."
        )
    odd = [x for x in images if not isinstance(x, str | os.PathLike)][:1]
    if odd:
        raise ValueError(
            "`images` of ImageSet must be one uint8 array or a sequence "
            f"of paths. Received: a sequence with a {type(odd[0]).__name__} "
            "in it. Images of one size become an array by np.stack(images)."
        )
    return tuple(os.fspath(path) for path in images)


def _as_names(names: Names | None, labels: Rows) -> Mapping[int, str]:
    if names is None:
        return MappingProxyType({})
    if isinstance(names, Mapping):
        return MappingProxyType({int(k): str(v) for k, v in names.items()})
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise ValueError(
            "`names` of ImageSet, when a sequence, must have an item for "
            f"every label. Received: {len(names)} names, labels from "
            f"{labels.min()} to {labels.max()}. Use a mapping {{label: "
            "name}."
        )
    return MappingProxyType({i: str(name) for i, name in enumerate(names)})


def _check_length(name: str, length: int, images: int) -> None:
    if length != images:
        raise ValueError(
            f"`{name}` of ImageSet must have one item for every image. "
            f"Received: {length} {name}, {images} images."
        )
