"""Benchmark data sets prepared by `tensorflow_datasets`."""

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.data.archive import Archive, Counts, halves
from keras_dml.data.caching import cache_folder
from keras_dml.data.examples import concatenate
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.data.splits import DATASETS, DataSplits
from keras_dml.data.unpacking import INDEX, file_name, unpacked
from keras_dml.utils.files import write_atomically
from keras_dml.utils.types import FloatArray

_PARTS = ("train", "test")


@dataclass(frozen=True)
class _Source:
    """A data set of `tensorflow_datasets`.

    Attributes:
        loader: The loader of the same data set from its archive.
        label: Name of the class feature, counted from 0.
        first: Number of the first column in its boxes, if it has any.
        is_classification: Whether both of its parts have every class.
    """

    loader: str
    label: str
    first: int | None
    is_classification: bool = True

    @property
    def archive(self) -> Archive:
        found: Archive = DATASETS[self.loader].details["archive"]
        return found


_SOURCES = {
    "caltech_birds2011": _Source("cub200", "label", 0),
    "cars196": _Source("cars196", "label", 1),
    "stanford_online_products": _Source("sop", "class_id", None, False),
}


def tfds_splits(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    cropped: bool = False,
    validation: float = 0.2,
    seed: int = 0,
    counts: Counts | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> DataSplits:
    """A data set of `tensorflow_datasets`, split by class.

    Its birds and cars are divided for training and testing a classifier: both
    parts are combined and split by class, as `cub200` and `cars196` do. The
    products are already split by class.

    Images are written to files once, in their original encoding, because
    training reads them in any order.

    Args:
        name: "caltech_birds2011", "cars196" or "stanford_online_products".
        data_dir: Folder where `tensorflow_datasets` keeps its data.
        cropped: Whether to crop images to their bounding boxes; not for
            products, which have none.
        validation: See `cub200`.
        seed: See `cub200`.
        counts: Expected counts, by default those of the archive; an empty
            mapping accepts any.
        cache: Folder for the files, by default in `cache_folder()`.

    Returns:
        The splits. Labels are those of the archive, from 1.

    Raises:
        ValueError: If the data set is none of these, has no boxes, or a count
            differs.
    """
    if name not in _SOURCES:
        raise ValueError(
            f"`name` of tfds_splits must be one of {tuple(_SOURCES)}. "
            f"Received: name={name!r}. For an existing split of any other "
            "data set, use "
            "keras_dml.data.tfds_images."
        )
    source = _SOURCES[name]
    if cropped and source.first is None:
        raise ValueError(
            "`cropped` of tfds_splits requires a data set with bounding "
            f"boxes. Received: cropped=True, name={name!r}."
        )
    folder = Path(cache or cache_folder() / "tfds") / name
    parts = []
    for part in _PARTS:
        index = folder / part / INDEX
        if not index.exists():
            _unpack(name, source, data_dir, index.parent, part)
        parts.append(_read(index, cropped))
    counts = source.archive.counts if counts is None else counts or None
    if source.is_classification:
        trainval, test = halves(concatenate(parts), counts)
    else:
        trainval, test = parts
    source.archive.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(
        trainval, test, source.loader, validation, seed
    )


def _read(index: Path, cropped: bool) -> ImageSet:
    """The images of one part."""
    content: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    labels = content["labels"]
    return listed_images(
        index,
        index.parent,
        [file_name(number) for number in range(len(labels))],
        labels,
        ids=None,
        boxes=content["boxes"] if cropped else None,
    )


def _unpack(
    name: str,
    source: _Source,
    data_dir: str | os.PathLike[str] | None,
    folder: Path,
    part: str,
) -> None:
    """Writes the encoded images of one part, and then the index."""
    import tensorflow_datasets as tfds

    wanted = ["image", source.label, *["bbox"] * (source.first is not None)]
    dataset = tfds.load(
        name,
        split=part,
        data_dir=data_dir,
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding(
            dict.fromkeys(wanted, True),
            decoders={"image": tfds.decode.SkipDecoding()},
        ),
    )
    labels: list[int] = []
    boxes: list[list[int]] = []
    for example in unpacked(dataset, "image", folder, part):
        labels.append(int(example[source.label]) + 1)
        if source.first is not None:
            boxes.append(_box(example["bbox"], example["image"], source.first))
    content = json.dumps({"labels": labels, "boxes": boxes or None})
    write_atomically(folder / INDEX, content)


def _box(bounds: FloatArray, encoded: bytes, first: int) -> list[int]:
    """Boxes from top, left, bottom and right as fractions, rounded
    outwards."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as image:
        width, height = image.size
    # They are float32, and were whole numbers of pixels or halves.
    sides = np.array([height, width, height, width])
    exact = np.round(np.asarray(bounds, np.float64) * sides, 2)
    top, left = np.floor(exact[:2]) - first
    bottom, right = np.ceil(exact[2:])
    return [max(0, int(left)), max(0, int(top)), int(right), int(bottom)]
