"""PKU VehicleID: vehicles seen by surveillance cameras."""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from keras_dml.data import archive
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.data.splits import DataSplits, dataset
from keras_dml.utils.arguments import checked
from keras_dml.utils.types import HeldOut

_TRAIN = "train_test_split/train_list.txt"
_TESTS = {
    "small": "train_test_split/test_list_800.txt",
    "medium": "train_test_split/test_list_1600.txt",
    "large": "train_test_split/test_list_2400.txt",
}
ARCHIVE = archive.Archive(
    "VehicleID",
    (archive.Layout("VehicleID_V1.0", (_TRAIN, *_TESTS.values(), "image")),),
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
    archive=ARCHIVE,
)
@checked
def vehicleid(
    path: str | os.PathLike[str],
    test: Literal["small", "medium", "large"] = "small",
    validation: HeldOut = 0.2,
    seed: int = 0,
    counts: archive.Counts | None = ARCHIVE.counts,
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
    folder, _ = ARCHIVE.locate(path, "vehicleid")
    trainval = _read(folder, _TRAIN)
    tests = {name: _read(folder, file) for name, file in _TESTS.items()}
    ARCHIVE.check_counts(folder, counts, train=trainval, **tests)
    return DataSplits.holding_out(
        trainval,
        tests[test],
        "vehicleid",
        validation,
        seed,
        tests=MappingProxyType(tests),
    )


def _read(folder: Path, name: str) -> ImageSet:
    ids, vehicles = archive.read_list(folder / name, 2)
    files = [f"{image}.jpg" for image in ids]
    labels = archive.as_integers(vehicles, "vehicle_id", folder / name)
    return listed_images(
        folder / name, folder / "image", files, labels, ids=ids
    )
