"""In-Shop Clothes Retrieval: 7,982 clothes in an online shop."""

import os
from pathlib import Path

import numpy as np

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

PARTITION = "Eval/list_eval_partition.txt"
TITLE = "In-Shop Clothes Retrieval"
_FOLDER = "In-shop Clothes Retrieval Benchmark"
LAYOUTS = (
    Layout(TITLE, _FOLDER, (PARTITION, "img")),
    # As img.zip is unpacked beside itself.
    Layout(TITLE, _FOLDER, (PARTITION, "Img/img"), images="Img"),
)
COUNTS: Counts = {
    "train classes": 3997,
    "train images": 25882,
    "test classes": 3985,
    "query images": 14218,
    "gallery images": 12612,
}
_STATUSES = ("train", "query", "gallery")


@dataset(
    "inshop",
    "In-Shop Clothes Retrieval, 7,982 pieces of clothing, 52,712 images",
    layouts=LAYOUTS,
    leave_out=["counts"],
)
def inshop(
    path: str | os.PathLike[str],
    validation: Fraction = 0.2,
    seed: int = 0,
    counts: Counts | None = COUNTS,
) -> DataSplits:
    """In-Shop Clothes Retrieval of DeepFashion, split as the archive says.

    Test images are queries or in the gallery; `query_rows` and
    `gallery_rows` say which.

    Args:
        path: The folder with `Eval` and the images, which are in `img` or
            in `Img/img`.
        validation: Fraction of the training classes that is held out for
            choosing a model.
        seed: Which classes those are.
        counts: What the archive should hold; None to take what is there.

    Returns:
        The splits. Labels are the numbers of the items, ids the paths that
        the archive lists.

    Raises:
        FileNotFoundError: If the list or an image is not there.
        ValueError: If the list is damaged, or a count differs.

    Reference:
        Liu et al., "DeepFashion: Powering Robust Clothes Recognition and
        Retrieval with Rich Annotations", CVPR 2016.
    """
    folder, root = locate(path, LAYOUTS, "inshop")
    file = folder / PARTITION
    names, items, statuses = _read(file)
    files = [root / name for name in names]
    require_files(files, str(file))
    numbers = [item.removeprefix("id_") for item in items]
    labels = as_integers(numbers, "item_id", file)
    images = ImageSet(
        files,
        labels,
        names=dict(zip(labels, items, strict=True)),
        ids=names,
    )
    status = np.array(statuses)
    trainval = images.select(status == "train")
    test = images.select(status != "train")
    status = status[status != "train"]
    queries = np.flatnonzero(status == "query")
    gallery = np.flatnonzero(status == "gallery")
    found = counts_of(
        train=trainval,
        test=test,
        query=test.select(queries),
        gallery=test.select(gallery),
    )
    check_counts(found, counts, TITLE, folder)
    return DataSplits.holding_out(
        trainval,
        test,
        "inshop",
        validation,
        seed,
        query_rows=queries,
        gallery_rows=gallery,
    )


def _read(file: Path) -> list[list[str]]:
    """Names, items and statuses; the file says how many there are."""
    count = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    columns = read_list(file, 3, skip=2)
    if count != str(len(columns[0])):
        raise ValueError(
            f"{file} must have as many images as its first line says. "
            f"Received: {len(columns[0])} images, and a first line of "
            f"{count!r}. Unpack the archive again."
        )
    odd = set(columns[2]) - set(_STATUSES)
    if odd:
        raise ValueError(
            f"Every evaluation_status in {file} must be one of {_STATUSES}. "
            f"Received: {sorted(odd)}. Unpack the archive again."
        )
    return columns
