"""ImageSet: images with class labels, in a fixed order."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.data.bad_files import BadFiles
from keras_dml.data.examples import About, Examples, describe
from keras_dml.data.validation import (
    Names,
    Pixels,
    as_boxes,
    as_images,
    as_rows,
    check_lengths,
)
from keras_dml.utils.types import Rows

if TYPE_CHECKING:
    import keras

    from keras_dml.data.view import View

PathLike: TypeAlias = str | os.PathLike[str]

# Number of files that an error names.
_MAX_NAMES = 3


@dataclass(frozen=True, init=False, eq=False, repr=False)
class ImageSet(Examples):
    """Images with class labels, in a fixed order.

    The images are either pixels in memory or files that are read when they are
    needed. An image is identified only by its row number: labels and ids
    describe images, but never identify them. The set is immutable; `select`
    returns a new one. Its arguments are also its attributes: arrays are
    read-only, sequences of strings become tuples, and names become a mapping.

    Args:
        images: uint8 pixels 0..255 of shape (N, H, W), (N, H, W, 1) or (N, H,
            W, 3), or a sequence of N file paths.
        labels: (N,) integers of any size, stored as int64; or strings, which
            are numbered and become the names. None: unknown, which is
            sufficient for embedding and indexing.
        names: Class names: a mapping from label to name, or a sequence whose
            item `i` names label `i`. If labels are strings, this mapping
            determines their numbers; pass the names of one set to another, so
            that both number classes alike.
        ids: Optional N strings: names of the images in their source.
        boxes: Optional (N, 4) integers for files: left, top, right and bottom
            of the part that is used, in pixels of the image after its EXIF
            orientation is applied; right and bottom are the first column and
            row outside it. Parts of a box outside the image are cut off.

    Raises:
        ValueError: If the images are neither pixels nor paths, if the labels
            are neither integers nor strings, if boxes are empty or given for
            pixels in memory, or if lengths differ.

    Example:

    ```python
    images = ImageSet(["a/1.jpg", "a/2.jpg", "b/1.jpg"], [0, 0, 1])
    images.select([2])  # the third image alone
    ```
    """

    images: Pixels | tuple[str, ...]
    boxes: Rows | None
    bad_files: BadFiles | None = None

    def __init__(
        self,
        images: Pixels | Sequence[PathLike],
        labels: Any = None,
        names: Names | None = None,
        ids: Iterable[str] | None = None,
        boxes: npt.ArrayLike | None = None,
    ) -> None:
        about = About.of(labels, names, ids, "ImageSet")
        fields: dict[str, Any] = {
            "images": as_images(images),
            **vars(about),
            "boxes": None if boxes is None else as_boxes(boxes),
        }
        vars(self).update(fields)
        sized = {name: fields[name] for name in ("labels", "ids", "boxes")}
        check_lengths("ImageSet", "images", len(self), **sized)
        if boxes is not None and self.pixels is not None:
            raise ValueError(
                "`boxes` of ImageSet require files, because pixels in memory "
                f"have one size. Received: boxes for {self!r}. Pass the "
                "cropped parts as `images`."
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def pixels(self) -> Pixels | None:
        """The pixels, read-only, or None for a set of files."""
        return self.images if isinstance(self.images, np.ndarray) else None

    @property
    def paths(self) -> tuple[str, ...] | None:
        """The file paths, or None for a set of pixels."""
        return self.images if isinstance(self.images, tuple) else None

    @property
    def channels(self) -> int | None:
        """1 or 3 for pixels; None for files, which may differ."""
        if self.pixels is None:
            return None
        return 1 if self.pixels.ndim == 3 else self.pixels.shape[3]

    def inputs(self, rows: npt.ArrayLike | EllipsisType) -> Pixels:
        """Returns the pixels of some images, all of one size.

        Args:
            rows: Row numbers, (n,), or a (N,) boolean mask.

        Returns:
            (n, H, W, 1) or (n, H, W, 3) uint8.

        Raises:
            ValueError: If the images differ in size, or one cannot be decoded.
        """
        picked = as_rows(rows, len(self), "ImageSet.inputs")
        if isinstance(self.images, np.ndarray):
            pixels = self.images[picked]
            return pixels[..., None] if pixels.ndim == 3 else pixels
        read = [self.read(row) for row in picked]
        shapes = sorted({pixels.shape for pixels in read})
        if len(shapes) > 1:
            raise ValueError(
                "`rows` of ImageSet.inputs must be images of one size. "
                f"Received: images of {shapes[0]} and of {shapes[1]}. Use "
                "keras_dml.data.eval_batches(images, view)."
            )
        return np.stack(read)

    def _at(self, rows: Rows | None, about: About) -> "ImageSet":
        images, boxes = self.images, self.boxes
        if rows is not None:
            boxes = None if boxes is None else boxes[rows]
            images = (
                images[rows]
                if isinstance(images, np.ndarray)
                else tuple(images[row] for row in rows)
            )
        subset = ImageSet(images, about.labels, about.names, about.ids, boxes)
        return subset.skipping(self.bad_files)

    @classmethod
    def _join(cls, sets: Sequence["ImageSet"], about: About) -> "ImageSet":
        pixels = [part.pixels for part in sets if part.pixels is not None]
        shapes = {x.shape[1:] for x in pixels}
        if len(shapes) > 1 or 0 < len(pixels) < len(sets):
            raise ValueError(
                "`sets` of concatenate must all have files, or all have pixels "
                f"of one size. Received: {', '.join(map(repr, sets))}."
            )
        boxes = [part.boxes for part in sets if part.boxes is not None]
        if 0 < len(boxes) < len(sets):
            raise ValueError(
                "`sets` of concatenate must all have boxes, or none. "
                f"Received: {len(boxes)} of {len(sets)} with boxes."
            )
        files = [path for part in sets for path in part.paths or ()]
        joined = ImageSet(
            np.concatenate(pixels) if pixels else files,
            about.labels,
            about.names,
            about.ids,
            np.concatenate(boxes) if boxes else None,
        )
        policies = {part.bad_files for part in sets}
        return joined.skipping(policies.pop() if len(policies) == 1 else None)

    def skipping(self, bad_files: BadFiles | None) -> "ImageSet":
        """The set itself, which counts bad files instead of raising errors."""
        vars(self)["bad_files"] = bad_files
        return self

    def view_for(self, model: "keras.Model") -> "View":
        from keras_dml.data.view import View

        return View.of(model)

    def read(self, row: int) -> Pixels:
        """Returns the pixels of one image, (H, W, 1) or (H, W, 3) uint8.

        Raises:
            ValueError: If the image's file, which is named, cannot be decoded,
                or its box is outside the image.
        """
        if isinstance(self.images, np.ndarray):
            pixels = self.images[row]
            return pixels[..., None] if pixels.ndim == 2 else pixels
        from keras_dml.data.decode import read_image

        box = None if self.boxes is None else self.boxes[row]
        return read_image(self.images[row], box)

    def __repr__(self) -> str:
        kind = "files"
        if self.pixels is not None:
            kind = "×".join(map(str, self.pixels.shape[1:])) + " pixels"
        return describe(self, "images", kind)


def listed_images(
    owner: object,
    root: Path,
    files: Sequence[str],
    labels: npt.ArrayLike | None,
    **fields: Any,
) -> ImageSet:
    """The images in files of a folder, all of which must exist."""
    paths = [root / file for file in files]
    names = defaultdict(set)
    for path in paths:
        names[path.parent].add(path.name)
    # Folders are read once, because looking for each file takes far longer.
    for folder, unseen in names.items():
        with suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(folder) as entries:
                unseen -= {entry.name for entry in entries if entry.is_file()}
    missing = [path for path in paths if path.name in names[path.parent]]
    if missing:
        examples = ", ".join(map(str, missing[:_MAX_NAMES]))
        raise FileNotFoundError(
            f"{len(missing):,} of the {len(paths):,} images listed by {owner} "
            f"do not exist, or are not files, such as {examples}. Unpack the "
            "images again, or remove the missing ones from the list."
        )
    return ImageSet(paths, labels, **{"ids": files, **fields})
