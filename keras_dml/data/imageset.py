"""ImageSet: images and their class labels, in a fixed order."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.data.fields import (
    Names,
    Pixels,
    as_boxes,
    as_images,
    as_labels,
    as_names,
)
from keras_dml.utils.types import Rows

PathLike: TypeAlias = str | os.PathLike[str]

# Files that an error names.
_NAMED = 3


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ImageSet:
    """Images and their class labels, in a fixed order.

    The images are either pixels in memory or files that are read when
    they are needed. An image's only identity is its row number: labels
    and ids say something about it, they never find it. The set does not
    change; `select` makes another one. Its arguments are its attributes:
    arrays read-only, several strings a tuple, names a mapping.

    Args:
        images: uint8 pixels 0..255 of shape (N, H, W), (N, H, W, 1) or
            (N, H, W, 3), or a sequence of N file paths.
        labels: (N,) integers of any size, kept as int64.
        names: Optional class names: a mapping from label to name, or a
            sequence whose item `i` names label `i`.
        ids: Optional N strings: what the images' source calls them.
        boxes: Optional (N, 4) integers: left, top, right and bottom of the
            part of each file's image that is the image, in pixels of the
            image as it is seen, after its EXIF orientation is applied;
            right and bottom are the first column and row outside of it.
            What reaches beyond the file's image is cut off.

    Raises:
        ValueError: If the images are neither, if the labels are not
            integers, if boxes are empty or of pixels in memory, or if
            lengths differ.

    Example:

    ```python
    images = ImageSet(["a/1.jpg", "a/2.jpg", "b/1.jpg"], [0, 0, 1])
    images.select([2])  # the third image alone
    ```
    """

    images: Pixels | tuple[str, ...]
    labels: Rows
    names: Mapping[int, str]
    ids: tuple[str, ...] | None
    boxes: Rows | None

    def __init__(
        self,
        images: Pixels | Sequence[PathLike],
        labels: npt.ArrayLike,
        names: Names | None = None,
        ids: Iterable[str] | None = None,
        boxes: npt.ArrayLike | None = None,
    ) -> None:
        rows = as_labels(labels, owner="ImageSet")
        fields = {
            "images": as_images(images),
            "labels": rows,
            "names": as_names(names, rows),
            "ids": None if ids is None else tuple(map(str, ids)),
            "boxes": None if boxes is None else as_boxes(boxes),
        }
        vars(self).update(fields)
        for name in ("labels", "ids", "boxes"):
            values: Any = fields[name]
            if values is not None and len(values) != len(self.images):
                raise ValueError(
                    f"`{name}` of ImageSet must have one item for every image. "
                    f"Received: {len(values)} {name}, {len(self.images)} "
                    "images."
                )
        if boxes is not None and self.pixels is not None:
            raise ValueError(
                "`boxes` of ImageSet go with files, as pixels in memory are "
                f"of one size. Received: boxes for {self!r}. Give the parts "
                "themselves as `images`."
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pixels(self) -> Pixels | None:
        """The pixels, read-only, or None for a set of files."""
        return self.images if isinstance(self.images, np.ndarray) else None

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The file paths, or None for a set of pixels."""
        return self.images if isinstance(self.images, tuple) else None

    @property
    def classes(self) -> Rows:
        """The labels that occur, ascending, each once."""
        return np.unique(self.labels)

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
        labels = self.labels[picked]
        present = set(labels.tolist())
        images = self.images
        return ImageSet(
            [images[row] for row in picked]
            if isinstance(images, tuple)
            else images[picked],
            labels,
            names={k: v for k, v in self.names.items() if k in present},
            ids=None if self.ids is None else [self.ids[r] for r in picked],
            boxes=None if self.boxes is None else self.boxes[picked],
        )

    def relabeled(self) -> "ImageSet":
        """The same images with their classes numbered 0, 1, 2, ….

        The order of the labels is kept, and so are the names. Losses with
        a weight for each class need labels like these.
        """
        classes, labels = np.unique(self.labels, return_inverse=True)
        names = {
            number: self.names[label]
            for number, label in enumerate(classes.tolist())
            if label in self.names
        }
        return replace(self, labels=labels, names=names)

    def read(self, row: int) -> Pixels:
        """The pixels of one image, (H, W, 1) or (H, W, 3) uint8.

        Raises:
            ValueError: If the image's file cannot be decoded, or nothing of
                it is in the image's box; it is named.
        """
        if isinstance(self.images, np.ndarray):
            pixels = self.images[row]
            return pixels[..., None] if pixels.ndim == 2 else pixels
        from keras_dml.data.decode import read_image

        box = None if self.boxes is None else self.boxes[row]
        return read_image(self.images[row], box)

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
        kind = "files"
        if self.pixels is not None:
            kind = "×".join(map(str, self.pixels.shape[1:])) + " pixels"
        return (
            f"ImageSet({len(self):,} images of {self.num_classes:,} "
            f"classes, {kind})"
        )


def concatenate(sets: Sequence[ImageSet]) -> ImageSet:
    """One set with the rows of several, one after the other.

    Ids are kept where every set has them.

    Raises:
        ValueError: If some sets hold pixels and others files, if image
            sizes differ, if only some have boxes, or if two sets name a
            class differently.
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
    boxes = [part.boxes for part in sets if part.boxes is not None]
    if 0 < len(boxes) < len(sets):
        raise ValueError(
            "`sets` of concatenate must all have boxes, or none. Received: "
            f"{len(boxes)} of {len(sets)} with boxes."
        )
    files = [path for part in sets for path in part.paths or ()]
    ids = [name for part in sets for name in part.ids or ()]
    labels = np.concatenate([part.labels for part in sets])
    return ImageSet(
        np.concatenate(pixels) if pixels else files,
        labels,
        names=names,
        ids=ids if len(ids) == len(labels) else None,
        boxes=np.concatenate(boxes) if boxes else None,
    )


def listed_images(
    owner: object,
    root: Path,
    files: Sequence[str],
    labels: npt.ArrayLike,
    **fields: Any,
) -> ImageSet:
    """The images in files of a folder, all of which must be there.

    The files are also their ids, unless others are given. An error names
    the owner of the list, and some of the files that are missing.
    """
    paths = [root / file for file in files]
    names = defaultdict(set)
    for path in paths:
        names[path.parent].add(path.name)
    # Each folder is read once: to look for each file takes far longer.
    there = {folder: _names_in(folder) for folder in names}
    missing = [path for path in paths if path.name not in there[path.parent]]
    if missing:
        some = ", ".join(map(str, missing[:_NAMED]))
        raise FileNotFoundError(
            f"{len(missing):,} of the {len(paths):,} images that {owner} "
            f"lists are not there, such as {some}. Unpack the images again, "
            "or take the missing ones out of the list."
        )
    return ImageSet(paths, labels, **{"ids": files, **fields})


def _names_in(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()


GivenImages: TypeAlias = (
    ImageSet | PathLike | Sequence[PathLike] | npt.NDArray[np.uint8]
)
"""A set, one or several files, or uint8 pixels (H, W), (H, W, C) or
(B, H, W, C), C being 1 or 3."""


def as_image_set(x: Any) -> ImageSet | None:
    """A set of the images that `x` is; None if it is not images.

    Images that are no set have no labels; theirs in the set mean nothing.
    """
    if isinstance(x, ImageSet):
        return x
    if isinstance(x, str | os.PathLike):
        x = [x]
    is_list = isinstance(x, list | tuple)
    if is_list and all(isinstance(path, str | os.PathLike) for path in x):
        return ImageSet(x, np.zeros(len(x), np.int64)) if x else None
    if getattr(x, "dtype", None) != np.uint8:
        return None
    is_batch = x.ndim == 4 or (x.ndim == 3 and x.shape[-1] not in (1, 3))
    pixels = x if is_batch else x[None]
    return ImageSet(pixels, np.zeros(len(pixels), np.int64))


def image_columns(given: Any, images: ImageSet) -> dict[str, list[Any]]:
    """Columns that images bring along, if what was given has them.

    "path", absolute, of files; of an `ImageSet` also "label", "name",
    "source" and "box".
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
