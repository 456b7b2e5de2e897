"""Images of `tensorflow_datasets`, in files that can be read by row."""

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from keras_dml.data.archive import Archive, Counts, halves
from keras_dml.data.caching import cache_folder
from keras_dml.data.examples import concatenate
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.data.splits import DATASETS, DataSplits
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import write_atomically
from keras_dml.utils.progress import track
from keras_dml.utils.types import FloatArray

_INDEX = "images.json"
"""The file that lists what is known about the images, written last."""


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
            f"Received: name={name!r}. For an existing split of any other data "
            "set, use keras_dml.data.tfds_images."
        )
    source = _SOURCES[name]
    if cropped and source.first is None:
        raise ValueError(
            "`cropped` of tfds_splits requires a data set with bounding "
            f"boxes. Received: cropped=True, name={name!r}."
        )

    def load(**how: Any) -> Any:
        import tensorflow_datasets as tfds

        return tfds.load(name, data_dir=data_dir, **how)

    folder = Path(cache or cache_folder() / "tfds-splits") / name
    parts = []
    for part in ("train", "test"):
        found = _unpacked(
            load, part, folder / part, "image", source.label, source.first
        )
        images = listed_images(
            folder / part,
            folder / part,
            found["files"],
            np.array(found["labels"]) + 1,
            ids=None,
            boxes=found["boxes"] if cropped else None,
        )
        parts.append(images)
    counts = source.archive.counts if counts is None else counts or None
    if source.is_classification:
        trainval, test = halves(concatenate(parts), counts)
    else:
        trainval, test = parts
    source.archive.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(
        trainval, test, source.loader, validation, seed
    )


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


def tfds_images(
    name: str,
    split: str = "train",
    data_dir: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> ImageSet:
    """The images of a split of a data set in `tensorflow_datasets`.

    They are written to files once, in their original encoding, because
    training reads them in any order. `tfds_splits` splits the benchmark data
    sets by class.

    Args:
        name: The name in `tensorflow_datasets`, such as "food101" or
            "oxford_iiit_pet:3.2.0". The data set is downloaded unless it is
            prepared.
        split: One of its splits, or a part of one: "train[:10%]".
        data_dir: Folder where `tensorflow_datasets` keeps its data.
        cache: Folder for the files, by default in `cache_folder()`.

    Returns:
        The images. Their labels and class names are those of the feature
        "label", or of the only class feature; None if there is neither.

    Raises:
        ValueError: If the data set or split does not exist, or it does not
            have exactly one image feature.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        hint = did_you_mean(name, tfds.list_builders())
        raise ValueError(
            "`name` of tfds_images must be a data set of tensorflow_datasets. "
            f"Received: {name!r}.{hint} For a folder of images, use "
            "keras_dml.data.image_folder."
        ) from None
    features = builder.info.features
    image = _image(tfds, name, features)
    label = _label(tfds, features)
    base = Path(cache or cache_folder() / "tfds-images")
    folder = base / builder.info.full_name / quote(split, safe="")
    if not (folder / _INDEX).exists():
        builder.download_and_prepare()
    found = _unpacked(builder.as_dataset, split, folder, image, label)
    names = features[label].names if label else None
    return listed_images(
        folder, folder, found["files"], found["labels"], names=names
    )


def _image(tfds: Any, name: str, features: Any) -> str:
    """The name of the only image feature."""
    found = [x for x, f in features.items() if type(f) is tfds.features.Image]
    if len(found) != 1:
        raise ValueError(
            "`name` of tfds_images must be a data set with one image per "
            f"record. Received: {name!r}, with the features {list(features)}. "
            "For others, use keras_dml.data.from_dataset(tfds.load(…))."
        )
    return str(found[0])


def _label(tfds: Any, features: Any) -> str | None:
    """The name of the class feature, if there is one."""
    kind = tfds.features.ClassLabel
    found = [x for x, feature in features.items() if isinstance(feature, kind)]
    if "label" in found or len(found) == 1:
        return "label" if "label" in found else str(found[0])
    return None


def _unpacked(
    load: Callable[..., Any],
    split: str,
    folder: Path,
    image: str,
    label: str | None,
    first: int | None = None,
) -> dict[str, Any]:
    """Files, labels and boxes of a split's images, which are written once.

    The images keep their encoding; the index is written last. `load` returns
    the data set, `image` and `label` name its features, and `first` is the
    number of the first column in "bbox", if there are boxes.
    """
    from tensorflow_datasets import decode

    index = folder / _INDEX
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = filter(None, (image, label, first is not None and "bbox"))
        decoders = decode.PartialDecoding(
            dict.fromkeys(wanted, True), decoders={image: decode.SkipDecoding()}
        )
        dataset = load(split=split, shuffle_files=False, decoders=decoders)
        total = int(dataset.cardinality())
        records = dataset.as_numpy_iterator()
        files: list[str] = []
        labels: list[int] = []
        boxes: list[list[int]] = []
        for record in track(records, total, f"Unpacking {split}"):
            # Whatever its format.
            files.append(f"{len(files):06d}.jpg")
            (folder / files[-1]).write_bytes(record[image])
            if label:
                labels.append(int(record[label]))
            if first is not None:
                boxes.append(_box(record["bbox"], record[image], first))
        found = {
            "files": files,
            "labels": labels if label else None,
            "boxes": boxes,
        }
        write_atomically(index, json.dumps(found))
    content: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    return content
