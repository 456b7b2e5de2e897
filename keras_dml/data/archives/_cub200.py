"""CUB-200-2011: 200 kinds of birds."""

import os
from pathlib import Path

import numpy as np

from keras_dml.data import archive
from keras_dml.data.imageset import listed_images
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.types import HeldOut, Rows

_LISTS = (
    "images.txt",
    "image_class_labels.txt",
    "bounding_boxes.txt",
    "classes.txt",
)
ARCHIVE = archive.Archive(
    "CUB-200-2011",
    (archive.Layout("CUB_200_2011", (*_LISTS, "images"), images="images"),),
    {
        "train classes": 100,
        "train images": 5864,
        "test classes": 100,
        "test images": 5924,
    },
)


@dataset("cub200", "200 kinds of birds, 11,788 images", archive=ARCHIVE)
def cub200(
    path: str | os.PathLike[str],
    cropped: bool = False,
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: archive.Counts | None = ARCHIVE.counts,
) -> DataSplits:
    """CUB-200-2011, split by class: the first 100 train, the others test.

    The archive's own `train_test_split.txt` is for classification and is
    ignored.

    Args:
        path: The folder `CUB_200_2011`, or its parent.
        cropped: Whether to crop images to their bounding boxes.
        validation: Fraction of the training classes that is held out for model
            selection.
        seed: Determines which classes are held out.
        counts: Expected numbers of images and classes; None accepts any.

    Returns:
        The splits. Labels are those of the archive, from 1; ids are the paths
        in its folder `images`.

    Raises:
        FileNotFoundError: If a list or an image is missing.
        ValueError: If a list is damaged, or a count differs.

    Reference:
        Wah et al., "The Caltech-UCSD Birds-200-2011 Dataset", CNS-TR-2011-001,
        https://www.vision.caltech.edu/datasets/cub_200_2011/; split: Song et
        al., "Deep Metric Learning via Lifted Structured Feature Embedding",
        CVPR 2016.
    """
    folder, layout = ARCHIVE.locate(path, "cub200")
    images_file, labels_file, boxes_file, classes_file = (
        folder / name for name in _LISTS
    )
    ids, names = archive.read_list(images_file, 2)
    (labels,) = archive.read_by_id(labels_file, 2, ids)
    classes, class_names = archive.read_list(classes_file, 2)
    numbers = archive.as_integers(classes, "class", classes_file)
    images = listed_images(
        images_file,
        folder / layout.images,
        names,
        archive.as_integers(labels, "class", labels_file),
        names=dict(zip(numbers, class_names, strict=True)),
        boxes=_read_boxes(boxes_file, ids) if cropped else None,
    )
    trainval, test = archive.halves(images, counts)
    ARCHIVE.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(trainval, test, "cub200", validation, seed)


def _read_boxes(file: Path, ids: list[str]) -> Rows:
    """Boxes from x, y, width and height, rounded outwards."""
    x, y, width, height = np.array(archive.read_by_id(file, 5, ids), np.float64)
    first = np.floor([x, y])
    last = np.ceil([x + width, y + height])
    return np.concatenate([first, last]).T.astype(np.int64)
