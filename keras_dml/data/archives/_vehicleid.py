"""PKU VehicleID: vehicles seen by surveillance cameras."""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Literal

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

_LISTS = "train_test_split"
TRAIN = f"{_LISTS}/train_list.txt"
TESTS = {
    "small": f"{_LISTS}/test_list_800.txt",
    "medium": f"{_LISTS}/test_list_1600.txt",
    "large": f"{_LISTS}/test_list_2400.txt",
}
LAYOUTS = (
    Layout("VehicleID", "VehicleID_V1.0", (TRAIN, *TESTS.values(), "image")),
)
COUNTS: Counts = {
    "train classes": 13164,
    "train images": 113346,
    "small classes": 800,
    "medium classes": 1600,
    "large classes": 2400,
}


@dataset(
    "vehicleid",
    "PKU VehicleID, vehicles seen by surveillance cameras",
    layouts=LAYOUTS,
    leave_out=["counts"],
)
def vehicleid(
    path: str | os.PathLike[str],
    test: Literal["small", "medium", "large"] = "small",
    validation: Fraction = 0.2,
    seed: int = 0,
    counts: Counts | None = COUNTS,
) -> DataSplits:
    """PKU VehicleID, split as the archive says, with three test sets.

    The paper counts 13,134 training vehicles; the archive lists 13,164.
    For the official protocol, one image of each vehicle as the gallery,
    see `keras_dml.evaluation.one_per_class`.

    Args:
        path: The folder `VehicleID_V1.0`, or the one that it is in.
        test: Which test set is `test`: "small" (800 vehicles), "medium"
            (1,600) or "large" (2,400). All three are in `tests`.
        validation: Fraction of the training classes that is held out for
            choosing a model.
        seed: Which classes those are.
        counts: What the archive should hold; None to take what is there.

    Returns:
        The splits. Labels are the archive's numbers of vehicles, ids those
        of images.

    Raises:
        FileNotFoundError: If a list or an image is not there.
        ValueError: If `test` is none of them, a list is damaged, or a count
            differs.

    Reference:
        Liu et al., "Deep Relative Distance Learning: Tell the Difference
        Between Similar Vehicles", CVPR 2016.
    """
    if test not in TESTS:
        raise ValueError(
            f"`test` of vehicleid must be one of {tuple(TESTS)}. Received: "
            f"test={test!r}."
        )
    folder, _ = locate(path, LAYOUTS, "vehicleid")
    trainval = _read(folder, TRAIN)
    tests = {name: _read(folder, file) for name, file in TESTS.items()}
    found = counts_of(train=trainval, **tests)
    check_counts(found, counts, LAYOUTS[0].title, folder)
    return DataSplits.holding_out(
        trainval,
        tests[test],
        "vehicleid",
        validation,
        seed,
        tests=MappingProxyType(tests),
    )


def _read(folder: Path, name: str) -> ImageSet:
    file = folder / name
    ids, vehicles = read_list(file, 2)
    files = [folder / "image" / f"{image}.jpg" for image in ids]
    require_files(files, str(file))
    return ImageSet(files, as_integers(vehicles, "vehicle_id", file), ids=ids)
