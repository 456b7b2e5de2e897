"""In-Shop Clothes Retrieval: 7,982 clothes in an online shop."""

import os
from pathlib import Path

import numpy as np

from keras_dml.data import archive
from keras_dml.data.imageset import listed_images
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.types import HeldOut

_PARTITION = "Eval/list_eval_partition.txt"
_FOLDER = "In-shop Clothes Retrieval Benchmark"
ARCHIVE = archive.Archive(
    "In-Shop Clothes Retrieval",
    (
        archive.Layout(_FOLDER, (_PARTITION, "img")),
        # As img.zip is unpacked beside itself.
        archive.Layout(_FOLDER, (_PARTITION, "Img/img"), images="Img"),
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
    archive=ARCHIVE,
)
def inshop(
    path: str | os.PathLike[str],
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: archive.Counts | None = ARCHIVE.counts,
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
    folder, layout = ARCHIVE.locate(path, "inshop")
    file = folder / _PARTITION
    files, items, statuses = _read(file)
    numbers = [item.removeprefix("id_") for item in items]
    labels = archive.as_integers(numbers, "item_id", file)
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
    ARCHIVE.check_counts(folder, counts, train=trainval, test=test, **parts)
    return DataSplits.holding_out(
        trainval,
        test,
        "inshop",
        validation,
        seed,
        query_rows=rows["query"],
        gallery_rows=rows["gallery"],
    )


def _read(file: Path) -> list[list[str]]:
    """Files, items and statuses; the first line states their number."""
    count = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    columns = archive.read_list(file, 3, skip=2)
    if count != str(len(columns[0])):
        raise archive.damaged(
            f"{file} must have the number of images stated in its first line",
            f"{len(columns[0])} images, and a first line of {count!r}",
        )
    odd = set(columns[2]) - set(_STATUSES)
    if odd:
        raise archive.damaged(
            f"Every evaluation_status in {file} must be one of {_STATUSES}",
            str(sorted(odd)),
        )
    return columns
