"""Relations: pairs and triplets of examples instead of class labels."""

import csv
import os
from collections import defaultdict
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_dml.data.examples import Examples, check_examples
from keras_dml.data.hashing import equal_contents
from keras_dml.data.imageset import ImageSet, listed_images
from keras_dml.utils.types import Rows

_LABELS = ("0", "1")


class Relations:
    """Pairs of examples that are known to be positive or negative.

    Labels of the examples, if they have any, are not used. `rows`, (M, width),
    are the examples of each tuple, which form batches.
    """

    examples: Examples
    rows: Rows

    def __init__(
        self,
        examples: Examples,
        rows: Rows,
        pairs: Rows,
        positive: npt.NDArray[np.bool_],
        transitive: bool,
    ) -> None:
        """`pairs`, (P, 2), are known, and whether they are `positive`."""
        self.examples, self.rows = examples, rows
        owner = type(self).__name__
        itself = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
        if len(itself):
            raise ValueError(
                f"{owner} must not pair an example with itself. Received: row "
                f"{pairs[itself[0], 0]} twice, in a total of {len(itself)} "
                "pairs. Remove them."
            )
        self._groups = np.arange(len(examples))
        linked = pairs[positive]
        if transitive:
            self._groups = _components(examples, linked)
            linked = np.stack([np.arange(len(examples))] * 2, axis=1)
        alike = np.unique(self._keys(*linked.T))
        keys = self._keys(*pairs[~positive].T)
        both = pairs[~positive][np.isin(keys, alike)]
        if len(both):
            raise ValueError(
                f"{owner} must not have a pair that is both positive and "
                f"negative. Received: {len(both)} of them, the first with rows "
                f"{sorted(both[0].tolist())}. Remove one or both. With "
                "transitive=True, pairs that are linked by positive pairs, "
                "and equal examples, are positive as well."
            )
        apart = np.unique(keys)
        known_keys = np.concatenate([alike, apart])
        order = np.argsort(known_keys)
        self._known_keys = known_keys[order]
        self._positive = order < len(alike)

    def __len__(self) -> int:
        return len(self.rows)

    def between(self, rows: Rows, unknown: int = -1) -> npt.NDArray[np.int8]:
        """Returns the relations of every two of some rows, (B,), as (B, B).

        It is 1 for positive pairs, 0 for negative pairs, −1 for an example with
        itself, and `unknown` for pairs without a known relation.
        """
        keys = self._keys(rows[:, None], rows)
        indices = np.searchsorted(self._known_keys, keys)
        indices = np.minimum(indices, len(self._known_keys) - 1)
        relation = np.where(
            self._known_keys[indices] == keys, self._positive[indices], unknown
        )
        relation[rows[:, None] == rows] = -1
        return relation.astype(np.int8)

    def _keys(self, first: Rows, second: Rows) -> Rows:
        """A number for each unordered pair of rows, or of their groups."""
        first, second = self._groups[first], self._groups[second]
        low, high = np.minimum(first, second), np.maximum(first, second)
        return low * len(self.examples) + high

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} of {self.examples!r})"


class PairSet(Relations):
    """Pairs of examples that are positive or negative.

    They are for data without classes: clicks, duplicates confirmed by people,
    questions with their answers. Every loss on pairs or triplets can be
    trained on them, see `RelationSampler`; a loss with proxies requires
    classes.

    Args:
        examples: The examples, such as an `ImageSet` or an `ArraySet`.
        pairs: (M, 2) rows of `examples`.
        positive: (M,) booleans, or 1 and 0: whether each pair is positive. By
            default all are.
        transitive: Whether positive pairs are transitive: of (a, b) and (b, c),
            a and c are positive as well, so each connected component is like a
            class; a negative pair holds for all of both components. Examples
            with equal contents are in one component. False: only the given
            pairs are known.

    Attributes:
        positive: Whether each pair is positive, (M,) booleans.

    Raises:
        ValueError: If there are no pairs, if they are not as described, or if
            two of them contradict each other.
        IndexError: If a row is out of range.

    Example:

    ```python
    pairs = PairSet(images, [[0, 1], [0, 2]], positive=[True, False])
    ```
    """

    def __init__(
        self,
        examples: Examples,
        pairs: npt.ArrayLike,
        positive: npt.ArrayLike | None = None,
        transitive: bool = False,
    ) -> None:
        rows = _as_tuples(examples, pairs, 2, "pairs", "PairSet")
        alike = np.ones(len(rows), bool)
        if positive is not None:
            array = np.asarray(positive)
            if array.shape != alike.shape or not np.isin(array, (0, 1)).all():
                raise ValueError(
                    "`positive` of PairSet must be booleans, or 1 and 0, one "
                    f"per pair. Received: positive of shape {array.shape} and "
                    f"dtype {array.dtype}, for {len(rows)} pairs. Convert "
                    "distances to booleans with a threshold."
                )
            alike = array.astype(bool)
        self.positive = alike
        super().__init__(examples, rows, rows, alike, transitive)


class TripletSet(Relations):
    """Triplets of examples: an anchor, a positive and a negative.

    See `PairSet`.

    Args:
        examples: The examples, such as an `ImageSet` or an `ArraySet`.
        triplets: (M, 3) rows of `examples`: anchor, positive, negative.
        transitive: See `PairSet`.

    Raises:
        ValueError: If there are no triplets, if they are not as described, or
            if two of them contradict each other.
        IndexError: If a row is out of range.
    """

    def __init__(
        self,
        examples: Examples,
        triplets: npt.ArrayLike,
        transitive: bool = False,
    ) -> None:
        rows = _as_tuples(examples, triplets, 3, "triplets", "TripletSet")
        pairs = np.vstack([rows[:, [0, 1]], rows[:, [0, 2]]])
        positive = np.arange(len(pairs)) < len(rows)
        super().__init__(examples, rows, pairs, positive, transitive)


def _components(examples: Examples, pairs: Rows) -> Rows:
    """Connected component of every example, (N,), by pairs and contents."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    contents = equal_contents(examples)
    _, first = np.unique(contents, return_index=True)
    same = np.stack([np.arange(len(contents)), first[contents]], axis=1)
    rows, columns = np.concatenate([pairs, same]).T
    links = np.ones(len(rows), bool), (rows, columns)
    graph = coo_array(links, shape=(len(examples), len(examples)))
    groups: Rows = connected_components(graph, directed=False)[1]
    return groups.astype(np.int64)


def _as_tuples(
    examples: Any, tuples: npt.ArrayLike, width: int, name: str, owner: str
) -> Rows:
    check_examples(examples, owner)
    try:
        rows = np.asarray(tuples)
    except ValueError:
        rows = np.empty(0)
    if rows.ndim != 2 or rows.shape[1] != width or rows.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` of {owner} must be integers of shape (M, {width}): "
            f"rows of `examples`. Received: {name} of dtype {rows.dtype} and "
            f"shape {rows.shape}."
        )
    if not len(rows):
        raise ValueError(f"`{name}` of {owner} must not be empty.")
    bad = rows[(rows < 0) | (rows >= len(examples))]
    if len(bad):
        raise IndexError(
            f"`{name}` of {owner} must be rows of the {len(examples)} "
            f"examples. Received: row {bad[0]}."
        )
    return rows.astype(np.int64)


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
            examples whose `ids` it names; or those of `image_folder` and other
            files without ids, whose paths end with the names.

    Returns:
        The pairs. Of a folder, `pairs.examples` has the listed images alone,
        each once, without labels.

    Raises:
        FileNotFoundError: If the file or an image does not exist.
        ValueError: If a line is not as described, a name is not that of one
            example, or the pairs are not as `PairSet` requires.

    Example:

    ```python
    pairs = read_trials("lfw/pairs.txt", image_folder("lfw"))
    results = evaluate_trials(embed(model, pairs.examples), pairs)
    ```
    """
    file = Path(path)
    is_table = file.suffix.lower() == ".csv"
    names, positive = [], []
    with file.open(newline="", encoding="utf-8-sig") as opened:
        rows_of_cells = (
            csv.reader(opened) if is_table else map(str.split, opened)
        )
        lines = [[x.strip() for x in row] for row in rows_of_cells if any(row)]
    for number, cells in enumerate(lines):
        is_header = all(map(str.isdecimal, cells))
        if is_table:
            is_header = len(cells) == 3 and not cells[2].isdecimal()
        trial = _trial(cells, is_table)
        if trial is not None:
            names.append(trial[:2])
            positive.append(trial[2])
        elif number or not is_header:
            raise ValueError(
                f"A line of {file} must be a trial: '1 a.jpg b.jpg', 'Ann 1 "
                "4', 'Ann 1 Bob 2', or, in a .csv file, 'a.jpg,b.jpg,1'. "
                f"Received: {' '.join(cells)!r}. Write 1 for the same "
                "subject, and 0 for different ones."
            )
    listed = sorted({name for pair in names for name in pair})
    if not isinstance(examples, Examples):
        examples = listed_images(file, Path(examples), listed, None)
    rows = _rows_by_name(examples, listed)
    unknown = [name for name in listed if name not in rows]
    if unknown:
        raise ValueError(
            "`examples` of read_trials must have the names in the list as "
            "`ids`, or be files of which one path each ends so. Received: "
            f"{examples!r}, without {len(unknown):,} of {len(listed):,}, such "
            f"as {unknown[0]!r}. Pass ids, or the folder of the images."
        )
    pairs = [[rows[a], rows[b]] for a, b in names]
    return PairSet(examples, np.reshape(pairs, (-1, 2)).astype(int), positive)


def _rows_by_name(examples: Examples, listed: list[str]) -> dict[str, int]:
    """Rows by id, or of names that exactly one path ends with."""
    if examples.ids is not None or not isinstance(examples, ImageSet):
        return {name: row for row, name in enumerate(examples.ids or ())}
    parts = {name: PurePath(name).parts for name in listed}
    lengths = {len(x) for x in parts.values()}
    ends = defaultdict(list)
    for row, path in enumerate(examples.paths or ()):
        for end in {PurePath(path).parts[-length:] for length in lengths}:
            ends[end].append(row)
    return {
        name: ends[end][0] for name, end in parts.items() if len(ends[end]) == 1
    }


def _trial(cells: list[str], is_table: bool) -> tuple[str, str, bool] | None:
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
