"""Engine: a faiss index whose vectors go by the ids of rows."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np

from keras_dml.evaluation.ranks import exact
from keras_dml.search import approximate
from keras_dml.search.approximate import Approximate
from keras_dml.search.hits import NONE
from keras_dml.search.metrics import COSINE, Metric, library
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.progress import waiting
from keras_dml.utils.types import FloatArray, Precision, Rows
from keras_dml.utils.vectors import blocks, row_norms

EXACT = "Flat"

FLOAT32: Precision = "float32"

CANDIDATES: dict[Precision, int] = {"float16": 2, "int8": 2, "binary": 20}
"""How many times as many vectors are found by their codes as are returned: with
them, scores of whole vectors find .99 of the exact answer in 512 dimensions."""

_CANDIDATES = re.compile(r"(?:^|,)k_factor_rf=(\d+)(?=,|$)")

_BUFFER = 2**20

_PARAMETERS = re.compile(r"(\w+=\d{1,7}(\.\d+)?(,|$))*")


@dataclass(frozen=True)
class Form:
    """What an index compares by, and how it keeps vectors; see `Index`.

    Raises:
        ValueError: If there is no such precision, or not of this factory.
    """

    metric: Metric
    factory: str = EXACT
    parameters: str | None = None
    precision: Precision = FLOAT32

    def __post_init__(self) -> None:
        check_choice("Index", "precision", self.precision, get_args(Precision))

    @property
    def codes(self) -> str:
        """The factory string of what is searched."""
        factory = str(self.factory)
        code = {
            FLOAT32: "",
            "float16": "SQfp16",
            "int8": "SQ8",
            # faiss compares the codes of all vectors faster in blocks of 32,
            # and those of lists one by one.
            "binary": "RaBitQfs" if factory == EXACT else "RaBitQ",
        }[self.precision]
        if not code:
            return factory
        if re.fullmatch(r"(.*,)?Flat", factory):
            return factory.removesuffix(EXACT) + code
        if re.fullmatch(r"HNSW\d+", factory) and code.startswith("SQ"):
            return f"{factory}_{code}"
        raise ValueError(
            f"`precision` of an Index must be {FLOAT32!r} for this `factory`. "
            f"Received: precision={self.precision!r}, factory={factory!r}. Use "
            "'Flat', 'IVF1024,Flat' or, except for 'binary', 'HNSW32'."
        )


class Engine:
    """A faiss index and the ids of its vectors.

    Args:
        index: A trained faiss index.
        form: How it was made; attributes.
        ids: Ids of the vectors in it, ascending, (N,); an attribute.
    """

    # How many vectors a search finds for each that it returns.
    _candidates = 1

    def __init__(self, index: Any, form: Form, ids: Rows) -> None:
        self.index = index
        self.metric, self.factory = form.metric, form.factory
        self.precision = form.precision
        self.parameters = set_parameters(index, form)
        self.is_exact = form.codes == EXACT
        self._lists = inverted(index)
        self._number(ids)
        # Inverted files keep ids themselves; others number their vectors.
        self._has_ids = keeps_ids(index)
        # Norm of the longest vector, or more; None if it is not known.
        self._longest: float | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def trained(cls, x: Embeddings, form: Form) -> Self:
        """An engine without vectors, trained for vectors like `x`, (N, D)."""
        index, factory = make(x.shape[1], form), form.codes
        if not index.is_trained:
            try:
                with waiting(f"Train {factory} on {len(x):,} vectors"):
                    index.train(x.array)
            except RuntimeError as error:
                raise ValueError(
                    "`factory` of an Index must fit the gallery. Received: "
                    f"{factory!r} for {len(x)} vectors, which faiss refuses: "
                    f"{error}. Use {EXACT!r}, or smaller numbers."
                ) from None
        return cls(index, form, np.empty(0, np.int64))

    @property
    def dim(self) -> int:
        """Dimensions of the vectors, D."""
        return int(self.index.d)

    @property
    def vectors(self) -> FloatArray:
        """The vectors of an exact index, (N, D), where faiss has them.

        Raises:
            ValueError: If the index does not keep them unchanged.
        """
        if not self.is_exact:
            raise ValueError(
                f"`factory` of an Index must be {EXACT!r}, or its `precision` "
                "given, to read its embeddings. Received: "
                f"factory={self.factory!r}, which does not keep them unchanged."
            )
        shape = self.index.ntotal, self.dim
        faiss, start = library(), self.index.get_xb()
        flat: FloatArray = faiss.rev_swig_ptr(start, shape[0] * shape[1])
        return flat.reshape(shape)

    def stored(self, ids: Rows) -> FloatArray:
        """Vectors with some ids as they are kept, (n, D) float32.

        Raises:
            ValueError: If this kind of index does not give them back.
        """
        if self.is_exact:
            return self.vectors[self._labels(ids)]
        maps = library().DirectMap
        try:
            if self._lists is not None:
                # Lists alone do not say where a vector is.
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

    def add(self, x: Embeddings, ids: Rows) -> None:
        """Adds vectors, (N, D), by ids greater than before, or raises."""
        index, self._longest = self.index, None
        try:
            if self._has_ids:
                index.add_with_ids(x.array, ids)
            elif len(self) or not self.is_exact:
                index.add(x.array)
            else:
                # Where faiss keeps them: a copy takes as long as the rest.
                index.codes.resize(4 * len(x) * self.dim)
                index.ntotal = len(x)
                x.write(self.vectors)
        except ValueError:
            if not len(self):
                index.reset()
            raise
        except RuntimeError as error:
            raise ValueError(
                "`factory` of an Index must support adding rows. Received: an "
                f"index that faiss refuses to change: {error}. Build it again, "
                "with all rows or with another factory."
            ) from None
        self._number(np.concatenate([self.ids, ids]))

    def _number(self, ids: Rows) -> None:
        """Sets the ids of the vectors, which have changed."""
        self.ids = ids
        self.__dict__.pop("_approximate", None)

    @cached_property
    def _approximate(self) -> Approximate:
        labels = self._labels(self.ids)
        # Whether rows were removed from lists.
        has_holes = self._lists is not None and self.ids[-1] >= len(self)
        return Approximate(
            self.index,
            self._lists,
            self.metric,
            labels,
            bool(has_holes),
            self._candidates,
        )

    def reserve(self, count: int) -> None:
        """Reserves memory for a total number of vectors, if faiss allows it."""
        if self.is_exact and not len(self):
            # It keeps the memory, and need not move vectors as they grow.
            self.index.codes.resize(4 * count * self.dim)
            self.index.codes.resize(0)

    def removes(self) -> bool:
        """Whether vectors can be removed; ValueError if not even hidden."""
        try:
            self.index.remove_ids(np.empty(0, np.int64))
            return True
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
        if approximate.searching(self.index, 1) is None:
            raise ValueError(
                "`factory` of an Index must be one of Flat, SQ, IVF or HNSW to "
                f"remove rows. Received: factory={self.factory!r}. Build the "
                "index again with one of them, or without those rows."
            )
        return False

    def remove(self, ids: Rows) -> None:
        """Removes vectors, or checks that they can be hidden."""
        if self.removes():
            faiss = library()
            self.index.remove_ids(faiss.IDSelectorBatch(self._labels(ids)))
            self._number(self.ids[~np.isin(self.ids, ids)])

    def write(self, path: Path) -> None:
        """Writes the faiss index into a file."""
        faiss = library()
        # By faiss alone, a full disk can go unnoticed, and lists of an IVF
        # index take three times as long.
        with path.open("wb", _BUFFER) as file:
            writer = faiss.PyCallbackIOWriter(file.write, _BUFFER)
            faiss.write_index(self.index, writer)

    def search(
        self,
        queries: FloatArray,
        k: int,
        among: Rows | None = None,
        total: int = 0,
    ) -> tuple[FloatArray, Rows]:
        """The k nearest vectors of each query.

        Equal scores come in the order of the ids. Scores of exact indexes
        are compared in float64, so results do not depend on how many queries
        there are; and of equal ones the first are among the k nearest.

        Args:
            queries: Vectors, (Q, D) float32.
            k: How many; where there are fewer, scores are -inf and ids -1.
            among: Ids to search among, ascending; by default all.
            total: Of how many ids `among` was taken.

        Returns:
            Scores, (Q, k) float32, and ids, (Q, k).
        """
        limit = len(self) if among is None else len(among)
        if not (limit and len(queries)):
            shape = (len(queries), k)
            return np.full(shape, -np.inf, np.float32), np.full(shape, NONE)
        labels = None if among is None else self._labels(among)
        if self.is_exact:
            scores, ids = self._search_exactly(queries, k, limit, labels)
        else:
            found = self._approximate.nearest(
                queries, min(k, limit), labels, total
            )
            scores, ids = self._ranked(*found)
        if limit < k:
            wider = ((0, 0), (0, k - limit))
            scores = np.pad(scores, wider, constant_values=-np.inf)
            ids = np.pad(ids, wider, constant_values=NONE)
        return self.metric.outer(scores), ids

    def above(
        self, queries: FloatArray, threshold: float, among: Rows | None = None
    ) -> tuple[Rows, FloatArray, Rows]:
        """All vectors whose scores reach a threshold, whatever the kind.

        Queries and `among` are as of `search`.

        Returns:
            Queries, scores and ids, (n,) each, by query and then as of
            `search`.
        """
        if not len(queries):
            none = np.empty(0, np.int64)
            return none, none.astype(np.float32), none
        metric = self.metric
        bound = metric.bound(threshold)
        # What is a little below it may reach it when rounded to float32.
        bound -= 2.0**-22 * abs(bound) + float(np.finfo(np.float32).tiny)
        if self.is_exact:
            bound -= metric.tolerance(queries, self._longest_norm).max()
        chosen = None if among is None else self._labels(among)
        approximate.share_threads(self._lists, len(queries))
        which, found, labels = approximate.above(
            self.index, queries, metric.inner(bound), chosen
        )
        scores = metric.inner(found)
        if self.is_exact:
            vectors, scores = self.vectors, np.empty(len(which))
            for block in blocks(len(which), 2**16):
                scores[block] = metric.exact(
                    queries[which[block]], vectors, labels[block, None]
                )[:, 0]
        ids = labels if self._has_ids else self.ids[labels]
        outer = metric.outer(scores)
        kept = outer.astype(np.float64) >= threshold
        order = np.lexsort((ids[kept], -scores[kept], which[kept]))
        return which[kept][order], outer[kept][order], ids[kept][order]

    def _labels(self, ids: Rows) -> Rows:
        """What faiss calls the vectors with these ids."""
        is_same = len(self) and self.ids[-1] == len(self) - 1
        if self._has_ids or is_same:
            return ids
        return np.searchsorted(self.ids, ids)

    @property
    def _longest_norm(self) -> float:
        if self.metric.name == COSINE:
            return 1.0
        if self._longest is None:
            self._longest = float(row_norms(self.vectors).max(initial=0))
        return self._longest

    def _ranked(
        self, found: FloatArray, labels: Rows
    ) -> tuple[FloatArray, Rows]:
        """Scores and ids of what faiss found, in their order."""
        scores = self.metric.inner(found)
        ids = labels if self._has_ids else self.ids[labels]
        if labels.min() < 0:
            is_none = labels < 0
            scores = np.where(is_none, np.float32(-np.inf), scores)
            ids = np.where(is_none, NONE, ids)
        return exact.ranked(scores, ids)

    def _search_exactly(
        self, queries: FloatArray, k: int, limit: int, chosen: Rows | None
    ) -> tuple[FloatArray, Rows]:
        vectors, metric = self.vectors, self.metric

        def candidates(rows: Rows, count: int) -> tuple[FloatArray, Rows]:
            some = queries[rows]
            if chosen is None:
                found, labels = self.index.search(some, int(count))
            else:
                found, labels = approximate.compared(
                    self.index, some, count, chosen
                )
            return metric.inner(found), labels

        scores, labels = exact.nearest(
            candidates,
            lambda rows, labels: metric.exact(queries[rows], vectors, labels),
            metric.tolerance(queries, self._longest_norm),
            k,
            limit,
        )
        return scores, self.ids[labels]


def make(dim: int, form: Form) -> Any:
    """An index of faiss, by its factory string."""
    faiss, factory = library(), form.codes
    try:
        return faiss.index_factory(dim, factory, form.metric.faiss_type)
    except RuntimeError as error:
        raise ValueError(
            "`factory` of an Index must be a factory string of faiss. "
            f"Received: factory={factory!r} for {dim} dimensions, which faiss "
            f"refuses: {error}. Use for instance 'Flat', 'HNSW32' or "
            "'IVF256,PQ16'; the number after PQ must divide the number of "
            "dimensions."
        ) from None


def keeps_ids(index: Any) -> bool:
    """Whether an index finds vectors by ids that it is given."""
    faiss = library()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return keeps_ids(index.index)
    return isinstance(index, faiss.IndexIVF)


def inverted(index: Any) -> Any:
    """The inverted files in an index; None without them."""
    inner = _inner(index)
    return inner if isinstance(inner, library().IndexIVF) else None


def set_parameters(index: Any, form: Form) -> str:
    """Sets how thoroughly an index searches, see `Index`; says what is set."""
    faiss = library()
    text = _default(index) if form.parameters is None else form.parameters
    own = ""
    try:
        if not _PARAMETERS.fullmatch(str(text)):
            raise ValueError("not of the form 'name=number,name=number'")
        if form.precision != FLOAT32:
            own = f"k_factor_rf={candidates(form, text)}"
            text = _CANDIDATES.sub("", text).strip(",")
        if text:
            faiss.ParameterSpace().set_index_parameters(index, str(text))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            "`parameters` of an Index must be those of its kind of index. "
            f"Received: parameters={text!r}, which is refused: {error}. Use "
            "for instance 'nprobe=32' for IVF, 'efSearch=64' for HNSW, and no "
            "parameters for Flat."
        ) from None
    return ",".join(filter(None, [text, own]))


def candidates(form: Form, parameters: str) -> int:
    """How many times as many vectors are found by codes as are returned."""
    given = _CANDIDATES.search(parameters)
    return int(given[1]) if given else CANDIDATES[form.precision]


def _default(index: Any) -> str:
    faiss = library()
    found = []
    if lists := inverted(index):
        found.append(f"nprobe={max(1, round(lists.nlist**0.5))}")
    if isinstance(_inner(index), faiss.IndexHNSW):
        found.append("efSearch=64")
    if isinstance(faiss.downcast_index(index), faiss.IndexRefine):
        found.append("k_factor_rf=4")
    return ",".join(found)


def _inner(index: Any) -> Any:
    """What searches, below what transforms vectors or sorts results."""
    faiss = library()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return _inner(index.index)
    if isinstance(index, faiss.IndexRefine):
        return _inner(index.base_index)
    return index
