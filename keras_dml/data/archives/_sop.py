"""Stanford Online Products: 22,634 products from online shops."""

import os
from pathlib import Path

from keras_dml.data import archive
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.types import HeldOut

_LISTS = ("Ebay_train.txt", "Ebay_test.txt")
ARCHIVE = archive.Archive(
    "Stanford Online Products",
    (archive.Layout("Stanford_Online_Products", _LISTS),),
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
    archive=ARCHIVE,
)
def sop(
    path: str | os.PathLike[str],
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: archive.Counts | None = ARCHIVE.counts,
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
    folder, _ = ARCHIVE.locate(path, "sop")
    trainval, test = (_read(folder / name) for name in _LISTS)
    ARCHIVE.check_counts(folder, counts, train=trainval, test=test)
    return DataSplits.holding_out(trainval, test, "sop", validation, seed)


def _read(file: Path) -> ImageSet:
    # The first line names the columns.
    _, classes, kind_ids, names = archive.read_list(file, 4, skip=1)
    labels = archive.as_integers(classes, "class_id", file)
    # Folders are called bicycle_final and so on.
    kinds = [name.partition("_final/")[0] for name in names]
    class_names = {x: f"{k} {x}" for x, k in zip(labels, kinds, strict=True)}
    images = listed_images(file, file.parent, names, labels, names=class_names)
    super_classes = archive.as_integers(kind_ids, "super_class_id", file)
    return images.with_groups({"super_class": super_classes})
