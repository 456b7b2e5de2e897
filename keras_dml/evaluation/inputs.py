"""Inputs of an evaluation: embedded queries and gallery.

The file is longer than others because models, embeddings and shards become the
same inputs, under the same rules for labels, groups and protocols.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args

import keras
import numpy as np

from keras_dml.data.examples import Examples, any_labels_of, check_names
from keras_dml.data.hashing import same_array, same_examples
from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.engines import Engine, predict_function
from keras_dml.embedding.in_memory import Embedded, embed_argument, source_of
from keras_dml.evaluation.label_sets import (
    ClassNames,
    LabelSets,
    Targets,
    as_class_ids,
    as_targets,
)
from keras_dml.evaluation.ranks.relevance import Images
from keras_dml.model.checks import check_channels_last
from keras_dml.model.warnings import warn
from keras_dml.utils.arguments import check_count, check_not_empty
from keras_dml.utils.lazy_rows import EmbeddingRows
from keras_dml.utils.models import check_model
from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import as_embeddings, as_ids, as_rows

ProtocolName = Literal["all_vs_all", "official"]

PROTOCOLS = get_args(ProtocolName)

_LABELS = "labels", "gallery_labels"
"""Arguments with the labels of the examples and of the gallery."""

_UNKNOWN_GROUP = -1
"""Group of an example that is in none; None means the same."""

T = TypeVar("T")

Inputs = list[Images]
"""The images; or the queries, and the gallery that they are searched in."""


@dataclass(frozen=True)
class Relation:
    """Rules of relevance and exclusion; see `evaluate_embeddings`."""

    exclude: Any = None
    relevance: str = "any"
    levels: Sequence[str] | None = None


def from_model(
    model: Any,
    examples: Any,
    labels: Any,
    *,
    gallery: Any,
    gallery_labels: Any,
    relation: Relation,
    batch_size: int,
    progress: bool | None,
    engine: Engine,
) -> Inputs:
    """Checks and embeds the arguments of `evaluate`."""
    check_model(model, "evaluate")
    check_channels_last(model, examples, "examples", "evaluate")
    check_channels_last(model, gallery, "gallery", "evaluate")
    sides = _sources(examples, gallery, gallery_labels, "evaluate")
    # Bad arguments raise before anything is embedded.
    unembedded = of_examples(
        sides["examples"],
        labels,
        gallery=sides.get("gallery"),
        gallery_labels=gallery_labels,
        relation=relation,
        owner="evaluate",
    )
    predict = predict_function(model, engine, "evaluate")
    options = "evaluate", batch_size, progress

    def embed(name: str, source: Any) -> Embedded:
        result = embed_argument(model, source, name, *options, predict=predict)
        x = as_embeddings(result.embeddings, f"model({name})", "evaluate")
        return replace(result, embeddings=x)

    results = _per_side(sides, embed, _are_same(sides, same_examples))
    embeddings = [x.embeddings for x in results]
    if unembedded is not None:
        return [
            replace(images, embeddings=x.embeddings).select(
                np.delete(np.arange(len(images)), x.left_out)
            )
            for images, x in zip(unembedded, results, strict=False)
        ]
    overrides = [labels, gallery_labels]
    class_names = _names([x.names for x in results], overrides, "evaluate")
    targets = _targets(sides, [x.labels for x in results], overrides)
    return _relate(embeddings, targets, relation, "evaluate", class_names)


def of_examples(
    examples: Any,
    labels: Any,
    *,
    gallery: Any,
    gallery_labels: Any,
    relation: Relation,
    owner: str,
) -> Inputs | None:
    """Checks examples without embedding them; None for unread datasets."""
    sides = _sources(examples, gallery, gallery_labels, owner)
    sets = [x for x in sides.values() if isinstance(x, Examples)]
    overrides = [labels, gallery_labels]
    class_names = _names([x.names for x in sets], overrides, owner)
    if len(sets) < len(sides):
        return None
    defaults = [
        any_labels_of(x, name, owner) if override is None else None
        for name, x, override in zip(_LABELS, sets, overrides, strict=False)
    ]
    targets = _targets(sides, defaults, overrides)
    is_same = _are_same(sides, same_examples)
    embeddings = _per_side(sides, lambda _, x: np.empty((len(x), 0)), is_same)
    return _relate(embeddings, targets, relation, owner, class_names)


def _sources(
    examples: Any, gallery: Any, gallery_labels: Any, owner: str
) -> dict[str, Any]:
    """Sets or datasets, by argument."""
    sides = _sides("examples", examples, gallery, gallery_labels, owner)
    sources = {name: source_of(x, name, owner) for name, x in sides.items()}
    for name, source in sources.items():
        if isinstance(source, Examples):
            check_not_empty(owner, name, source)
    return sources


def _sides(
    name: str, queries: Any, gallery: Any, gallery_labels: Any, owner: str
) -> dict[str, Any]:
    """The queries and, if there is one, the gallery, by argument."""
    if gallery is not None:
        return {name: queries, "gallery": gallery}
    if gallery_labels is not None:
        raise ValueError(
            f"`gallery_labels` of {owner} requires `gallery`. Received: "
            "gallery=None."
        )
    return {name: queries}


def _are_same(sides: dict[str, Any], same: Callable[[Any, Any], bool]) -> bool:
    """Whether there is a gallery, and it is the queries."""
    return len(sides) > 1 and same(*sides.values())


def _per_side(
    sides: dict[str, Any], function: Callable[[str, Any], T], is_same: bool
) -> list[T]:
    """Applies a function to each side, once if the gallery is the queries."""
    (first, *rest) = sides.items()
    result = function(*first)
    return [result, *(result if is_same else function(*x) for x in rest)]


def _names(
    defaults: Sequence[ClassNames], overrides: Sequence[Any], owner: str
) -> ClassNames:
    """Class names of the examples, unless labels are passed separately."""
    check_names(defaults, "gallery", owner)
    return {
        number: name
        for names, override in zip(defaults, overrides, strict=False)
        if override is None
        for number, name in names.items()
    }


def _targets(
    sides: dict[str, Any], defaults: Sequence[Any], overrides: Sequence[Any]
) -> dict[str, Any]:
    """Labels, passed or of the examples, by their names in messages."""
    return {
        f"labels of {name}" if override is None else argument: (
            default if override is None else override
        )
        for name, default, argument, override in zip(
            sides, defaults, _LABELS, overrides, strict=False
        )
    }


def from_embeddings(
    embeddings: Any,
    labels: Any,
    *,
    gallery: Any,
    gallery_labels: Any,
    relation: Relation,
) -> Inputs:
    """Checks the arguments of `evaluate_embeddings`."""
    owner = "evaluate_embeddings"
    if isinstance(embeddings, keras.Model):
        raise ValueError(
            "`embeddings` of evaluate_embeddings must be an array. Received: "
            f"a model, {embeddings.name!r}. Use `evaluate(model, examples)`."
        )
    sides = _sides("embeddings", embeddings, gallery, gallery_labels, owner)
    overrides = [labels, gallery_labels]
    shards = [
        each if isinstance(each, EmbeddingShards) else None
        for each in sides.values()
    ]
    y = {
        name: x.labels if override is None and x is not None else override
        for x, override, name in zip(shards, overrides, _LABELS, strict=False)
    }
    for name, value in y.items():
        if value is None or isinstance(value, Examples):
            raise ValueError(
                f"`{name}` of evaluate_embeddings must be integers, one per "
                f"embedding. Received: {name} of type "
                f"{type(value).__name__}. Use `images.labels` of a set, or "
                "`evaluate(model, images)`."
            )
    _check_models(shards, owner)
    names = _names([x.names if x else {} for x in shards], overrides, owner)
    x = _per_side(
        sides,
        lambda name, each: as_rows(
            each.array() if isinstance(each, EmbeddingShards) else each,
            name,
            owner,
        ),
        _are_same(sides, _same_embeddings),
    )
    if x[-1].shape[1] != x[0].shape[1]:
        raise ValueError(
            "`gallery` of evaluate_embeddings must have the same number of "
            "dimensions as `embeddings`. Received: embeddings.shape="
            f"{x[0].shape}, gallery.shape={x[-1].shape}."
        )
    return _relate(x, y, relation, owner, names)


def _same_embeddings(embeddings: Any, gallery: Any) -> bool:
    """Whether both are the same rows: one array, or shards of one folder."""
    shards = embeddings, gallery
    if all(isinstance(x, EmbeddingShards) for x in shards):
        return bool(embeddings.run_id == gallery.run_id)
    return same_array(embeddings, gallery)


def _check_models(shards: Sequence[EmbeddingShards | None], owner: str) -> None:
    """Rejects embeddings of two models, which cannot be compared."""
    models = [x.model for x in shards if x is not None and x.model is not None]
    difference = models[0].difference(models[-1]) if models else ""
    if difference:
        raise ValueError(
            f"`gallery` of {owner} must be made by the model of `embeddings`, "
            "because embeddings of different models cannot be compared. "
            f"Received: a gallery of a model {difference}. Embed one of them "
            "again."
        )


def _relate(
    embeddings: Sequence[EmbeddingRows],
    labels: dict[str, Any],
    relation: Relation,
    owner: str,
    class_names: ClassNames | None = None,
) -> Inputs:
    """Builds images with their classes, groups and rows.

    If the gallery is the queries, each row is one image, which does not find
    itself; with the same labels and groups, there is no other gallery.
    """
    counts = [len(x) for x in embeddings]
    options = relation.relevance, relation.levels, class_names
    targets, names_by_level = as_targets(
        list(labels.values()), counts, list(labels), owner, *options
    )
    if relation.relevance != "all":
        _check_minus_one(targets, names_by_level, owner)
    groups = _groups(relation.exclude, counts, owner)
    rows = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    is_same = len(counts) > 1 and embeddings[0] is embeddings[1]
    if is_same:
        rows = [rows[0], rows[0]]
    images = [
        Images(*each, names_by_level)
        for each in zip(embeddings, targets, rows, groups, strict=True)
    ]
    return images[:1] if is_same and _are_alike(*images) else images


def _check_minus_one(
    targets: Sequence[dict[str, Targets]],
    names: dict[str, ClassNames],
    owner: str,
) -> None:
    """Warns if queries of the label −1 have others of it to find."""
    for level, classes in targets[0].items():
        if isinstance(classes, LabelSets):
            continue
        numbers = {name: number for number, name in names[level].items()}
        label = numbers.get("-1", -1)
        ids = np.concatenate([x[level] for x in targets])
        is_lowest = label != -1 or (ids.min() == -1 and ids.max() >= 0)
        if is_lowest and label in classes and (ids == label).sum() > 1:
            warn(
                "%d examples measured by %s have the label -1, which counts "
                "as a class like any other, so they are each other's right "
                "answers. If it marks junk, leave them out; if they are "
                "distractors, give each a label of its own.",
                (ids == label).sum(),
                owner,
            )


def _are_alike(queries: Images, gallery: Images) -> bool:
    """Whether the same images have the same labels and groups, too."""

    def plain(x: Any) -> Any:
        return x.matrix.toarray() if isinstance(x, LabelSets) else x

    first = [queries.groups, *queries.targets.values()]
    second = [gallery.groups, *map(gallery.targets.get, queries.targets)]
    return all(map(np.array_equal, map(plain, first), map(plain, second)))


def _groups(
    exclude: Any, counts: Sequence[int], owner: str
) -> Sequence[Rows | None]:
    """Groups of the images, or of the queries and of the gallery."""
    if exclude is None:
        return [None] * len(counts)
    if len(counts) == 1:
        return _number_groups([exclude], counts, ["exclude"], owner)
    if not isinstance(exclude, tuple) or len(exclude) != 2:
        raise ValueError(
            f"`exclude` of {owner} must be a pair (groups of the queries, "
            "groups of the gallery) if there is a gallery. Received: "
            f"exclude of type {type(exclude).__name__}."
        )
    return _number_groups(exclude, counts, ["exclude[0]", "exclude[1]"], owner)


def _number_groups(
    groups: Sequence[Any],
    counts: Sequence[int],
    names: Sequence[str],
    owner: str,
) -> list[Rows]:
    """Groups as integers, with a new one for each example without a group."""
    arrays = [np.asarray(x) for x in groups]
    may_be_text = [array for array in arrays if array.dtype.kind in "OU"]
    is_text = any(isinstance(x, str) for y in may_be_text for x in y.flat)
    missing = "" if is_text else _UNKNOWN_GROUP
    filled_arrays = [
        np.array([missing if x is None else x for x in array.tolist()])
        if array.dtype == object and array.ndim == 1
        else array
        for array in arrays
    ]
    ids, _ = as_class_ids(filled_arrays, counts, names, owner)
    is_unknown = np.concatenate(filled_arrays) == missing
    if is_unknown.any():
        numbers = np.unique(np.concatenate(ids), return_inverse=True)[1]
        numbers[is_unknown] = -1 - np.arange(is_unknown.sum())
        ids = np.split(numbers, np.cumsum(counts)[:-1])
    return ids


@dataclass(frozen=True)
class Protocol:
    """Which rows are queries and which are the gallery.

    A row is never retrieved by itself, so `Protocol()`, all against all,
    searches for every image among all the others.

    Args:
        queries: (Q,) rows, or None for all.
        gallery: (G,) rows, or None for all; images with equal scores keep this
            order.
    """

    queries: Rows | None = None
    gallery: Rows | None = None

    def of(self, images: Images) -> tuple[Images, Images]:
        """Returns queries and gallery among some images.

        Raises:
            ValueError: If a row is out of range or repeated.
        """
        return (
            images.select(_positions(self.queries, images, "queries")),
            images.select(_positions(self.gallery, images, "gallery")),
        )


def one_per_class(
    labels: Rows, draws: int = 10, seed: int = 0
) -> tuple[Protocol, ...]:
    """One random image of each class as the gallery, the rest as queries.

    This is the official protocol of VehicleID, whose results are the mean of
    ten draws. They cannot be compared with results of all against all.

    Args:
        labels: (N,) class of every row.
        draws: Number of random galleries.
        seed: Seed of the draws.

    Returns:
        One protocol per draw; `evaluate` averages over them.

    Raises:
        ValueError: If `labels` are not integers, or `draws` is not positive.

    Reference:
        Liu et al., "Deep Relative Distance Learning: Tell the Difference
        Between Similar Vehicles", CVPR 2016, section 5.1.
    """
    check_count("one_per_class", "draws", draws)
    labels = as_ids(labels, len(labels), "labels", "one_per_class")
    rng = np.random.default_rng(seed)
    protocols = []
    for _ in range(draws):
        shuffled = rng.permutation(len(labels))
        _, first = np.unique(labels[shuffled], return_index=True)
        gallery = shuffled[first]
        queries = np.setdiff1d(np.arange(len(labels)), gallery)
        protocols.append(Protocol(queries, gallery))
    return tuple(protocols)


def _positions(rows: Rows | None, images: Images, name: str) -> Rows:
    """Positions of rows among the images, without those of bad files."""
    if rows is None:
        return np.arange(len(images))
    rows = _validate_rows(rows, int(images.rows[-1]) + 1, name)
    return np.searchsorted(images.rows, rows[np.isin(rows, images.rows)])


def _validate_rows(rows: Rows, count: int, name: str) -> Rows:
    rows = np.asarray(rows)
    if rows.dtype.kind not in "iu" or rows.ndim != 1 or not len(rows):
        raise ValueError(
            f"`{name}` of Protocol must be a non-empty list of rows. "
            f"Received: {name}.shape={rows.shape}, {name}.dtype="
            f"{rows.dtype}. For a mask, use `np.flatnonzero(mask)`."
        )
    if rows.min() < 0 or rows.max() >= count:
        raise ValueError(
            f"`{name}` of Protocol must be rows of the {count} embeddings. "
            f"Received: rows from {rows.min()} to {rows.max()}."
        )
    if len(np.unique(rows)) < len(rows):
        raise ValueError(
            f"`{name}` of Protocol must not repeat a row. Received: "
            f"{len(rows)} rows, {len(np.unique(rows))} of them different."
        )
    return rows.astype(np.int64, copy=False)


Protocols = str | Protocol | Sequence[Protocol] | None


def plan_searches(
    inputs: Inputs, protocol: Protocols, owner: str
) -> list[tuple[Images, Images]]:
    """Queries and gallery for each draw of the protocol."""
    images, *galleries = inputs
    if galleries:
        if protocol is not None:
            raise ValueError(
                f"`protocol` of {owner} must be omitted if there is a "
                "gallery, because it selects the gallery itself. Received: "
                f"protocol={protocol!r} and a gallery. Omit one of them."
            )
        return [(images, galleries[0])]
    draws: Sequence[Protocol]
    if protocol in (None, "all_vs_all"):
        draws = [Protocol()]
    elif isinstance(protocol, Protocol):
        draws = [protocol]
    elif protocol == "official":
        # With several levels, the first decides what a class is.
        classes = next(iter(images.targets.values()))
        if isinstance(classes, LabelSets):
            raise ValueError(
                f"`protocol` of {owner} must not be 'official' if examples "
                "have several labels, because it takes one example per class. "
                f"Received: protocol={protocol!r}. Use a `Protocol`."
            )
        draws = one_per_class(classes)
    elif isinstance(protocol, str) or not protocol:
        raise ValueError(
            f"`protocol` of {owner} must be one of {PROTOCOLS}, a `Protocol` "
            f"or a sequence of them. Received: protocol={protocol!r}."
        )
    else:
        draws = protocol
    return [draw.of(images) for draw in draws]
