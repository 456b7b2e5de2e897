"""Benchmark data sets, from their unpacked archives."""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from keras_dml.data.archive import (
    Archive,
    Counts,
    Layout,
    as_integers,
    damage_error,
    halves,
    read_by_id,
    read_list,
)
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.arguments import check_arguments
from keras_dml.utils.files import check_regular
from keras_dml.utils.types import HeldOut, Rows

_CUB200_LISTS = (
    "images.txt",
    "image_class_labels.txt",
    "bounding_boxes.txt",
    "classes.txt",
)
CUB200 = Archive(
    "CUB-200-2011",
    (Layout("CUB_200_2011", (*_CUB200_LISTS, "images"), images="images"),),
    {
        "train classes": 100,
        "train images": 5864,
        "test classes": 100,
        "test images": 5924,
    },
)


@dataset("cub200", "200 kinds of birds, 11,788 images", archive=CUB200)
def cub200(
    path: str | os.PathLike[str],
    cropped: bool = False,
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: Counts | None = CUB200.counts,
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
    folder, layout = CUB200.locate(path, "cub200")
    images_file, labels_file, boxes_file, classes_file = (
        folder / name for name in _CUB200_LISTS
    )
    ids, names = read_list(images_file, 2)
    (labels,) = read_by_id(labels_file, 2, ids)
    classes, class_names = read_list(classes_file, 2)
    numbers = as_integers(classes, "class", classes_file)
    boxes: Rows | None = None
    if cropped:
        lists = read_by_id(boxes_file, 5, ids)
        x, y, width, height = np.array(lists, np.float64)
        # Fractions of pixels are rounded outwards.
        first, last = np.floor([x, y]), np.ceil([x + width, y + height])
        boxes = np.concatenate([first, last]).T.astype(np.int64)
    images = listed_images(
        images_file,
        folder / layout.images,
        names,
        as_integers(labels, "class", labels_file),
        names=dict(zip(numbers, class_names, strict=True)),
        boxes=boxes,
    )
    trainval, test = halves(images, counts)
    CUB200.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(trainval, test, "cub200", validation, seed)


_MERGED = Layout("cars196", ("cars_annos.mat", "car_ims"))
# The labels of the test set were published in a separate file, which may be
# in either folder.
_WITH_LABELS = "cars_test_annos_withlabels.mat"
_DEVKIT = ("devkit/cars_train_annos.mat", "cars_train", "cars_test")
CARS196 = Archive(
    "Cars196",
    (
        _MERGED,
        Layout("stanford_cars", (*_DEVKIT, f"devkit/{_WITH_LABELS}")),
        Layout("stanford_cars", (*_DEVKIT, _WITH_LABELS)),
    ),
    {
        "train classes": 98,
        "train images": 8054,
        "test classes": 98,
        "test images": 8131,
    },
)


@dataset("cars196", "196 models of cars, 16,185 images", archive=CARS196)
def cars196(
    path: str | os.PathLike[str],
    cropped: bool = False,
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: Counts | None = CARS196.counts,
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
    folder, layout = CARS196.locate(path, "cars196")
    if layout is _MERGED:
        file = folder / "cars_annos.mat"
        content = _load(file)
        fields, class_names = _fields(content, file), _class_names(content)
        files = fields["relative_im_path"].tolist()
    else:
        files, fields, class_names = _from_devkit(folder)
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
    trainval, test = halves(images, counts)
    CARS196.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(trainval, test, "cars196", validation, seed)


def _from_devkit(
    folder: Path,
) -> tuple[list[str], dict[str, Any], list[str]]:
    """Image files, their annotation fields, and the class names."""
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
    from scipy.io import loadmat

    try:
        check_regular(file)
        return dict(loadmat(file, squeeze_me=True))
    # SciPy raises many kinds of errors for damaged files.
    except Exception as error:
        raise damage_error(
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
        raise damage_error(
            f"{file} must have integers as annotations", str(error)
        ) from None


_SOP_LISTS = ("Ebay_train.txt", "Ebay_test.txt")
SOP = Archive(
    "Stanford Online Products",
    (Layout("Stanford_Online_Products", _SOP_LISTS),),
    {
        "train classes": 11318,
        "train images": 59551,
        "test classes": 11316,
        "test images": 60502,
    },
)


@dataset(
    "sop",
    "Stanford Online Products, 22,634 products, 120,053 images",
    archive=SOP,
)
def sop(
    path: str | os.PathLike[str],
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: Counts | None = SOP.counts,
) -> DataSplits:
    """Stanford Online Products, with the class split of the archive.

    Args:
        path: The folder `Stanford_Online_Products`, or its parent.
        validation: See `cub200`.
        seed: See `cub200`.
        counts: See `cub200`.

    Returns:
        The splits. Labels are those of the archive, from 1; classes have names
        like "bicycle 1", and ids are the paths in its folder. `groups` has the
        12 super-classes, as "super_class".

    Raises:
        FileNotFoundError: If a list or an image is missing.
        ValueError: If a list is damaged, or a count differs.

    Reference:
        Song et al., "Deep Metric Learning via Lifted Structured Feature
        Embedding", CVPR 2016, https://arxiv.org/abs/1511.06452.
    """
    folder, _ = SOP.locate(path, "sop")
    trainval, test = (_read_sop(folder / name) for name in _SOP_LISTS)
    SOP.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(trainval, test, "sop", validation, seed)


def _read_sop(file: Path) -> ImageSet:
    # The first line names the columns.
    _, classes, kind_ids, names = read_list(file, 4, skip=1)
    labels = as_integers(classes, "class_id", file)
    # Folders are called bicycle_final and so on.
    kinds = [name.partition("_final/")[0] for name in names]
    class_names = {x: f"{k} {x}" for x, k in zip(labels, kinds, strict=True)}
    images = listed_images(file, file.parent, names, labels, names=class_names)
    super_classes = as_integers(kind_ids, "super_class_id", file)
    return images.with_groups({"super_class": super_classes})


_PARTITION = "Eval/list_eval_partition.txt"
_FOLDER = "In-shop Clothes Retrieval Benchmark"
INSHOP = Archive(
    "In-Shop Clothes Retrieval",
    (
        Layout(_FOLDER, (_PARTITION, "img")),
        # This is where img.zip is unpacked beside itself.
        Layout(_FOLDER, (_PARTITION, "Img/img"), images="Img"),
    ),
    {
        "train classes": 3997,
        "train images": 25882,
        "test classes": 3985,
        "query images": 14218,
        "gallery images": 12612,
    },
)
_STATUSES = ("train", "query", "gallery")


@dataset(
    "inshop",
    "In-Shop Clothes Retrieval, 7,982 pieces of clothing, 52,712 images",
    archive=INSHOP,
)
def inshop(
    path: str | os.PathLike[str],
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: Counts | None = INSHOP.counts,
) -> DataSplits:
    """In-Shop Clothes Retrieval of DeepFashion, with the split of the archive.

    Test images are queries or belong to the gallery; see `query_rows` and
    `gallery_rows`.

    Args:
        path: The folder with `Eval` and the images, which are in `img` or
            `Img/img`.
        validation: See `cub200`.
        seed: See `cub200`.
        counts: See `cub200`.

    Returns:
        The splits. Labels are the item numbers; ids are the paths listed in
        the archive.

    Raises:
        FileNotFoundError: If the list or an image is missing.
        ValueError: If the list is damaged, or a count differs.

    Reference:
        Liu et al., "DeepFashion: Powering Robust Clothes Recognition and
        Retrieval with Rich Annotations", CVPR 2016.
    """
    folder, layout = INSHOP.locate(path, "inshop")
    file = folder / _PARTITION
    files, items, statuses = _read_inshop(file)
    numbers = [item.removeprefix("id_") for item in items]
    labels = as_integers(numbers, "item_id", file)
    images = listed_images(
        file,
        folder / layout.images,
        files,
        labels,
        names=dict(zip(labels, items, strict=True)),
    )
    status = np.array(statuses)
    trainval = images.select(status == "train")
    test = images.select(status != "train")
    status = status[status != "train"]
    rows = {x: np.flatnonzero(status == x) for x in ("query", "gallery")}
    parts = {name: test.select(part) for name, part in rows.items()}
    INSHOP.check_counts(folder, counts, train=trainval, test=test, **parts)
    return DataSplits.holding_out(
        trainval,
        test,
        "inshop",
        validation,
        seed,
        query_rows=rows["query"],
        gallery_rows=rows["gallery"],
    )


def _read_inshop(file: Path) -> list[list[str]]:
    """Files, items and statuses; the first line states their number."""
    count = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    columns = read_list(file, 3, skip=2)
    if count != str(len(columns[0])):
        raise damage_error(
            f"{file} must have the number of images stated in its first line",
            f"{len(columns[0])} images, and a first line of {count!r}",
        )
    odd = set(columns[2]) - set(_STATUSES)
    if odd:
        raise damage_error(
            f"Every evaluation_status in {file} must be one of {_STATUSES}",
            str(sorted(odd)),
        )
    return columns


_TRAIN = "train_test_split/train_list.txt"
_TESTS = {
    "small": "train_test_split/test_list_800.txt",
    "medium": "train_test_split/test_list_1600.txt",
    "large": "train_test_split/test_list_2400.txt",
}
VEHICLEID = Archive(
    "VehicleID",
    (Layout("VehicleID_V1.0", (_TRAIN, *_TESTS.values(), "image")),),
    {
        "train classes": 13164,
        "train images": 113346,
        "small classes": 800,
        "medium classes": 1600,
        "large classes": 2400,
    },
)


@dataset(
    "vehicleid",
    "PKU VehicleID, vehicles seen by surveillance cameras",
    archive=VEHICLEID,
)
@check_arguments
def vehicleid(
    path: str | os.PathLike[str],
    test: Literal["small", "medium", "large"] = "small",
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: Counts | None = VEHICLEID.counts,
) -> DataSplits:
    """PKU VehicleID, with the split and the three test sets of the archive.

    The paper counts 13,134 training vehicles; the archive lists 13,164. For
    the official protocol, with one image of each vehicle as the gallery, see
    `keras_dml.evaluation.one_per_class`.

    Args:
        path: The folder `VehicleID_V1.0`, or its parent.
        test: Which test set is `test`: "small" (800 vehicles), "medium"
            (1,600) or "large" (2,400). All three are in `tests`.
        validation: See `cub200`.
        seed: See `cub200`.
        counts: See `cub200`.

    Returns:
        The splits. Labels are the vehicle numbers of the archive, and ids the
        image numbers.

    Raises:
        FileNotFoundError: If a list or an image is missing.
        ValueError: If `test` is unknown, a list is damaged, or a count
            differs.

    Reference:
        Liu et al., "Deep Relative Distance Learning: Tell the Difference
        Between Similar Vehicles", CVPR 2016.
    """
    folder, _ = VEHICLEID.locate(path, "vehicleid")
    trainval = _read_vehicleid(folder, _TRAIN)
    tests = {
        name: _read_vehicleid(folder, file) for name, file in _TESTS.items()
    }
    VEHICLEID.check_counts(folder, counts, train=trainval, **tests)
    return DataSplits.holding_out(
        trainval,
        tests[test],
        "vehicleid",
        validation,
        seed,
        tests=MappingProxyType(tests),
    )


def _read_vehicleid(folder: Path, name: str) -> ImageSet:
    ids, vehicles = read_list(folder / name, 2)
    files = [f"{image}.jpg" for image in ids]
    labels = as_integers(vehicles, "vehicle_id", folder / name)
    return listed_images(
        folder / name, folder / "image", files, labels, ids=ids
    )
