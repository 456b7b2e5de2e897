"""`tfds_images`: the images of any data set in `tensorflow_datasets`."""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from keras_dml.data.caching import cache_folder
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.data.unpacking import INDEX, file_name, unpacked
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.files import write_atomically


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
    if not (folder / INDEX).exists():
        builder.download_and_prepare()
        _unpack(tfds, builder, split, image, label, folder)
    content = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    files = [file_name(number) for number in range(content["images"])]
    return listed_images(
        folder / INDEX, folder, files, content["labels"], names=content["names"]
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


def _unpack(
    tfds: Any,
    builder: Any,
    split: str,
    image: str,
    label: str | None,
    folder: Path,
) -> None:
    """Writes the images, and then the index."""
    wanted = [image] if label is None else [image, label]
    dataset = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding(
            dict.fromkeys(wanted, True),
            decoders={image: tfds.decode.SkipDecoding()},
        ),
    )
    records = unpacked(dataset, image, folder, split)
    labels = [0 if label is None else int(record[label]) for record in records]
    names = builder.info.features[label].names if label else None
    content = {
        "images": len(labels),
        "labels": labels if label else None,
        "names": names,
    }
    write_atomically(folder / INDEX, json.dumps(content))
