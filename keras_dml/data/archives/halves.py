"""Data sets whose first classes are for training, the others for testing."""

from pathlib import Path

from keras_dml.data.archives.reading import Counts, check_counts, counts_of
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits


def halves(
    images: ImageSet,
    name: str,
    title: str,
    folder: Path,
    counts: Counts | None,
    validation: float,
    seed: int,
) -> DataSplits:
    """The split of CUB-200-2011 and Cars196 for metric learning.

    Args:
        images: All images; classes are numbered from 1.
        name: Name of the splits.
        title: Name of the data set, for errors.
        folder: Where it is.
        counts: What it should hold; with None the first half of the
            classes that are there is for training.
        validation: See `holdout_classes`.
        seed: See `holdout_classes`.

    Raises:
        ValueError: If a count differs.
    """
    last = images.classes[(images.num_classes - 1) // 2]
    if counts is not None:
        last = counts["train classes"]
    trainval = images.select(images.labels <= last)
    test = images.select(images.labels > last)
    check_counts(counts_of(train=trainval, test=test), counts, title, folder)
    return DataSplits.holding_out(trainval, test, name, validation, seed)
