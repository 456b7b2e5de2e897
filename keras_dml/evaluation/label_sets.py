"""Label sets: several labels per example, and when two examples match."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from keras_dml.data.validation import check_known
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import as_ids

RelevanceName = Literal["any", "all", "shared", "jaccard"]

RELEVANCES = get_args(RelevanceName)
"""Rules of relevance for images with several labels."""


@dataclass(frozen=True)
class LabelSets:
    """The labels of every example, any number of them."""

    matrix: Any  # Sparse, (N, C) int64 of 0 and 1.
    gain: str  # How graded metrics reward a relevant image, see `gains`.

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: Rows) -> "LabelSets":
        return LabelSets(self.matrix[rows], self.gain)

    @cached_property
    def sizes(self) -> Rows:
        """Number of labels of each example, (N,)."""
        return np.diff(self.matrix.indptr).astype(np.int64)

    def gains(self, shared: Rows, first: Rows, second: Rows) -> FloatArray:
        """Gains of pairs, from the numbers of labels in both and in each.

        "any" is 1, "shared" the number of labels that both have, and "jaccard"
        that number divided by the number of labels that either has.
        """
        if self.gain == "any":
            return np.ones(len(shared))
        if self.gain == "shared":
            return shared.astype(np.float64)
        return shared / (first + second - shared)


Targets: TypeAlias = "Rows | LabelSets"
"""Class of every example, (N,), or its labels."""

ClassNames: TypeAlias = Mapping[int, Any]
"""The user's names of classes, by number."""


def as_targets(
    labels: Sequence[Any],
    counts: Sequence[int],
    names: Sequence[str],
    owner: str,
    relevance: str,
    levels: Sequence[str] | None,
    class_names: ClassNames | None,
) -> tuple[list[dict[str, Targets]], dict[str, ClassNames]]:
    """The targets by level, and the names of classes by level.

    Both are of the queries, and of the gallery if there is one, as are `labels`
    and `counts`; a single level is named "". `names` are those in messages,
    `levels` those of the columns if labels are a hierarchy, (N, L), and
    `class_names` of classes that are given as numbers.
    """
    check_choice(owner, "relevance", relevance, RELEVANCES)
    arguments = list(zip(labels, counts, names, strict=True))
    for x, _, name in arguments:
        if not (isinstance(x, Mapping) or hasattr(x, "tocsr") or _are_sets(x)):
            check_known(x, name, owner)
    if levels is not None or any(isinstance(x, Mapping) for x in labels):
        if levels is None and isinstance(labels[0], Mapping):
            levels = tuple(labels[0])
        columns = [_columns(x, name, owner, levels) for x, _, name in arguments]
        return _by_level(columns, counts, names, owner)
    if not any(
        hasattr(x, "tocsr") or _are_sets(x) or np.ndim(x) == 2 for x in labels
    ):
        if relevance != "any":
            raise ValueError(
                f"`relevance` of {owner} requires several labels per example. "
                f"Received: relevance={relevance!r} and one label per "
                "example. Omit it."
            )
        ids, string_names = as_class_ids(labels, counts, names, owner)
        return [{"": x} for x in ids], {"": string_names or class_names or {}}
    matrices, set_names = _matrices(arguments, owner)
    if relevance == "all":
        return [{"": ids} for ids in _ids_of_sets(matrices)], {}
    sets = [LabelSets(matrix, relevance) for matrix in matrices]
    return [{"": x} for x in sets], {"": set_names or class_names or {}}


def ids_of(targets: Targets) -> Rows:
    """An id for each example's class, or for its set of labels, (N,)."""
    if isinstance(targets, LabelSets):
        return _ids_of_sets([targets.matrix])[0]
    return targets


def labels_in(targets: Targets) -> Rows:
    """The class of each example, or each label of each, (n,)."""
    if isinstance(targets, LabelSets):
        indices: Rows = targets.matrix.indices
        return indices
    return targets


def _are_sets(labels: Any) -> bool:
    is_array = isinstance(labels, np.ndarray) and labels.dtype == object
    is_list = (is_array or isinstance(labels, list | tuple)) and len(labels) > 0
    return is_list and isinstance(labels[0], set | frozenset)


def _columns(
    labels: Any, name: str, owner: str, levels: Sequence[str] | None
) -> dict[str, Any]:
    """The columns of a hierarchy by their names."""
    if isinstance(labels, Mapping):
        keys = tuple(labels) if levels is None else tuple(levels)
        missing = [level for level in keys if level not in labels]
        if missing or not keys:
            raise ValueError(
                f"`levels` of {owner} must be keys of `{name}`. Received: "
                f"levels={keys}, {name} with the keys {tuple(labels)}."
            )
        columns = {level: labels[level] for level in keys}
    else:
        keys = tuple(levels or ())
        table = np.asarray(labels)
        if table.ndim != 2 or table.shape[1] != len(keys):
            raise ValueError(
                f"`{name}` of {owner} must have one column for each of "
                f"`levels`. Received: {name}.shape={table.shape}, "
                f"levels={keys}."
            )
        columns = dict(zip(keys, table.T, strict=True))
    bad = [x for x in keys if not isinstance(x, str) or not x or "/" in x]
    if bad or len(set(keys)) < len(keys):
        raise ValueError(
            f"`levels` of {owner} must be different names without a slash. "
            f"Received: levels={keys}."
        )
    return columns


def _by_level(
    columns: Sequence[dict[str, Any]],
    counts: Sequence[int],
    names: Sequence[str],
    owner: str,
) -> tuple[list[dict[str, Targets]], dict[str, ClassNames]]:
    """Classes at each level, of the queries and of the gallery, and names."""
    targets: list[dict[str, Targets]] = [{} for _ in columns]
    class_names: dict[str, ClassNames] = {}
    for level in columns[0]:
        titles = [f"{name}[{level!r}]" for name in names]
        labels = [x[level] for x in columns]
        ids, class_names[level] = as_class_ids(labels, counts, titles, owner)
        for target, classes in zip(targets, ids, strict=True):
            target[level] = classes
    return targets, class_names


def as_class_ids(
    labels: Sequence[Any],
    counts: Sequence[int],
    names: Sequence[str],
    owner: str,
) -> tuple[list[Rows], ClassNames]:
    """Class ids of the queries and of the gallery, and the names of strings.

    Strings of both are numbered together, in alphabetical order.
    """
    for x, name in zip(labels, names, strict=True):
        check_known(x, name, owner)
    arrays = [np.asarray(x) for x in labels]
    class_names: ClassNames = {}
    if all(_are_strings(x) for x in arrays):
        # Bytes, text and objects are all numbered in the order of their text.
        texts = np.concatenate(
            [
                np.char.decode(x) if x.dtype.kind == "S" else x.astype(str)
                for x in arrays
            ]
        )
        unique_texts, numbers = np.unique(texts, return_inverse=True)
        class_names = dict(enumerate(unique_texts.tolist()))
        arrays = np.split(numbers, np.cumsum([len(x) for x in arrays])[:-1])
    ids = [
        as_ids(*each, owner) for each in zip(arrays, counts, names, strict=True)
    ]
    return ids, class_names


def _are_strings(labels: npt.NDArray[Any]) -> bool:
    if labels.ndim != 1 or not len(labels):
        return False
    if labels.dtype == object:
        return all(isinstance(x, str) for x in labels)
    return labels.dtype.kind in "SU"


def _matrices(
    arguments: Sequence[tuple[Any, int, str]], owner: str
) -> tuple[list[Any], ClassNames]:
    """Sparse matrices with the same columns, and the names of the columns."""
    parts = [labels for labels, _, _ in arguments]
    class_names: ClassNames = {}
    if all(_are_sets(x) for x in parts):
        matrices, class_names = _matrices_of_sets(parts)
    else:
        matrices = [_as_matrix(*each, owner) for each in arguments]
    for matrix, (_, count, name) in zip(matrices, arguments, strict=True):
        if matrix.shape[0] != count:
            raise ValueError(
                f"`{name}` of {owner} must have one set of labels per "
                f"embedding. Received: labels of {matrix.shape[0]} and "
                f"{count} embeddings."
            )
    if len({matrix.shape[1] for matrix in matrices}) > 1:
        raise ValueError(
            f"`{arguments[0][2]}` and `{arguments[1][2]}` of {owner} must have "
            f"the same columns. Received: {[x.shape[1] for x in matrices]} "
            "columns."
        )
    return matrices, class_names


def _matrices_of_sets(parts: Sequence[Any]) -> tuple[list[Any], ClassNames]:
    from scipy.sparse import csr_array

    columns: dict[Any, int] = {}
    for sets in parts:
        for labels in sets:
            for label in labels:
                columns.setdefault(label, len(columns))
    matrices = []
    for sets in parts:
        indices = [columns[label] for labels in sets for label in labels]
        starts = np.cumsum([0, *(len(labels) for labels in sets)])
        values = np.ones(len(indices), np.int64)
        shape = len(sets), max(1, len(columns))
        matrix = csr_array((values, indices, starts), shape)
        matrix.sort_indices()
        matrices.append(matrix)
    return matrices, {number: label for label, number in columns.items()}


def _as_matrix(labels: Any, count: int, name: str, owner: str) -> Any:
    from scipy.sparse import csr_array

    table = labels if hasattr(labels, "tocsr") else np.asarray(labels)
    is_table = len(table.shape) == 2 and table.shape[1] > 1
    if is_table and table.dtype.kind in "biuf":
        matrix = csr_array(table)
        matrix.eliminate_zeros()
        if (matrix.data == 1).all():
            return matrix.astype(np.int64)
    raise ValueError(
        f"`{name}` of {owner} must be integers, one per embedding; or, "
        "for several labels per embedding, (N, C) zeros and ones, or sets. "
        f"Received: {name}.shape={table.shape}, {name}.dtype={table.dtype}. "
        "Name the columns of a hierarchy with `levels`; ravel (N, 1)."
    )


def _ids_of_sets(matrices: Sequence[Any]) -> list[Rows]:
    """Numbers of the distinct sets; examples without labels match nothing."""
    ids: dict[bytes, int] = {}
    unmatched_ids = itertools.count(-1, -1)
    ids_by_matrix = []
    for matrix in matrices:
        matrix.sort_indices()
        indices = matrix.indices.astype(np.int64)
        keys = [x.tobytes() for x in np.split(indices, matrix.indptr[1:-1])]
        set_ids = [
            ids.setdefault(key, len(ids)) if key else next(unmatched_ids)
            for key in keys
        ]
        ids_by_matrix.append(np.array(set_ids, np.int64))
    return ids_by_matrix
