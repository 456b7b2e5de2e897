"""HardClassBalanced: batches of classes that are easily confused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le

from keras_dml.data.samplers.class_balanced import ClassBalanced
from keras_dml.utils.provenance import usable_cores
from keras_dml.utils.types import Count, FloatArray, Rows
from keras_dml.utils.vectors import blocks

_MAX_SORTED_CLASSES = 4096
"""Largest number of classes for which all cosines are sorted."""


class HardClassBalanced(ClassBalanced):
    """Batches of P classes with K images each, with nearby classes together.

    A batch is filled by repeatedly drawing a random class and the
    `num_neighbors` classes nearest to it. The callback `callbacks.HardClasses`
    determines which classes are nearest.

    All guarantees of `ClassBalanced` hold: P different classes per batch, all
    classes equally often to within one draw, in every epoch and over all
    epochs, and the same plan for the same seed, epoch and neighbors.
    Therefore, a class is joined only by those of its neighbors that are still
    due in the epoch, and the last batches that are filled are less hard; the
    batches are assigned to steps at random.

    Args:
        labels: Class of every image, see `ClassBalanced`.
        classes_per_batch: Number of classes per batch, P.
        images_per_class: Number of images per class in a batch, K.
        num_neighbors: Number of nearest classes drawn with each random class;
            0 is equivalent to `ClassBalanced`.
        **kwargs: See `ClassBalanced`.

    Attributes:
        neighbors: (C, n): the classes nearest to each, in order; None if not
            set. Classes are numbered in ascending order of their labels,
            without those that have too few images to be drawn.

    Raises:
        ValueError: If an argument is not as described.

    Also known as:
        None of the compared libraries has an equivalent.

    Deviations:
        - Sohn picks the classes of a batch greedily by how much they violate
          the triplet constraint with the classes picked before; Suh et al.
          draw one class and its nearest classes. Neither keeps classes
          balanced; here every class is still drawn equally often.

    Reference:
        Suh et al., "Stochastic Class-based Hard Example Mining for Deep
        Metric Learning", CVPR 2019, Sec. 3; Sohn, "Improved Deep Metric
        Learning with Multi-class N-pair Loss Objective", NIPS 2016,
        Sec. 3.2 (hard negative class mining).
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        classes_per_batch: Count | None = None,
        images_per_class: Count = 4,
        num_neighbors: Annotated[int, Ge(0), Le(2**31 - 1)] = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(labels, classes_per_batch, images_per_class, **kwargs)
        self.num_neighbors = num_neighbors
        self.neighbors: Rows | None = None
        self._is_set = False

    def set_neighbors(self, neighbors: npt.ArrayLike | None) -> None:
        """Sets which classes are near, starting with the next plan.

        Args:
            neighbors: See the attribute. None draws as `ClassBalanced` does.

        Raises:
            ValueError: If they are not as described.
        """
        self._is_set = True
        if neighbors is None:
            self.neighbors = None
            return
        array = np.array(neighbors)
        count = len(self._groups)
        fits = array.ndim == 2 and len(array) == count
        if not fits or array.dtype.kind not in "iu":
            raise ValueError(
                "`neighbors` of HardClassBalanced must hold integers, one row "
                f"for each of the {count} classes. Received: shape "
                f"{array.shape}, dtype {array.dtype}."
            )
        if array.size and (array.min() < 0 or array.max() >= count):
            raise ValueError(
                "`neighbors` of HardClassBalanced must be numbers of classes, "
                f"0 to {count - 1}. Received: {array.min()} to {array.max()}."
            )
        array.setflags(write=False)
        self.neighbors = array

    def set_embeddings(self, embeddings: FloatArray, spare: int = 32) -> None:
        """Finds the classes whose mean embeddings have the largest cosine.

        Args:
            embeddings: (N, D), of all images in the order of their rows.
            spare: Number of neighbors per class to keep beyond
                `num_neighbors`, for use when the nearest have already been
                drawn.

        Raises:
            ValueError: If their number differs from that of the images, or
                some are not finite.
        """
        if len(embeddings) != len(self.labels):
            raise ValueError(
                "`embeddings` of HardClassBalanced must have one row per "
                f"image. Received: {len(embeddings)} rows, "
                f"{len(self.labels)} images."
            )
        means = class_means(embeddings, self._groups.rows, self._groups.starts)
        self.set_neighbors(nearest_classes(means, self.num_neighbors + spare))

    def get_state(self) -> dict[str, Any]:
        state = {**super().get_state(), "is_set": self._is_set}
        return {**state, "neighbors": self.neighbors}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if state["is_set"]:
            self.set_neighbors(state["neighbors"])

    def plan(self, epoch: int) -> Rows:
        """Rows of every batch, class by class, (steps, batch_size)."""
        if not self._is_set:
            raise ValueError(
                "HardClassBalanced.plan requires the nearest classes of each "
                "class. Received: no neighbors. Add the callback "
                "HardClasses(images, sampler) to `fit`, which sets them, or "
                "call set_neighbors."
            )
        return super().plan(epoch)

    def _deal(self, counts: Rows, rng: np.random.Generator) -> Rows:
        neighbors = self.neighbors
        if neighbors is None or self.num_neighbors == 0:
            return super()._deal(counts, rng)
        draws_left = counts.copy()
        size = int(counts.sum()) // self.steps
        batches = []
        for remaining in range(self.steps, 0, -1):
            # Classes that remain due in every step are part of this one.
            due = np.flatnonzero(draws_left == remaining)
            batch = self._batch(neighbors, due, draws_left, size, rng)
            draws_left[batch] -= 1
            batches.append(rng.permutation(batch))
        return np.stack(batches)[rng.permutation(self.steps)]

    def _batch(
        self,
        neighbors: Rows,
        due: Rows,
        draws_left: Rows,
        size: int,
        rng: np.random.Generator,
    ) -> Rows:
        """`size` classes: random ones that are due, and their neighbors."""
        chosen = dict.fromkeys(due.tolist())
        # The neighbors of classes that are due come first.
        order = rng.permutation(len(draws_left))
        for first in chain([*chosen], map(int, order[draws_left[order] > 0])):
            if len(chosen) >= size:
                break
            chosen.setdefault(first)
            near = [
                c
                for c in neighbors[first].tolist()
                if draws_left[c] > 0 and c not in chosen
            ]
            chosen.update(dict.fromkeys(near[: self.num_neighbors]))
        return np.array(list(chosen)[:size], np.int64)


def class_means(embeddings: FloatArray, rows: Rows, starts: Rows) -> FloatArray:
    """Unit mean embedding of each class, (C, D) float64."""
    points = np.asarray(embeddings)[rows]
    if not np.isfinite(points).all():
        raise ValueError(
            "`embeddings` of HardClassBalanced must be finite. Received: NaN "
            "or infinite values. The model has diverged, or its input is not "
            "finite."
        )
    means = np.add.reduceat(points, starts, axis=0, dtype=np.float64)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    return np.asarray(means / np.where(norms == 0, 1.0, norms))


def nearest_classes(means: FloatArray, count: int) -> Rows:
    """(C, min(count, C − 1)): other classes by cosine, nearest first.

    The result is exact and computed in blocks; ties keep their order. All
    cosines are sorted only for few classes, and where float32 cannot tell which
    are the nearest.
    """
    total = len(means)
    count = min(count, total - 1)
    if total <= _MAX_SORTED_CLASSES:
        x, rest, inverse = means, np.arange(total), np.arange(total)
        nearest = np.empty((total, count), np.int64)
    else:
        nearest, rest = _nearest_by_float32(means, count)
        # Equal rows have the same neighbors, apart from themselves.
        x, inverse = np.unique(means[rest], axis=0, return_inverse=True)
        inverse = inverse.ravel()
    for rows in blocks(len(x), max(1, 2**24 // total)):
        order = np.argsort(-(x[rows] @ means.T), axis=1, kind="stable")
        its = np.flatnonzero(np.isin(inverse, np.arange(len(x))[rows]))
        near = order[inverse[its] - rows.start, : count + 1]
        left_out = near == rest[its, None]
        left_out[:, -1] |= ~left_out.any(axis=1)
        nearest[rest[its]] = near[~left_out].reshape(-1, count)
    return nearest


@contextmanager
def _cache_sized_blocks() -> Iterator[None]:
    """Lets faiss multiply blocks of queries whose scores fit into a cache."""
    from faiss import cvar

    default = cvar.distance_compute_blas_query_bs
    cvar.distance_compute_blas_query_bs = 1024
    try:
        yield
    finally:
        cvar.distance_compute_blas_query_bs = default


def _nearest_by_float32(means: FloatArray, count: int) -> tuple[Rows, Rows]:
    """The nearest classes, and the rows where rounding leaves them open."""
    import faiss
    from threadpoolctl import threadpool_limits

    # x·y is (x − m)·(y − m) + m·(y − m), up to a term that depends on x alone.
    # So the common part of all rows does not cost digits.
    total, dim = means.shape
    width = min(count + 16, total)
    centered = means - (mean := means.mean(axis=0))
    offsets = centered @ mean
    queries = np.insert(centered, 0, 1, axis=1).astype(np.float32)
    keys = np.insert(centered, 0, offsets, axis=1).astype(np.float32)

    def search(rows: slice) -> Any:
        kind = faiss.METRIC_INNER_PRODUCT
        return faiss.knn(queries[rows], keys, width, kind)

    # Threads within a block would wait for each other on busy cores.
    pool = ThreadPoolExecutor(
        usable_cores(), initializer=lambda: faiss.omp_set_num_threads(1)
    )
    with threadpool_limits(1, "blas"), _cache_sized_blocks(), pool:
        parts = zip(*pool.map(search, blocks(total, 4096)), strict=True)
        scores, candidates = map(np.concatenate, parts)
    largest = np.square(centered).sum(axis=1).max() + np.abs(offsets).max()
    # No other class can be nearer than the last candidate and all rounding.
    limits = scores[:, -1] + means @ mean
    limits += (dim + 8) * (2.0**-23 * largest + 2.0**-52)
    candidates.sort(axis=1)
    nearest = np.empty((total, count), np.int64)
    is_open = np.full(total, width < total)
    for rows in blocks(total, 1 + 2**22 // (width * dim)):
        near = candidates[rows]
        exact = np.einsum("ij,ikj->ik", means[rows], means[near])
        exact[near == np.arange(total)[rows, None]] = -np.inf
        order = np.argsort(-exact, axis=1, kind="stable")[:, :count]
        nearest[rows] = np.take_along_axis(near, order, axis=1)
        farthest = np.take_along_axis(exact, order[:, -1:], axis=1)[:, 0]
        is_open[rows] &= farthest <= limits[rows]
    return nearest, np.flatnonzero(is_open)
