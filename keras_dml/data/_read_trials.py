"""Lists of trials for verification, in text files as benchmarks have them."""

import csv
import os
from pathlib import Path

import numpy as np

from keras_dml.data.examples import Examples
from keras_dml.data.imageset import listed_images
from keras_dml.data.relations import PairSet

_LABELS = ("0", "1")


def read_trials(
    path: str | os.PathLike[str],
    examples: Examples | str | os.PathLike[str],
) -> PairSet:
    """The trials of a text file, for `evaluate_trials` and `calibrate`.

    A line is one of

    - `1 a.wav b.wav`, as in VoxCeleb: 1 for the same subject, otherwise 0;
    - `Ann 1 4` or `Ann 1 Bob 2`, as in LFW's pairs.txt: the images
      Ann/Ann_0001.jpg and Ann/Ann_0004.jpg of one person, or of two. A first
      line of numbers alone, which counts the pairs, is skipped;
    - `a.jpg,b.jpg,1`, in a file that ends in .csv, whose first line may name
      the columns.

    Args:
        path: The file, in UTF-8.
        examples: The folder of the images, whose files the list names; or
            examples whose `ids` it names.

    Returns:
        The pairs. Of a folder, `pairs.examples` has the listed images alone,
        each once, without labels.

    Raises:
        FileNotFoundError: If the file or an image does not exist.
        ValueError: If a line is not as described, a name is not that of an
            example, or the pairs are not as `PairSet` requires.

    Example:

    ```python
    pairs = read_trials("lfw/pairs.txt", "lfw")
    results = evaluate_trials(embed(model, pairs.examples), pairs)
    ```
    """
    file = Path(path)
    is_table = file.suffix.lower() == ".csv"
    names, positive = [], []
    for number, cells in enumerate(_lines(file, is_table)):
        trial = _trial(cells, is_table)
        if trial is not None:
            names.append(trial[:2])
            positive.append(trial[2])
        elif number or not _is_header(cells, is_table):
            raise ValueError(
                f"A line of {file} must be a trial: '1 a.jpg b.jpg', 'Ann 1 "
                "4', 'Ann 1 Bob 2', or, in a .csv file, 'a.jpg,b.jpg,1'. "
                f"Received: {' '.join(cells)!r}. Write 1 for the same "
                "subject, and 0 for different ones."
            )
    listed = sorted({name for pair in names for name in pair})
    if not isinstance(examples, Examples):
        examples = listed_images(file, Path(examples), listed, None)
    rows = {name: row for row, name in enumerate(examples.ids or ())}
    unknown = [name for name in listed if name not in rows]
    if unknown:
        raise ValueError(
            "`examples` of read_trials must have the names in the list as "
            f"`ids`. Received: {examples!r}, without {len(unknown):,} of "
            f"{len(listed):,}, such as {unknown[0]!r}. Pass ids, or the folder "
            "of the images."
        )
    pairs = [[rows[a], rows[b]] for a, b in names]
    return PairSet(examples, np.reshape(pairs, (-1, 2)).astype(int), positive)


def _lines(file: Path, is_table: bool) -> list[list[str]]:
    """The cells of each line that is not empty."""
    with file.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(lines) if is_table else map(str.split, lines)
        return [[x.strip() for x in row] for row in rows if any(row)]


def _is_header(cells: list[str], is_table: bool) -> bool:
    if is_table:
        return len(cells) == 3 and not cells[2].isdecimal()
    return all(map(str.isdecimal, cells))


def _trial(cells: list[str], is_table: bool) -> tuple[str, str, bool] | None:
    """The two names of a line, and whether they are of one subject."""
    match cells:
        case [a, b, label] if is_table and label in _LABELS:
            return a, b, label == "1"
        case [label, a, b] if not is_table and label in _LABELS:
            return a, b, label == "1"
        case [a, i, j] if not is_table and (i + j).isdecimal():
            return _lfw(a, i), _lfw(a, j), True
        case [a, i, b, j] if not is_table and (i + j).isdecimal():
            return _lfw(a, i), _lfw(b, j), False
    return None


def _lfw(person: str, number: str) -> str:
    return f"{person}/{person}_{int(number):04}.jpg"
