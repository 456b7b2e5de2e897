"""Projections that need no training: principal components and whitening.

Each is one matrix and an offset: the start of a linear layer, or a head of its
own.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from keras_dml.utils.types import FloatArray, Labels, Rows

Kind: TypeAlias = Literal["pca", "whitening"]

SHRINKAGES = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Candidates for whitening: multiples of the mean variance within classes."""

MAX_ROWS = 10_000
"""Examples from which a projection is computed: more change it little."""

NUM_FOLDS = 3
"""Number of parts of the classes; each is held out once to choose by."""

_recent: dict[bytes, "Projection"] = {}
"""The last projection: a run needs it twice, to start and to compare with."""

_MAX_WIDTH = 512
_MAX_RANKED_ROWS = 1500
_MAX_PER_CLASS = 50


@dataclass(frozen=True)
class Projection:
    """A linear map, x → (x − center) · kernel.

    Attributes:
        kernel: (C, D) float64. Columns behind `rank` are zero.
        center: (C,) float64; zeros for a map without offset.
        rank: Number of directions in which the examples vary, at most D.
        name: How it was made, for people to read.
    """

    kernel: FloatArray
    center: FloatArray
    rank: int
    name: str

    def __call__(self, x: FloatArray) -> FloatArray:
        projected: FloatArray = (x - self.center) @ self.kernel
        return projected


@dataclass(frozen=True)
class _Candidate:
    kind: Kind
    centered: bool
    shrinkage: float = 0.0

    def __str__(self) -> str:
        if self.kind == "whitening":
            return f"whitening with a shrinkage of {self.shrinkage:g}"
        return "PCA" if self.centered else "PCA without centering"


def fit_projection(
    features: FloatArray,
    labels: Labels | None,
    dim: int,
    kinds: Sequence[Kind] = ("pca", "whitening"),
    has_bias: bool = True,
) -> Projection:
    r"""The projection under which unseen classes are retrieved best.

    Candidates are principal components, with the mean subtracted or not, and
    within-class whitening with several shrinkages λ, followed by principal
    components:

    $$
    W = E (\Lambda + \lambda \bar{\Lambda} I)^{-1/2} V_D ,
    $$

    where $S_w = E \Lambda E^T$ is the covariance within classes,
    $\bar{\Lambda}$ its mean eigenvalue, and $V_D$ are the first D principal
    components of all examples after the scaling. The candidate with the
    largest MAP@R, averaged over folds of the classes that were held out, is
    computed again from all examples.

    More than 512 channels, or D if that is larger, are first reduced to that
    many principal components.

    Args:
        features: (N, C). Rows with a number that is not finite are not used.
        labels: The class of each example, (N,). With several labels per
            example, or None, there is no choice: PCA with the mean subtracted.
        dim: Number of dimensions, D.
        kinds: What to choose among.
        has_bias: Whether an offset is possible. Otherwise no mean is
            subtracted.

    Returns:
        The projection. With fewer than D directions in which the examples
        vary, its rank is less than D.

    Deviations:
        - The papers invert $S_w$ as it is, λ = 0.
        - Mikolajczyk and Matas have covariances of matching pairs; those of
          all pairs of a class would give $S_w$ with larger weights of large
          classes.

    Reference:
        Bar-Hillel et al., "Learning Distance Functions using Equivalence
        Relations", ICML 2003 (RCA); Mikolajczyk and Matas, "Improving
        Descriptors for Fast Tree Matching by Optimal Linear Projection", ICCV
        2007; Radenović et al., "Fine-tuning CNN Image Retrieval with No Human
        Annotation", TPAMI 2018, Sec. 3.4.
    """
    arguments = (dim, *kinds, has_bias)
    key = _digest(arguments, features, labels)
    if key not in _recent:
        _recent.clear()
        _recent[key] = _fit(features, labels, dim, kinds, has_bias)
    return _recent[key]


def _fit(
    features: FloatArray,
    labels: Labels | None,
    dim: int,
    kinds: Sequence[Kind],
    has_bias: bool,
) -> Projection:
    features = np.asarray(features, np.float64)
    is_finite = np.isfinite(features).all(axis=1)
    features = features[is_finite]
    if labels is not None:
        labels = np.asarray(labels)[is_finite]
        labels = None if labels.ndim > 1 else labels
    basis = _basis(features, max(dim, _MAX_WIDTH))
    moments = _Moments(features @ basis, labels)
    candidates = list(_candidates(kinds, has_bias, labels is not None))
    best = _best(moments, candidates, dim)
    projection = moments.all().projection(best, dim)
    return replace(
        projection,
        kernel=basis @ projection.kernel,
        center=basis @ projection.center,
    )


def _digest(arguments: Any, *arrays: Any) -> bytes:
    """A digest of arguments and arrays, of which some may be None."""
    total = hashlib.sha256(repr(arguments).encode())
    for array in arrays:
        total.update(f"{getattr(array, 'shape', None)}".encode())
        if array is not None:
            total.update(np.ascontiguousarray(array).tobytes())
    return total.digest()


def _candidates(
    kinds: Sequence[Kind], has_bias: bool, has_classes: bool
) -> Iterator[_Candidate]:
    if "pca" in kinds or not has_classes:
        if has_bias:
            yield _Candidate("pca", centered=True)
        yield _Candidate("pca", centered=False)
    if "whitening" in kinds and has_classes:
        for shrinkage in SHRINKAGES:
            yield _Candidate("whitening", has_bias, shrinkage)


def _basis(x: FloatArray, width: int) -> FloatArray:
    """Orthonormal columns that span the mean and most of the variance."""
    count, channels = x.shape
    if channels <= width:
        return np.eye(channels)
    center = x.mean(axis=0) if count else np.zeros(channels)
    rest = x - center
    if count <= width:
        directions = np.linalg.svd(rest, full_matrices=False)[2].T
    else:
        directions = np.linalg.eigh(rest.T @ rest)[1][:, ::-1][:, :width]
    return np.linalg.qr(np.column_stack([directions, center]))[0]


@dataclass(frozen=True)
class _Sums:
    """Sums over examples from which every candidate is computed.

    Attributes:
        count: Number of examples.
        first: Their sum, (C,).
        second: Sum of their outer products, (C, C).
        within: The same of their differences from the class's mean.
    """

    count: int
    first: FloatArray
    second: FloatArray
    within: FloatArray

    def without(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.count - other.count,
            self.first - other.first,
            self.second - other.second,
            self.within - other.within,
        )

    @cached_property
    def _plain(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Variances of 1, the axes as they are, and second moments by these."""
        axes: FloatArray = np.eye(len(self.first))
        return np.ones(len(axes)), axes, self.second / max(self.count, 1)

    @cached_property
    def _within(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Variances within classes, their axes, and second moments by these."""
        count = max(self.count, 1)
        values, axes = np.linalg.eigh(self.within / count)
        return (
            np.maximum(values, 0),
            axes,
            axes.T @ (self.second / count) @ axes,
        )

    def projection(self, candidate: _Candidate, dim: int) -> Projection:
        is_pca = candidate.kind == "pca"
        variance, axes, total = self._plain if is_pca else self._within
        shrunk = variance + candidate.shrinkage * variance.mean()
        scale = 1 / np.sqrt(np.where(shrunk > 0, shrunk, 1))
        # Rounding errors of constant features are no direction.
        size = (np.diag(total) * scale**2).sum()
        center = self.first / max(self.count, 1) * candidate.centered
        mean = center @ axes
        total = (total - np.outer(mean, mean)) * scale * scale[:, None]
        values, vectors = np.linalg.eigh(total)
        largest = values[::-1][:dim]
        limit = size * len(values) * np.finfo(np.float64).eps
        rank = int((largest > limit).sum())
        kernel = np.zeros((len(center), dim))
        kernel[:, :rank] = (axes * scale) @ vectors[:, ::-1][:, :rank]
        return Projection(kernel, center, rank, str(candidate))


class _Moments:
    """Examples, and their sums over all classes and over folds of these."""

    def __init__(self, x: FloatArray, labels: Rows | None) -> None:
        self.x = x
        if labels is None:
            self.codes = np.zeros(len(x), np.int64)
        else:
            self.codes = np.unique(labels, return_inverse=True)[1]
        counts = np.bincount(self.codes)
        order = np.random.default_rng(0).permutation(len(counts))
        fold_of_class = np.empty(len(counts), np.int64)
        fold_of_class[order] = np.arange(len(counts)) % NUM_FOLDS
        self.folds = fold_of_class[self.codes]
        # A choice needs classes with matches in each fold.
        usable_classes = np.bincount(
            fold_of_class, weights=counts > 1, minlength=NUM_FOLDS
        )
        self.can_choose = bool(len(counts) and usable_classes.min() >= 2)
        means = np.zeros((len(counts), x.shape[1]))
        np.add.at(means, self.codes, x)
        means /= np.maximum(counts, 1)[:, None]
        self._rest = x - means[self.codes]

    def all(self) -> _Sums:
        return self._sums(slice(None))

    def fold(self, number: int) -> _Sums:
        return self._sums(self.folds == number)

    def _sums(self, rows: Any) -> _Sums:
        x, rest = self.x[rows], self._rest[rows]
        return _Sums(len(x), x.sum(axis=0), x.T @ x, rest.T @ rest)


def _best(
    moments: _Moments, candidates: list[_Candidate], dim: int
) -> _Candidate:
    """The candidate with the largest MAP@R on classes that are held out."""
    if len(candidates) == 1 or not moments.can_choose:
        # The shrinkage in the middle is right more often than others.
        return candidates[0 if candidates[0].kind == "pca" else 2]
    whole = moments.all()
    scores = np.zeros(len(candidates))
    for number in range(NUM_FOLDS):
        rest = whole.without(moments.fold(number))
        rows = _rows_to_rank(moments.codes, moments.folds == number)
        for i, candidate in enumerate(candidates):
            embeddings = rest.projection(candidate, dim)(moments.x[rows])
            scores[i] += map_at_r(embeddings, moments.codes[rows])
    return candidates[int(scores.argmax())]


def _rows_to_rank(codes: Rows, is_held_out: Any) -> Rows:
    """Rows of held-out classes to measure: whole classes, unless large."""
    rows = np.flatnonzero(is_held_out)
    place = np.empty(len(rows), np.int64)
    order = np.argsort(codes[rows], kind="stable")
    starts = np.unique(codes[rows][order], return_index=True)[1]
    lengths = np.diff(np.append(starts, len(rows)))
    place[order] = np.arange(len(rows)) - np.repeat(starts, lengths)
    rows = rows[place < _MAX_PER_CLASS]
    if len(rows) <= _MAX_RANKED_ROWS:
        return rows
    classes, counts = np.unique(codes[rows], return_counts=True)
    shuffled = np.random.default_rng(0).permutation(len(classes))
    fits = np.cumsum(counts[shuffled]) <= _MAX_RANKED_ROWS
    fits[0] = True
    return rows[np.isin(codes[rows], classes[shuffled[fits]])]


def map_at_r(embeddings: FloatArray, codes: Rows) -> float:
    """MAP@R by cosine similarity, of all examples against all others.

    As `evaluation.evaluate_embeddings`, for a few thousand examples; those
    without another of their class are no queries. 0 without queries.

    Args:
        embeddings: (N, D), of any length.
        codes: Classes, numbered from 0, (N,).
    """
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = (embeddings / np.maximum(lengths, 1e-12)).astype(np.float32)
    relevant = np.bincount(codes)[codes] - 1
    if not len(codes) or not relevant.any():
        return 0.0
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    max_r = relevant.max()
    nearest = np.argpartition(-similarity, max_r - 1, axis=1)[:, :max_r]
    scores = np.take_along_axis(similarity, nearest, axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    nearest = np.take_along_axis(nearest, order, axis=1)
    hits = codes[nearest] == codes[:, None]
    hits &= np.arange(max_r) < relevant[:, None]
    precision = np.cumsum(hits, axis=1) / np.arange(1, max_r + 1)
    queries = relevant > 0
    values = (precision * hits).sum(axis=1)[queries] / relevant[queries]
    return float(values.mean())
