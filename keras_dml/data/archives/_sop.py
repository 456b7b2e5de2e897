"""Stanford Online Products: 22,634 products, photographed for sale."""

import os
from pathlib import Path

from keras_dml.data.archives.reading import (
    Counts,
    Layout,
    as_integers,
    check_counts,
    counts_of,
    locate,
    read_list,
)
from keras_dml.data.datasets import dataset
from keras_dml.data.files import require_files
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits
from keras_dml.utils.types import Fraction

LAYOUTS = (
    Layout(
        "Stanford Online Products",
        "Stanford_Online_Products",
        ("Ebay_train.txt", "Ebay_test.txt"),
    ),
)
COUNTS: Counts = {
    "train classes": 11318,
    "train images": 59551,
    "test classes": 11316,
    "test images": 60502,
}


@dataset(
    "sop",
    "Stanford Online Products, 22,634 products, 120,053 images",
    layouts=LAYOUTS,
    leave_out=["counts"],
)
def sop(
    path: str | os.PathLike[str],
    validation: Fraction = 0.2,
    seed: int = 0,
    counts: Counts | None = COUNTS,
) -> DataSplits:
    """Stanford Online Products, split by class as the archive says.

    Args:
        path: The folder `Stanford_Online_Products`, or the one that it is
            in.
        validation: Fraction of the training classes that is held out for
            choosing a model.
        seed: Which classes those are.
        counts: What the archive should hold; None to take what is there.

    Returns:
        The splits. Labels are the archive's, from 1; classes are named as
        in "bicycle 1", ids are the paths in its folder.

    Raises:
        FileNotFoundError: If a list or an image is not there.
        ValueError: If a list is damaged, or a count differs.

    Reference:
        Song et al., "Deep Metric Learning via Lifted Structured Feature
        Embedding", CVPR 2016, https://arxiv.org/abs/1511.06452.
    """
    folder, _ = locate(path, LAYOUTS, "sop")
    trainval = _read(folder / "Ebay_train.txt")
    test = _read(folder / "Ebay_test.txt")
    found = counts_of(train=trainval, test=test)
    check_counts(found, counts, LAYOUTS[0].title, folder)
    return DataSplits.holding_out(trainval, test, "sop", validation, seed)


def _read(file: Path) -> ImageSet:
    # The first line names the columns.
    _, classes, _, names = read_list(file, 4, skip=1)
    labels = as_integers(classes, "class_id", file)
    files = [file.parent / name for name in names]
    require_files(files, str(file))
    # Folders are called bicycle_final and so on.
    kinds = [name.partition("_final/")[0] for name in names]
    return ImageSet(
        files,
        labels,
        names={x: f"{k} {x}" for x, k in zip(labels, kinds, strict=True)},
        ids=names,
    )
