"""Examples: the interface that all sets of examples share."""

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import EllipsisType, MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from keras_dml.data.validation import (
    Names,
    as_names,
    as_rows,
    check_lengths,
    encode_labels,
)
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Labels, Rows

if TYPE_CHECKING:
    import keras

    from keras_dml.data.view import View

Inputs: TypeAlias = Any
"""Model inputs of n examples: an array, (n, ...), or a dict of arrays."""

Planned: TypeAlias = "Callable[[tf.Tensor, tf.Tensor, slice], tf.data.Dataset]"
"""A function that takes the rows of an epoch, (S, B), its step numbers, (S,),
and a slice, and returns that part of every batch of inputs. Random draws do not
depend on the slice."""

WHOLE_BATCH = slice(None)
"""The slice that selects all rows of a batch."""


@dataclass(frozen=True)
class About:
    """Labels, names and ids of examples."""

    labels: Labels | None
    names: Mapping[int, str]
    ids: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        labels: Any,
        names: Names | None,
        ids: Iterable[Any] | None,
        owner: str,
    ) -> "About":
        texts = None if ids is None else tuple(map(str, ids))
        if labels is None:
            none = np.empty(0, np.int64)
            return cls(None, as_names(names, none, owner), texts)
        return cls(*encode_labels(labels, names, owner), texts)


class Examples(abc.ABC):
    """Examples that a model embeds, in a fixed order, mostly with labels.

    An example is identified by its row number alone; labels and ids describe
    it. A set is immutable; `select` returns a new one.

    `ImageSet` contains images, `ArraySet` arrays of anything else. To add
    another kind of examples, implement `__len__`, `inputs`, `_at` and
    `_join`.

    Attributes:
        labels: Class of every example, (N,) int64; (N, C) booleans if each has
            any number of labels; None if unknown: such examples can only be
            embedded and indexed.
        names: Class names by label.
        ids: Names of the examples in their source, or None.
        groups: Group of every example, (N,) int64, by the name of the column;
            see `with_groups`.
    """

    labels: Labels | None
    names: Mapping[int, str]
    ids: tuple[str, ...] | None
    groups: Mapping[str, Rows] = MappingProxyType({})

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def inputs(self, rows: npt.ArrayLike | EllipsisType) -> Inputs:
        """Returns the model inputs of the examples at `rows`, in that order.

        Args:
            rows: Row numbers, (n,); or a (N,) boolean mask; or `...` for all.

        Returns:
            An array, (n, ...), or a dict of arrays.

        Raises:
            ValueError: If `rows` is none of these, or an example is invalid.
            IndexError: If a row number is out of range.
        """

    @abc.abstractmethod
    def _at(self, rows: Rows | None, about: About) -> Self:
        """The examples at some rows, or all, with other labels and names."""

    @classmethod
    @abc.abstractmethod
    def _join(cls, sets: Sequence[Self], about: About) -> Self:
        """The examples of several sets, one after the other."""

    @property
    def known_labels(self) -> Rows:
        """One label per example; `ValueError` if there are none, or several."""
        return labels_of(self, "labels", type(self).__name__)

    @property
    def classes(self) -> Rows:
        """The distinct labels, in ascending order."""
        labels = self.labels
        if labels is None:
            return np.empty(0, np.int64)
        return occurring(labels)

    @property
    def has_label_sets(self) -> bool:
        """Whether each example has any number of labels."""
        return self.labels is not None and self.labels.ndim == 2

    @property
    def num_classes(self) -> int:
        """Number of distinct labels."""
        return len(self.classes)

    def select(self, rows: npt.ArrayLike) -> Self:
        """Returns the examples at `rows`, in that order.

        Args:
            rows: Row numbers, or a (N,) boolean mask.

        Raises:
            ValueError: If `rows` is neither.
            IndexError: If a row number is out of range.
        """
        picked = as_rows(rows, len(self), f"{type(self).__name__}.select")
        labels, ids, names = self.labels, self.ids, self.names
        if labels is not None:
            labels = labels[picked]
            present = set(occurring(labels).tolist())
            names = {k: v for k, v in names.items() if k in present}
        if ids is not None:
            ids = tuple(ids[row] for row in picked)
        groups = {name: group[picked] for name, group in self.groups.items()}
        return self._at(picked, About(labels, names, ids))._set_groups(groups)

    def relabeled(self) -> Self:
        """Returns the same examples with classes numbered 0, 1, 2, ….

        Names and the order of the labels are kept. Losses with weights for
        each class require such labels. With several labels per example, only
        columns of labels that occur are kept.

        Raises:
            ValueError: If the examples have no labels.
        """
        owner = f"{type(self).__name__}.relabeled"
        labels = any_labels_of(self, "labels", owner)
        classes = occurring(labels)
        if self.has_label_sets:
            labels = labels[:, classes]
        else:
            labels = np.searchsorted(classes, labels)
        names = {
            number: self.names[label]
            for number, label in enumerate(classes.tolist())
            if label in self.names
        }
        about = About(labels, names, self.ids)
        return self._at(None, about)._set_groups(self.groups)

    def with_labels(
        self, labels: npt.ArrayLike | None, names: Names | None = None
    ) -> Self:
        """Returns the same examples with other labels, or without labels.

        Args:
            labels: (N,) integers or strings, see the constructor of the set;
                or None.
            names: Class names, see the constructor of the set.

        Raises:
            ValueError: If labels are not as described.
        """
        owner = f"{type(self).__name__}.with_labels"
        about = About.of(labels, names, self.ids, owner)
        check_lengths(owner, "examples", len(self), labels=about.labels)
        return self._at(None, about)._set_groups(self.groups)

    def with_groups(self, groups: Mapping[str, npt.ArrayLike]) -> Self:
        """Returns the same examples with columns that group them.

        A group may be anything that is not the class: a super-class, a
        viewpoint, a shop. `callbacks.Recluster` can divide a training set by
        these columns.

        Args:
            groups: Group of every example, (N,) integers or strings, by the
                name of the column. Existing columns are removed.

        Raises:
            ValueError: If groups are not as described.
        """
        owner = f"{type(self).__name__}.with_groups"
        columns = {
            name: About.of(group, None, None, owner).labels
            for name, group in groups.items()
        }
        check_lengths(owner, "examples", len(self), **columns)
        if any(group is None or group.ndim > 1 for group in columns.values()):
            raise ValueError(
                f"`groups` of {owner} must have one group per example. "
                f"Received: {dict(groups)!r:.80}. Use integers or strings."
            )
        return self._at(
            None, About(self.labels, self.names, self.ids)
        )._set_groups(columns)

    def _set_groups(self, groups: Mapping[str, Any]) -> Self:
        vars(self)["groups"] = MappingProxyType(dict(groups))
        return self

    def called(self, row: int) -> str:
        """Returns the display name of one example."""
        return str(row) if self.ids is None else self.ids[row]

    def class_called(self, row: int) -> str:
        """Returns the display name of an example's class, or its labels.

        Raises:
            ValueError: If the examples have no labels.
        """
        owner = f"{type(self).__name__}.class_called"
        label = any_labels_of(self, "labels", owner)[row]
        labels = np.flatnonzero(label) if self.has_label_sets else [label]
        return ", ".join(self.names.get(int(x), str(x)) for x in labels)

    def alike(self, row: int, rows: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Returns which examples share the class, or a label, of another.

        Args:
            row: Row number of the other example.
            rows: Row numbers of the examples, (n,).

        Raises:
            ValueError: If the examples have no labels.
        """
        owner = f"{type(self).__name__}.alike"
        labels = any_labels_of(self, "labels", owner)
        label, other_labels = labels[row], labels[np.asarray(rows, np.int64)]
        if self.has_label_sets:
            return (other_labels & label).any(axis=-1)
        return other_labels == label

    def view_for(self, model: "keras.Model") -> "View | None":
        """Returns how examples are prepared for a model; None: unchanged."""
        return None

    def __repr__(self) -> str:
        return describe(self)

    def __getstate__(self) -> dict[str, Any]:
        # A `MappingProxyType` cannot be pickled.
        return {
            name: dict(value) if isinstance(value, MappingProxyType) else value
            for name, value in vars(self).items()
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            is_mapping = isinstance(value, dict)
            vars(self)[name] = MappingProxyType(value) if is_mapping else value


def describe(examples: Examples, what: str = "examples", *more: str) -> str:
    """The `repr` of a set: numbers of examples and classes, and `more`."""
    about = "without labels"
    if examples.has_label_sets:
        about = f"with some of {examples.num_classes:,} labels each"
    elif examples.labels is not None:
        count = examples.num_classes
        about = f"of {count:,} {'class' if count == 1 else 'classes'}"
    things = what.removesuffix("s") if len(examples) == 1 else what
    parts = ", ".join((f"{len(examples):,} {things} {about}", *more))
    return f"{type(examples).__name__}({parts})"


def occurring(labels: Labels) -> Rows:
    """The distinct labels, in ascending order."""
    if labels.ndim == 2:
        return np.flatnonzero(labels.any(axis=0))
    return np.unique(labels)


def check_examples(examples: Any, owner: str) -> None:
    """Raises `ValueError` unless `examples` of `owner` are `Examples`."""
    if not isinstance(examples, Examples):
        raise ValueError(
            f"`examples` of {owner} must be Examples. Received: "
            f"{type(examples).__name__}. Use ImageSet(images, labels) for "
            "images, ArraySet(x, labels) for arrays, or from_dataset(dataset) "
            "for a tf.data.Dataset."
        )


def labels_of(examples: Examples, name: str, owner: str) -> Rows:
    """One label per example; `ValueError` if there are none, or several."""
    labels = any_labels_of(examples, name, owner)
    if examples.has_label_sets:
        raise ValueError(
            f"`{name}` of {owner} must be one label per example. "
            f"Received: {examples!r}."
        )
    return labels


def any_labels_of(examples: Examples, name: str, owner: str) -> Labels:
    """One or several labels per example; `ValueError` if unknown."""
    if examples.labels is None:
        raise ValueError(
            f"`{name}` of {owner} must be known. Received: {examples!r}. Use "
            f"{type(examples).__name__}(…, labels=…), with one label per "
            "example."
        )
    return examples.labels


E = TypeVar("E", bound=Examples)


def concatenate(sets: Sequence[E]) -> E:
    """Joins several sets, one after the other.

    Ids are kept if all sets have them; so is a column of groups.

    Raises:
        ValueError: If there are no sets, if the sets are of different kinds or
            contain different kinds of inputs (pixels and files, images of
            different sizes, arrays of different shapes), if only some have
            labels or boxes, or if two sets name a class differently.
    """
    kinds = sorted({type(part).__name__ for part in sets})
    if len(kinds) != 1:
        raise ValueError(
            "`sets` of concatenate must be at least one set, and all of one "
            f"kind. Received: {' and '.join(kinds) or 'none'}."
        )
    names = check_names([part.names for part in sets], "sets", "concatenate")
    labels = [part.labels for part in sets if part.labels is not None]
    if len({x.shape[1:] for x in labels}) > 1:
        raise ValueError(
            "`sets` of concatenate must all have one label per example, or "
            "booleans for the same labels. Received: labels of shape "
            f"{' and '.join(str(x.shape) for x in labels)}. To number labels "
            "that are strings as in another set, use names=other.names."
        )
    if 0 < len(labels) < len(sets):
        raise ValueError(
            "`sets` of concatenate must all have labels, or none. Received: "
            f"{len(labels)} of {len(sets)} with labels."
        )
    ids = [name for part in sets for name in part.ids or ()]
    has_ids = len(ids) == sum(map(len, sets))
    about = About(
        np.concatenate(labels) if labels else None,
        names,
        tuple(ids) if has_ids else None,
    )
    shared = set.intersection(*(set(part.groups) for part in sets))
    groups = {
        name: np.concatenate([part.groups[name] for part in sets])
        for name in sets[0].groups
        if name in shared
    }
    return type(sets[0])._join(sets, about)._set_groups(groups)


def check_names(
    names: Iterable[Mapping[int, str]], argument: str, owner: str
) -> dict[int, str]:
    """All class names of several sets; `ValueError` unless they agree."""
    merged: dict[int, str] = {}
    for mapping in names:
        for label, name in mapping.items():
            if merged.setdefault(label, name) != name:
                raise ValueError(
                    f"`{argument}` of {owner} must agree on class names. "
                    f"Received: label {label} is named {merged[label]!r} and "
                    f"{name!r}. Number classes as in the other set: "
                    "x.with_labels([x.names[i] for i in x.labels], "
                    "names=other.names)."
                )
    return merged
