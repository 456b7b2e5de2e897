"""Tables: a CSV or Parquet file that lists images and their classes."""

import contextlib
import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from keras_dml.data.bad_files import BadFiles, OnBadFile
from keras_dml.data.imageset import listed_images
from keras_dml.data.splits import DataSplits, dataset, split_classes
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import Count, Fraction, HeldOut, Rows

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
FORMATS = (*_DELIMITERS, ".parquet")
SPLITS = ("train", "validation", "test", "query", "gallery")
_TRAINING = ("train", "validation")


@dataset("table", "images that a CSV or Parquet file lists")
def table(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    train_classes: Count | Fraction = 0.5,
    validation: HeldOut = 0.2,
    seed: int = 0,
    label: str = "label",
    separator: str | None = None,
    levels: Sequence[str] = (),
    groups: Sequence[str] = (),
    held_out_by: str | None = None,
    on_bad_file: OnBadFile = "raise",
) -> DataSplits:
    """Images listed in a CSV or Parquet file.

    Its columns are

    - `path`: the image, relative to `root`;
    - `label`: its class. If all are integers, they are the labels; otherwise,
      classes are numbered in the order of their texts. With a `separator`, an
      image has any number of labels;
    - `split`, optional: "train", "validation", "test", "query" or "gallery".
      With the last two, the queries of the test set are searched for in its
      gallery, and "test" rows count as both. If there are no validation rows,
      training classes are held out. If there is no such column, classes are
      split as by `split_classes`;
    - `camera`, optional: the camera that took the image, for the test set.

    Other columns are ignored.

    Args:
        path: A file that ends in .csv, .tsv or .parquet; the first line of a
            text file names the columns.
        root: Folder of the images, by default that of the file.
        train_classes: If there is no `split`: the number, or the fraction, of
            classes for training.
        validation: If there are no validation rows: the fraction of the
            training classes that is held out for model selection.
        seed: Determines which classes are held out.
        label: The column of the classes, or the level of a hierarchy to train
            on.
        separator: What separates the labels of an image that has several: ";"
            for "red;shoe"; cells may be empty. These images are not split by
            class, so a `split` column with validation rows is required; all
            splits may have the same labels.
        levels: Columns with the classes at the levels of a hierarchy, with or
            without `label`. They become the `levels` of the splits.
        groups: Columns with groups of images, such as viewpoints or
            super-classes. They become the `groups` of the images, by which
            `callbacks.Recluster` can divide the training set.
        held_out_by: A column with groups of classes, such as super-classes.
            Classes of a group are held out together; see `holdout_classes`.
            Only for a table without validation rows.
        on_bad_file: What to do with files that cannot be decoded; see
            `image_folder`.

    Returns:
        The splits, named after the file. Ids are the texts in `path`.

    Raises:
        FileNotFoundError: If the file or an image does not exist.
        ValueError: If a column or a cell is missing, a split is unknown, there
            are no training or no test rows, a class is in more than one
            split, or `held_out_by` is given beside validation rows.
    """
    check_choice("table", "on_bad_file", on_bad_file, get_args(OnBadFile))
    file = Path(path).expanduser()
    _check_columns(label, separator, levels)
    by = () if held_out_by is None else (held_out_by,)
    columns = read_columns(
        file,
        required=tuple(dict.fromkeys(("path", label, *levels, *groups, *by))),
        optional=("split", "camera"),
        may_be_empty=() if separator is None else (label,),
    )
    if separator is not None and "validation" not in columns.get("split", ()):
        raise ValueError(
            f"The table {file} must have a column `split`, with validation "
            "rows, if images have several labels, because no class can be "
            "held out. Received: no such rows. Write train, validation or "
            "test into each row."
        )
    if held_out_by is not None and "validation" in columns.get("split", ()):
        raise ValueError(
            f"`held_out_by` of table must only be given if the table {file} "
            "has no validation rows, because then nothing is held out. "
            f"Received: {held_out_by!r} and validation rows. Leave it out, or "
            "write train into these rows."
        )
    folder = file.parent if root is None else Path(root).expanduser()
    labels: Any
    names = None
    if separator is None:
        labels, names = as_classes(columns[label])
    else:
        parts = (text.split(separator) for text in columns[label])
        labels = [frozenset(filter(None, map(str.strip, x))) for x in parts]
    images = listed_images(file, folder, columns["path"], labels, names=names)
    images = images.skipping(BadFiles.of(images, on_bad_file))
    images = images.with_groups({x: columns[x] for x in groups})
    if "split" in columns:
        split = _as_split(columns["split"], file)
    else:
        classes = split_classes(images, train_classes)[1].classes
        split = np.where(np.isin(images.known_labels, classes), "test", "train")
    is_test = ~np.isin(split, _TRAINING)
    test = images.select(is_test)
    test_split = split[is_test]
    fields: dict[str, Any] = {}
    if np.any(test_split != "test"):
        fields["query_rows"] = np.flatnonzero(test_split != "gallery")
        fields["gallery_rows"] = np.flatnonzero(test_split != "query")
    if "camera" in columns:
        _, cameras = np.unique(columns["camera"], return_inverse=True)
        fields["cameras"] = cameras[is_test].astype(np.int64)
    if levels:
        fields["levels"] = {
            level: as_classes(columns[level])[0][is_test] for level in levels
        }
    is_train = split == "train"
    train = images.select(is_train)
    held_out = images.select(split == "validation")
    if len(held_out):
        return DataSplits(train, held_out, test, file.stem, **fields)
    kept_together = None
    if held_out_by is not None:
        kept_together = np.array(columns[held_out_by])[is_train]
    return DataSplits.holding_out(
        train, test, file.stem, validation, seed, kept_together, **fields
    )


def _as_split(texts: Sequence[str], file: Path) -> npt.NDArray[np.str_]:
    split = np.array(texts)
    odd = sorted(set(texts) - set(SPLITS))
    if odd:
        raise ValueError(
            f"The column `split` of {file} must be one of {SPLITS}. "
            f"Received: {odd[0]!r} in row {texts.index(odd[0]) + 1}."
        )
    if "train" not in texts or np.all(np.isin(split, _TRAINING)):
        counts = {x: texts.count(x) for x in SPLITS if x in texts}
        raise ValueError(
            f"The column `split` of {file} must have rows for training and "
            f"rows for testing. Received: {counts}. Remove the column to split "
            "by class."
        )
    return split


def _check_columns(
    label: str, separator: str | None, levels: Sequence[str]
) -> None:
    fixed = ("path", "split", "camera")
    twice = len(set(levels)) < len(levels)
    if twice or any(x in fixed or "/" in x or not x for x in (label, *levels)):
        raise ValueError(
            "`label` and `levels` of table must be separate columns, each "
            "level once, with names without a slash. Received: label="
            f"{label!r}, levels={tuple(levels)}."
        )
    if separator is not None and (levels or not separator.strip()):
        raise ValueError(
            "`separator` of table must be a text that separates labels, and "
            "cannot be combined with `levels`, for which each image has one "
            f"label. Received: separator={separator!r}, levels={tuple(levels)}."
        )


def as_classes(texts: Sequence[str]) -> tuple[Rows, list[str] | None]:
    """Labels, and class names if the labels are not the texts."""
    with contextlib.suppress(ValueError, OverflowError):
        numbers = np.array([int(text) for text in texts], np.int64)
        # A text such as 007 is a name.
        if list(map(str, numbers.tolist())) == list(texts):
            return numbers, None
    names, labels = np.unique(np.array(texts), return_inverse=True)
    return labels.astype(np.int64), names.tolist()


def read_columns(
    file: Path,
    required: Sequence[str],
    optional: Sequence[str],
    may_be_empty: Sequence[str] = (),
) -> dict[str, list[str]]:
    """The texts of a table's columns, stripped, by name."""
    cells = read_cells(file)
    missing = [name for name in required if name not in cells]
    if missing:
        raise ValueError(
            f"The table {file} must have the columns {', '.join(required)}. "
            f"Received: {', '.join(cells) or 'none'}; "
            f"{', '.join(missing)} missing. Rename the columns, or pass the "
            "column of the classes to table as `label`; columns are "
            "separated by ',' in .csv and by a tab in .tsv."
        )
    names = [x for x in (*required, *optional) if x in cells]
    return {x: as_texts(cells[x], x, file, x in may_be_empty) for x in names}


def as_texts(
    cells: Sequence[Any], name: str, file: Path, may_be_empty: bool = False
) -> list[str]:
    """The cells of a column as texts, stripped; `ValueError` if empty."""
    # A missing cell is None in Arrow and in a short line of text; in pandas it
    # is NaN, which is unequal to itself.
    texts = ["" if x is None or x != x else str(x).strip() for x in cells]
    if not texts:
        raise ValueError(
            f"The table {file} must list images. Received: no rows."
        )
    if "" in texts and not may_be_empty:
        raise ValueError(
            f"The column `{name}` of {file} must not have empty cells. "
            f"Received: an empty cell in row {texts.index('') + 1}."
        )
    return texts


def read_cells(file: Path) -> dict[str, list[Any]]:
    if file.suffix.lower() not in FORMATS:
        raise ValueError(
            f"`path` of table must end in one of {FORMATS}. Received: "
            f"path={str(file)!r}."
        )
    if not file.is_file():
        raise FileNotFoundError(
            f"`path` of table must be a file. Received: path={str(file)!r}, "
            f"which {'is not a file' if file.exists() else 'does not exist'}."
        )
    delimiter = _DELIMITERS.get(file.suffix.lower())
    if delimiter is not None:
        return _read_text(file, delimiter)
    from pyarrow import parquet

    try:
        return dict(parquet.read_table(file).to_pydict())
    except (ValueError, OSError) as error:
        raise ValueError(
            f"The table {file} must be a Parquet file. Received: {error} "
            "Write it again."
        ) from error


def _read_text(file: Path, delimiter: str) -> dict[str, list[Any]]:
    # A spreadsheet's byte order mark is not part of the first name.
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.DictReader(opened, delimiter=delimiter)
        try:
            names = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = names
            columns: dict[str, list[Any]] = {name: [] for name in names}
            if len(columns) < len(names):
                twice = sorted({x for x in names if names.count(x) > 1})
                raise ValueError(
                    f"The table {file} must have each column once. Received: "
                    f"{', '.join(twice)} more than once. Rename or remove the "
                    "others."
                )
            for row in reader:
                if more := row.get(None):
                    raise ValueError(
                        f"Line {reader.line_num} of {file} must have "
                        f"{len(names)} columns, like the first line. Received: "
                        f"{len(names) + len(more)}. Put cells that contain "
                        f"{delimiter!r} in double quotes."
                    )
                for name, column in columns.items():
                    column.append(row[name])
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(
                f"The table {file} must be UTF-8 text with cells separated by "
                f"{delimiter!r}. Received: {error}. Save it again in this "
                "format."
            ) from error
    return columns
