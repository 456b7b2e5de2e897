"""Images of `tensorflow_datasets`, in files that can be read by row."""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from keras_dml.data.caching import cache_folder
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import write_atomically
from keras_dml.utils.progress import track

_INDEX = "images.json"
"""The file that lists the images and their labels, written last."""


def tfds_images(
    name: str,
    split: str = "train",
    data_dir: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> ImageSet:
    """The images of a split of a data set in `tensorflow_datasets`.

    They are written to files once, in their original encoding, because
    training reads them in any order. `split_classes` splits them by class.

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
    images = [x for x, f in features.items() if type(f) is tfds.features.Image]
    if len(images) != 1:
        raise ValueError(
            "`name` of tfds_images must be a data set with one image per "
            f"record. Received: {name!r}, with the features {list(features)}. "
            "For others, use keras_dml.data.from_dataset(tfds.load(…))."
        )
    kind = tfds.features.ClassLabel
    classes = [x for x, f in features.items() if isinstance(f, kind)]
    label = "label" if "label" in classes else None
    if len(classes) == 1:
        label = classes[0]
    base = Path(cache or cache_folder() / "tfds-images")
    folder = base / builder.info.full_name / quote(split, safe="")
    index = folder / _INDEX
    if not index.exists():
        builder.download_and_prepare()
        files, labels = _unpack(builder, split, folder, images[0], label)
        write_atomically(index, json.dumps({"files": files, "labels": labels}))
    content = json.loads(index.read_text(encoding="utf-8"))
    names = features[label].names if label else None
    return listed_images(
        folder, folder, content["files"], content["labels"], names=names
    )


def _unpack(
    builder: Any, split: str, folder: Path, image: str, label: str | None
) -> tuple[list[str], list[int] | None]:
    """Writes the images of a split in their encoding; files and labels."""
    from tensorflow_datasets import decode

    folder.mkdir(parents=True, exist_ok=True)
    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders=decode.PartialDecoding(
            dict.fromkeys(filter(None, (image, label)), True),
            decoders={image: decode.SkipDecoding()},
        ),
    )
    files: list[str] = []
    labels: list[int] = []
    total = int(dataset.cardinality())
    records = dataset.as_numpy_iterator()
    for record in track(records, total, f"Unpacking {split}"):
        # Readers ignore the extension, whatever the format.
        files.append(f"{len(files):06d}.jpg")
        (folder / files[-1]).write_bytes(record[image])
        if label:
            labels.append(int(record[label]))
    return files, labels if label else None
