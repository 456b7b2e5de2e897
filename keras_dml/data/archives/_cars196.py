"""Cars196: 196 makes and models of cars."""

import os
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from keras_dml.data import archive
from keras_dml.data.imageset import listed_images
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.files import check_regular
from keras_dml.utils.types import HeldOut

_MERGED = archive.Layout("cars196", ("cars_annos.mat", "car_ims"))
# The test set's labels came as a file of their own; it is kept in either
# place.
_WITH_LABELS = "cars_test_annos_withlabels.mat"
_DEVKIT = ("devkit/cars_train_annos.mat", "cars_train", "cars_test")
ARCHIVE = archive.Archive(
    "Cars196",
    (
        _MERGED,
        archive.Layout("stanford_cars", (*_DEVKIT, f"devkit/{_WITH_LABELS}")),
        archive.Layout("stanford_cars", (*_DEVKIT, _WITH_LABELS)),
    ),
    {
        "train classes": 98,
        "train images": 8054,
        "test classes": 98,
        "test images": 8131,
    },
)
_Annotations: TypeAlias = tuple[list[str], dict[str, Any], list[str]]
"""Image files, their annotation fields, and the class names."""


@dataset("cars196", "196 models of cars, 16,185 images", archive=ARCHIVE)
def cars196(
    path: str | os.PathLike[str],
    cropped: bool = False,
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: archive.Counts | None = ARCHIVE.counts,
) -> DataSplits:
    """Cars196, split by class: the first 98 train, the others test.

    The annotations are read from `cars_annos.mat`, or from
    `cars_train_annos.mat` and `cars_test_annos_withlabels.mat` of the devkit,
    whose images are in `cars_train` and `cars_test`. The images are the same;
    the archive's own split, which is for classification, is ignored.

    Args:
        path: The folder with the annotations and the images.
        cropped: Whether to crop images to their bounding boxes.
        validation: See `cub200`.
        seed: See `cub200`.
        counts: See `cub200`.

    Returns:
        The splits. Labels are those of the archive, from 1; ids are the paths
        in its folder.

    Raises:
        FileNotFoundError: If annotations or an image are missing.
        ValueError: If annotations are damaged, or a count differs.

    Reference:
        Krause et al., "3D Object Representations for Fine-Grained
        Categorization", 3dRR 2013; split: Song et al., "Deep Metric Learning
        via Lifted Structured Feature Embedding", CVPR 2016.
    """
    folder, layout = ARCHIVE.locate(path, "cars196")
    read = _from_merged if layout is _MERGED else _from_devkit
    files, fields, class_names = read(folder)
    corners = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
    # Columns and rows are counted from 1, and the last ones are inside.
    boxes = np.stack([fields[x] for x in corners], axis=1) - (1, 1, 0, 0)
    images = listed_images(
        f"the annotations in {folder}",
        folder,
        files,
        fields["class"],
        names=dict(enumerate(class_names, 1)),
        boxes=boxes if cropped else None,
    )
    trainval, test = archive.halves(images, counts)
    ARCHIVE.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(trainval, test, "cars196", validation, seed)


def _from_merged(folder: Path) -> _Annotations:
    file = folder / "cars_annos.mat"
    content = _load(file)
    fields = _fields(content, file)
    return fields["relative_im_path"].tolist(), fields, _class_names(content)


def _from_devkit(folder: Path) -> _Annotations:
    devkit = folder / "devkit"
    labeled = devkit / _WITH_LABELS
    files = {
        "cars_train": devkit / "cars_train_annos.mat",
        "cars_test": labeled if labeled.exists() else folder / _WITH_LABELS,
    }
    parts = {name: _fields(_load(x), x) for name, x in files.items()}
    images = [f"{x}/{name}" for x in parts for name in parts[x]["fname"]]
    train, test = parts.values()
    merged = {x: np.concatenate([train[x], test[x]]) for x in train}
    meta = devkit / "cars_meta.mat"
    return images, merged, _class_names(_load(meta)) if meta.exists() else []


def _load(file: Path) -> dict[str, Any]:
    """The arrays of a MATLAB file, by name."""
    from scipy.io import loadmat

    try:
        check_regular(file)
        return dict(loadmat(file, squeeze_me=True))
    # However it is damaged, and SciPy fails in many ways.
    except Exception as error:
        raise archive.damaged(
            f"{file} must be a MATLAB file", str(error)
        ) from error


def _class_names(content: dict[str, Any]) -> list[str]:
    return [str(x) for x in np.atleast_1d(content.get("class_names", []))]


def _fields(content: dict[str, Any], file: Path) -> dict[str, Any]:
    """The fields of the annotations, one array each; numbers as int64."""
    annotations = np.atleast_1d(content.get("annotations", np.array([])))
    names = annotations.dtype.names or ()
    if "class" not in names or "bbox_x1" not in names:
        raise ValueError(
            f"{file} must have annotations with classes and bounding boxes. "
            f"Received: annotations with the fields {list(names)}. For the "
            f"test set, use the file {_WITH_LABELS}."
        )
    is_text = ("fname", "relative_im_path")
    try:
        return {
            x: np.array(
                annotations[x].tolist(), str if x in is_text else np.int64
            )
            for x in names
        }
    except (ValueError, TypeError, OverflowError) as error:
        raise archive.damaged(
            f"{file} must have integers as annotations", str(error)
        ) from None
