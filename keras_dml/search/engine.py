"""Engine: a faiss index whose vectors are found by the ids of rows."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.ranks import exact
from keras_dml.search import scans
from keras_dml.search.filters import Mask
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.progress import waiting
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import (
    Embeddings,
    UnitEmbeddings,
    blocks,
    row_norms,
)

logger = logging.getLogger(__name__)

MetricName = Literal["cosine", "dot", "euclidean"]

COSINE: MetricName = "cosine"

EXACT = "Flat"

NO_ID = -1
"""The id where there is no hit."""

MEASURED_NEIGHBORS = 20
"""Number of neighbors up to which the recall measured for 10 holds.
For more, lists or candidates grow with the square root of their number."""

EFFORT_BESIDE_REMOVED = 2
"""Multiple of lists or candidates for queries that met many removed rows, whose
hits are farther and in more lists."""

MAX_HIDDEN_SHARE = 0.5
"""Share of hidden vectors above which an index is rebuilt. Until then, searches
pass through them to reach the others, which keeps recall up."""

BLOCK_SCORES = 2**22
"""Scores that a search of a graph or of lists returns at a time."""

_BUFFER_BYTES = 2**20

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)

_CODES = r"(Flat|SQ[468]|SQfp16|SQbf16|PQ\d+(x\d+)?(np)?|RaBitQ)"

FACTORIES = re.compile(
    r"(PCA\d+,)?"
    rf"((IVF\d+(_HNSW\d+)?,)?{_CODES}|HNSW\d+([,_](Flat|SQ[468]))?)"
    r"(,RFlat)?"
)
"""Factory strings of faiss that an index is built, saved and loaded with."""

_PARAMETERS = re.compile(r"(\w+=\d{1,7}(\.\d+)?(,|$))*")


@dataclass(frozen=True)
class Similarity:
    """How two embeddings are compared; "cosine" scales them to unit length.

    Inner scores, x·y or −|x − y|², are those of faiss; users get outer scores,
    x·y or −|x − y|. Either way, higher is nearer.
    """

    name: MetricName = COSINE

    def __post_init__(self) -> None:
        check_choice("Index", "metric", self.name, get_args(MetricName))

    @property
    def is_distance(self) -> bool:
        return self.name == "euclidean"

    def embeddings(
        self, x: Any, dim: int | None, name: str, owner: str
    ) -> Embeddings:
        """A user's embeddings, validated, as they are stored and compared."""
        kind = UnitEmbeddings if self.name == COSINE else Embeddings
        return kind(x, dim, name, owner)

    def inner(self, scores: Any) -> Any:
        """Converts faiss's scores to inner scores, or vice versa."""
        return -scores if self.is_distance else scores

    def outer(self, scores: FloatArray) -> FloatArray:
        """Outer scores, float32."""
        if self.is_distance:
            # The squared distance of a compressed vector may be negative.
            scores = -np.sqrt(np.maximum(-scores, 0))
        return scores.astype(np.float32)

    def bound(self, threshold: float) -> float:
        """The inner score of an outer threshold."""
        if not self.is_distance:
            return threshold
        return -(threshold**2) if threshold < 0 else 0.0

    def exact(
        self, queries: FloatArray, vectors: FloatArray, labels: Rows
    ) -> FloatArray:
        """Inner scores, (Q, m) float64, of queries, (Q, D), with vectors.

        `labels`, (Q, m), are the rows of the vectors, (N, D), of each query. A
        score depends only on its two vectors.
        """
        compare = _negative_squares if self.is_distance else exact.products
        return exact.score_pairs(compare, queries, vectors, labels)

    def pairs(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Outer scores of pairs, (N, D) each, in float32."""
        if not self.is_distance:
            return np.einsum("nd,nd->n", x, y)
        gap = x - y
        return self.outer(-np.einsum("nd,nd->n", gap, gap))

    def are_copies(
        self, queries: FloatArray, scores: FloatArray
    ) -> NDArray[np.bool_]:
        """Whether hits are copies of their query, (Q, k), by outer scores.

        Copies embedded in other batches may be rounded differently.
        """
        if self.is_distance:
            gap, allowed = -scores, 1e-5 * row_norms(queries)
        else:
            norms = row_norms(queries)
            best = norms**0 if self.name == COSINE else norms**2
            gap, allowed = np.abs(scores - best[:, None]), 1e-6 * best
        return np.asarray(gap <= allowed[:, None])


@dataclass(frozen=True)
class IndexSpec:
    """Similarity, factory string and parameters of an index; see `Index`."""

    metric: Similarity
    factory: str = EXACT
    parameters: str | None = None


class Engine:
    """A faiss index and the ids of its vectors.

    Exact and flat kinds remove vectors. Graphs and lists hide them, and are
    rebuilt without them when they hide more than half. `ids`, (N,), ascend;
    no search returns those that are `hidden`, (n,).
    """

    def __init__(
        self, index: Any, spec: IndexSpec, ids: Rows, hidden: Rows | None = None
    ) -> None:
        self.parameters = set_parameters(index, spec)
        self.metric, self.factory = spec.metric, spec.factory
        self.is_exact = spec.factory == EXACT
        self._use(index)
        self.ids = ids
        self._is_hidden: Mask = np.isin(ids, [] if hidden is None else hidden)

    def _use(self, index: Any) -> None:
        import faiss

        self.index = index
        inner = innermost(index)
        # Graphs link vectors to each other.
        self.is_graph = isinstance(inner, faiss.IndexHNSW)
        self._lists = inner if isinstance(inner, faiss.IndexIVF) else None
        # Inverted files keep ids themselves; others number their vectors.
        self._has_ids = self._lists is not None and not isinstance(
            faiss.downcast_index(index), faiss.IndexRefine
        )
        # Norm of the longest vector, or more; None if it is not known.
        self._longest: float | None = None

    def __len__(self) -> int:
        return len(self.ids) - int(self._is_hidden.sum())

    @classmethod
    def train(cls, x: Embeddings, spec: IndexSpec) -> "Engine":
        """An engine without vectors, trained for vectors like `x`, (N, D)."""
        index = make_index(x.shape[1], spec)
        if not index.is_trained:
            try:
                with waiting(f"Train {spec.factory} on {len(x):,} vectors"):
                    index.train(x.array)
            except RuntimeError as error:
                raise ValueError(
                    "`factory` of an Index must fit the gallery. Received: "
                    f"{spec.factory!r} for {len(x)} vectors, which faiss "
                    f"refuses: {error}. Use {EXACT!r}, or smaller numbers."
                ) from None
        return cls(index, spec, np.empty(0, np.int64))

    @property
    def dim(self) -> int:
        return int(self.index.d)

    @property
    def hidden(self) -> Rows:
        """Ids of the hidden vectors, ascending, (n,)."""
        return self.ids[self._is_hidden]

    @property
    def vectors(self) -> FloatArray:
        """The vectors of an exact index, (N, D), where faiss has them."""
        import faiss

        if not self.is_exact:
            raise ValueError(
                f"`factory` of an Index must be {EXACT!r} to read its "
                f"embeddings. Received: factory={self.factory!r}, which does "
                "not keep them unchanged."
            )
        shape = self.index.ntotal, self.dim
        start = self.index.get_xb()
        flat: FloatArray = faiss.rev_swig_ptr(start, shape[0] * shape[1])
        return flat.reshape(shape)

    def stored_ids(self) -> Rows | None:
        """The ids that lists keep, in their order; None without lists."""
        import faiss

        if self._lists is None:
            return None
        lists = self._lists.invlists
        parts = [
            faiss.rev_swig_ptr(lists.get_ids(i), lists.list_size(i))
            for i in range(lists.nlist)
            if lists.list_size(i)
        ]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def fetch(self, ids: Rows) -> FloatArray:
        """Vectors with some ids as they are stored, (n, D), or ValueError."""
        import faiss

        if self.is_exact:
            return self.vectors[self._labels(ids)]
        maps = faiss.DirectMap
        try:
            if self._lists is not None:
                # Lists need a map to find the vector of an id.
                self._lists.set_direct_map_type(maps.Hashtable)
            x: FloatArray = self.index.reconstruct_batch(self._labels(ids))
        except RuntimeError as error:
            raise ValueError(
                "`factory` of an Index must be of a kind that gives its "
                f"vectors back. Received: {self.factory!r}: {error}."
            ) from None
        finally:
            if self._lists is not None:
                self._lists.set_direct_map_type(maps.NoMap)
        return x

    def add(self, x: Embeddings | FloatArray, ids: Rows) -> None:
        """Adds vectors, (N, D), under ids greater than before, or raises."""
        index, self._longest = self.index, None
        try:
            if (
                isinstance(x, Embeddings)
                and self.is_exact
                and not len(self.ids)
            ):
                # Vectors go straight to faiss: a copy would double the time.
                index.codes.resize(4 * len(x) * self.dim)
                index.ntotal = len(x)
                x.write(self.vectors)
            else:
                array = x.array if isinstance(x, Embeddings) else x
                if self._has_ids:
                    index.add_with_ids(array, ids)
                else:
                    index.add(array)
        except ValueError:
            if not len(self.ids):
                index.reset()
            raise
        except RuntimeError as error:
            raise ValueError(
                "`factory` of an Index must support adding rows. Received: an "
                f"index that faiss refuses to change: {error}. Build it again, "
                "with all rows or with another factory."
            ) from None
        self.ids = np.concatenate([self.ids, ids])
        self._is_hidden = np.append(self._is_hidden, np.zeros(len(ids), bool))

    def sort(self) -> None:
        """Sorts a graph's vectors by id, in as much memory as they take."""
        order = np.argsort(self.ids)
        self.ids, self._is_hidden = self.ids[order], self._is_hidden[order]
        _permute(self.index, order)

    def reserve(self, count: int) -> None:
        """Reserves memory for a number of vectors in an exact index."""
        if self.is_exact and not len(self.ids):
            # faiss keeps the memory, so vectors need not move as it grows.
            self.index.codes.resize(4 * count * self.dim)
            self.index.codes.resize(0)

    def remove(self, ids: Rows) -> None:
        self._is_hidden |= np.isin(self.ids, ids)
        is_flat = self._lists is None and self._can_remove()
        if is_flat or len(self.hidden) > MAX_HIDDEN_SHARE * len(self.ids):
            self._drop_hidden(is_flat)

    def _can_remove(self) -> bool:
        try:
            self.index.remove_ids(np.empty(0, np.int64))
            return True
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
        return False

    def _drop_hidden(self, is_flat: bool) -> None:
        """Removes hidden vectors; graphs of codes keep them."""
        import faiss

        ids = self.ids[~self._is_hidden]
        none = np.empty((0, self.dim), np.float32)
        part, _ = scans.vectors_of(self.index, none)
        is_whole = isinstance(part, faiss.IndexFlat | faiss.IndexIVFFlat)
        if not is_flat and is_whole:
            spec = IndexSpec(self.metric, self.factory, self.parameters)
            x = Embeddings(self.fetch(ids), self.dim, "embeddings", "Index")
            try:
                engine = Engine.train(x, spec)
            except ValueError:  # Too few rows remain for as many lists.
                return
            engine.add(x, ids)
            logger.info(
                "%s was built anew from %s rows, without %s that were removed.",
                self.factory,
                f"{len(ids):,}",
                f"{len(self.ids) - len(ids):,}",
            )
            self._use(engine.index)
        elif self._can_remove():
            labels = self._labels(self.hidden)
            self.index.remove_ids(faiss.IDSelectorBatch(labels))
        else:
            return
        self.ids, self._is_hidden = ids, np.zeros(len(ids), bool)

    def write(self, path: Path) -> None:
        import faiss

        # When faiss opens the file, a full disk can go unnoticed, and lists of
        # an IVF index take three times as long.
        with path.open("wb", _BUFFER_BYTES) as file:
            writer = faiss.PyCallbackIOWriter(file.write, _BUFFER_BYTES)
            faiss.write_index(self.index, writer)

    def search(
        self, queries: FloatArray, k: int, among: Rows | None = None
    ) -> tuple[FloatArray, Rows]:
        """The k nearest vectors of each query: scores, (Q, k) float32, and ids.

        Equal scores come in the order of the ids. Scores of exact indexes are
        compared in float64, so they do not depend on the number of queries.
        Where there are fewer than k, scores are -inf and ids -1. With ids in
        `among`, which ascend and are not hidden, all of these are compared,
        whatever the kind of index.
        """
        limit = len(self) if among is None else len(among)
        num_hits = min(k, limit)
        shape = len(queries), k
        outer, ids = np.full(shape, -np.inf, np.float32), np.full(shape, NO_ID)
        if not (num_hits and len(queries)):
            return outer, ids
        scans.share_threads(self._lists, len(queries))
        labels = None if among is None else self._labels(among)
        metric = self.metric

        def candidates(
            rows: Rows | slice, count: int
        ) -> tuple[FloatArray, Rows]:
            scores, hits = (
                self._search_by_kind(queries[rows], count)
                if labels is None
                else scans.nearest(self.index, queries[rows], count, labels)
            )
            return metric.inner(scores), hits

        if self.is_exact:
            vectors = self.vectors
            scores, hits = exact.nearest(
                candidates,
                lambda rows, hits: metric.exact(queries[rows], vectors, hits),
                self._tolerance(queries),
                k,
                limit,
            )
            hit_ids = self.ids[hits]
        else:
            scores, hits = candidates(slice(None), num_hits)
            hit_ids = hits if self._has_ids else self.ids[hits]
            if hits.min() < 0:
                scores = np.where(hits < 0, np.float32(-np.inf), scores)
                hit_ids = np.where(hits < 0, NO_ID, hit_ids)
            scores, hit_ids = exact.sort_by_score(scores, hit_ids)
        outer[:, :num_hits], ids[:, :num_hits] = metric.outer(scores), hit_ids
        return outer, ids

    def range_search(
        self, queries: FloatArray, threshold: float, among: Rows | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All vectors whose scores reach a threshold, whatever the kind.

        Returns queries, scores and ids, (n,) each, ordered by query and then as
        by `search`, whose arguments these are.
        """
        if not len(queries):
            none = np.empty(0, np.int64)
            return none, none.astype(np.float32), none
        metric = self.metric
        bound = metric.bound(threshold)
        # Scores slightly below it may reach it when rounded to float32.
        bound -= 2.0**-22 * abs(bound) + float(np.finfo(np.float32).tiny)
        if self.is_exact:
            bound -= self._tolerance(queries).max()
        if among is None and self._is_hidden.any():
            among = self.ids[~self._is_hidden]
        labels = None if among is None else self._labels(among)
        scans.share_threads(self._lists, len(queries))
        which, inner, hits = scans.range_search(
            self.index, queries, metric.inner(bound), labels
        )
        scores = metric.inner(inner)
        if self.is_exact:
            vectors, scores = self.vectors, np.empty(len(which))
            for block in blocks(len(which), 2**16):
                scores[block] = metric.exact(
                    queries[which[block]], vectors, hits[block, None]
                )[:, 0]
        ids = hits if self._has_ids else self.ids[hits]
        outer = metric.outer(scores)
        order = np.lexsort((ids, -scores, which))
        order = order[outer[order].astype(np.float64) >= threshold]
        return which[order], outer[order], ids[order]

    def _labels(self, ids: Rows) -> Rows:
        """faiss's labels of the vectors with these ids."""
        is_same = len(self.ids) and self.ids[-1] == len(self.ids) - 1
        if self._has_ids or is_same:
            return ids
        return np.searchsorted(self.ids, ids)

    def _tolerance(self, queries: FloatArray) -> FloatArray:
        """Bound on the error of faiss's inner scores of an exact index, (Q,).

        It is doubled, because vectors are rounded.
        """
        if self.metric.name == COSINE:  # Factors have norm 1.
            return np.full(len(queries), exact.product_error(2 * self.dim))
        if self._longest is None:
            self._longest = float(row_norms(self.vectors).max(initial=0))
        norms = row_norms(queries)
        sizes = norms * self._longest
        if self.metric.is_distance:
            # For many queries, faiss computes |x|² + |y|² − 2x·y.
            sizes = (norms + self._longest) ** 2
        underflow = 4 * (self.dim + 2) * _SMALLEST_NORMAL
        return exact.product_error(2 * self.dim + 8) * sizes + underflow

    def _search_by_kind(
        self, queries: FloatArray, k: int
    ) -> tuple[FloatArray, Rows]:
        """The k nearest that an index of any kind finds, as faiss returns.

        A query that meets hidden vectors, or whose lists hold fewer than k,
        searches for at least twice as many until k remain; finally, all vectors
        are compared.
        """
        if self._is_hidden.any():
            shape = len(queries), k
            scores, labels = np.empty(shape, np.float32), np.full(shape, NO_ID)
            rows = np.arange(len(queries))
        else:
            scores, labels = self._find(queries, k)
            rows = np.flatnonzero(labels[:, -1] == NO_ID)
            if not len(rows):
                return scores, labels
        visible = self._labels(self.ids[~self._is_hidden])
        # Index −1, the last, stands for no hit.
        is_visible = np.zeros(int(self._labels(self.ids[-1:])[0]) + 2, bool)
        is_visible[visible] = True
        width, effort = 2 * k, 1
        while len(rows) and width <= len(self.ids):
            short, max_out = [], 0
            for part in blocks(len(rows), max(1, BLOCK_SCORES // width)):
                its = rows[part]
                near, hits = self._find(queries[its], width, effort)
                is_out = ~is_visible[hits]
                order = np.argsort(is_out, axis=1, kind="stable")[:, :k]
                scores[its] = np.take_along_axis(near, order, axis=1)
                labels[its] = np.take_along_axis(hits, order, axis=1)
                num_out = is_out.sum(axis=1)
                short.append(its[width - num_out < k])
                max_out = max(max_out, int(num_out.max()))
            rows, width = np.concatenate(short), max(2 * width, k + max_out)
            effort = EFFORT_BESIDE_REMOVED
        if len(rows):
            scores[rows], labels[rows] = scans.nearest(
                self.index, queries[rows], k, visible
            )
        return scores, labels

    def _find(
        self, queries: FloatArray, k: int, effort: float = 1.0
    ) -> tuple[FloatArray, Rows]:
        """Scores and labels of k vectors, hidden or not, (Q, k)."""
        parameters = None
        if k > MEASURED_NEIGHBORS or effort > 1:
            effort *= max(1, k / MEASURED_NEIGHBORS) ** 0.5
            parameters = scans.search_parameters(self.index, k, effort)
        return scans.run_search(self.index, queries, k, parameters)


def _negative_squares(x: FloatArray, y: FloatArray) -> FloatArray:
    """−|x − y|² along the last axis, in float64."""
    difference = np.subtract(x, y, dtype=np.float64)
    result: FloatArray = -np.square(difference, out=difference).sum(axis=-1)
    return result


def make_index(dim: int, spec: IndexSpec) -> Any:
    import faiss

    factory = spec.factory
    try:
        if not FACTORIES.fullmatch(factory):
            raise TypeError("it is not of a kind that an Index supports")
        metric = faiss.METRIC_INNER_PRODUCT
        if spec.metric.is_distance:
            metric = faiss.METRIC_L2
        return faiss.index_factory(dim, factory, metric)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            "`factory` of an Index must be a factory string of faiss: Flat, "
            "HNSW, or SQ, PQ and RaBitQ codes, with or without IVF before and "
            f"RFlat behind. Received: factory={factory!r} for {dim} "
            f"dimensions, which is refused: {error}. Use for instance 'Flat', "
            "'HNSW32' or 'IVF256,PQ16'; the number after PQ must divide the "
            "number of dimensions."
        ) from None


def set_parameters(index: Any, spec: IndexSpec) -> str:
    """Sets how thoroughly an index searches, see `Index`; returns the text."""
    import faiss

    text = spec.parameters
    if text is None:
        inner, settings = innermost(index), []
        if isinstance(inner, faiss.IndexIVF):
            settings.append(f"nprobe={max(1, round(inner.nlist**0.5))}")
        if isinstance(inner, faiss.IndexHNSW):
            settings.append("efSearch=64")
        if isinstance(faiss.downcast_index(index), faiss.IndexRefine):
            settings.append("k_factor_rf=4")
        text = ",".join(settings)
    try:
        if not _PARAMETERS.fullmatch(str(text)):
            raise ValueError("not of the form 'name=number,name=number'")
        if text:
            space = faiss.ParameterSpace()
            space.set_index_parameters(index, str(text))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            "`parameters` of an Index must be those of its kind of index. "
            f"Received: parameters={text!r}, which is refused: {error}. Use "
            "for instance 'nprobe=32' for IVF, 'efSearch=64' for HNSW, and no "
            "parameters for Flat."
        ) from None
    return text


def _permute(index: Any, order: Rows) -> None:
    """Renumbers the vectors of a graph and of the indexes around it."""
    import faiss

    index = faiss.downcast_index(index)
    if hasattr(index, "permute_entries"):
        index.permute_entries(order)
    for name in ("index", "base_index", "refine_index"):
        if hasattr(index, name):
            _permute(getattr(index, name), order)


def innermost(index: Any) -> Any:
    """The innermost faiss index, inside any transform or refining one."""
    import faiss

    index = faiss.downcast_index(index)
    for name in ("index", "base_index"):
        if hasattr(index, name):
            return innermost(getattr(index, name))
    return index
