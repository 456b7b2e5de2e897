"""Kinds of faiss indexes: made, read, and what depends on the kind."""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.utils.types import FloatArray, Rows

CANDIDATES = 2
"""Candidates of a graph for each of the vectors that it is to find: with as
many as vectors, it misses 3 % to 16 % of 100 in clusters."""

_PARAMETERS = re.compile(r"(\w+=\d{1,7}(\.\d+)?(,|$))*")


def make(dim: int, factory: str, metric: int) -> Any:
    """An index by its factory string, for a metric of faiss."""
    faiss = library()
    try:
        return faiss.index_factory(dim, str(factory), metric)
    except RuntimeError as error:
        raise ValueError(
            "`factory` of an Index must be a factory string of faiss. "
            f"Received: factory={factory!r} for {dim} dimensions, which faiss "
            f"refuses: {error}. Use for instance 'Flat', 'HNSW32' or "
            "'IVF256,PQ16'; the number after PQ must divide the number of "
            "dimensions."
        ) from None


def read(path: Path, dim: int, count: int, factory: str, metric: int) -> Any:
    """The index in a file, which need not be trustworthy.

    Raises:
        ValueError: If it is not of `count` vectors of `dim` dimensions and
            of this kind and metric, or cannot be read.
    """
    faiss = library()
    size = path.stat().st_size
    limit = getattr(faiss, "set_deserialization_vector_byte_limit", None)
    before = limit and faiss.get_deserialization_vector_byte_limit()
    # Tables that a product quantizer computes may be larger than the file.
    flags = faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    try:
        if limit:
            limit(size)  # What is in a file is not larger than the file.
        index = faiss.read_index(os.fspath(path), flags)
    except TypeError:  # faiss opens only what has a name in UTF-8.
        with path.open("rb") as file:
            reader = faiss.PyCallbackIOReader(file.read)
            index = faiss.read_index(reader, flags)
    except RuntimeError as error:
        # Of which version it is says the manifest.
        mine = faiss.__version__
        raise ValueError(f"faiss {mine} cannot read it ({error})") from None
    finally:
        if limit:
            limit(before)
    shape = (index.ntotal, index.d)
    if shape != (count, dim):
        raise ValueError(f"it has vectors of shape {shape}, not {count, dim}")
    if not _fits(factory, dim, size):
        raise ValueError(f"{factory!r} does not match the size of the file")
    like = make(dim, factory, metric)  # Its parts live as long as it does.
    new, found = list(_parts(like, count)), list(_parts(index, count))
    kinds, expected = ([_kind(x) for x, _ in parts] for parts in (found, new))
    if kinds != expected or not index.is_trained:
        raise ValueError(f"it is not a trained index {factory!r}")
    for (part, its_count), (fresh, _) in zip(found, new, strict=True):
        if part.ntotal != its_count:
            raise ValueError("its parts have different numbers of vectors")
        if hasattr(part, "hnsw"):
            _check_links(part.hnsw, fresh.hnsw, its_count)
        if isinstance(part, faiss.IndexIVFPQ):
            part.precompute_table()
    return index


def check_ids(index: Any, ids: Rows) -> None:
    """ValueError if an index itself keeps other ids than `ids`, ascending."""
    faiss = library()
    expected = ids if keeps_ids(index) else np.arange(len(ids))
    for part, _ in _parts(index, len(ids)):
        if not isinstance(part, faiss.IndexIVF):
            continue
        lists = part.invlists
        kept = [
            faiss.rev_swig_ptr(lists.get_ids(i), lists.list_size(i))
            for i in range(lists.nlist)
            if lists.list_size(i)
        ]
        found = np.concatenate([np.empty(0, np.int64), *kept])
        if not np.array_equal(np.sort(found), expected):
            raise ValueError("its vectors have the ids of other rows")
        # Further lists are of centroids.
        expected = np.arange(part.nlist)


def _check_links(graph: Any, new: Any, count: int) -> None:
    """ValueError if to search an HNSW graph would leave its arrays.

    `new` is one without vectors, made by the same factory string.
    """
    faiss = library()
    array, entry = faiss.vector_to_array, graph.entry_point
    # The levels that each vector is at, and how many links are below each.
    levels, below = array(graph.levels), array(graph.cum_nneighbor_per_level)
    links = faiss.rev_swig_ptr(graph.neighbors.data(), graph.neighbors.size())
    top = int(levels.max(initial=0))
    fits = (
        np.array_equal(below, array(new.cum_nneighbor_per_level))
        and graph.assign_probas.size() == new.assign_probas.size()
        and len(levels) == count
        and levels.min(initial=1) > 0
        and top < len(below)
        and graph.max_level == top - 1
        and entry in (np.flatnonzero(levels == top) if count else [-1])
        and links.min(initial=-1) >= -1
        and links.max(initial=-1) < count
    )
    if fits:
        starts = np.append(0, np.cumsum(below[levels], dtype=np.int64))
        fits = len(links) == starts[-1]
        fits = fits and np.array_equal(array(graph.offsets), starts)
    # What is linked at a level has links of its own there.
    for level in range(1, top if fits else 0):
        own = np.arange(below[level], below[level + 1])
        linked = links[starts[:-1][levels > level, None] + own]
        fits = fits and (levels[linked[linked >= 0]] > level).all()
    if not fits:
        raise ValueError("its graph links to vectors that do not exist")


def _fits(factory: str, dim: int, size: int) -> bool:
    """Whether an index can be made without more memory than a file of it."""
    numbers = [int(x) for x in re.findall(r"\d+", factory[:200])]
    bits = [int(x) for x in re.findall(r"x(\d+)", factory[:200])]
    return (
        len(factory) < 200
        and max(numbers, default=0) <= max(size, 2**16)
        and max(bits, default=0) <= 24
        and 4 * dim * 2 ** max(bits, default=8) <= max(size, 2**28)
    )


def _parts(index: Any, count: int) -> Iterator[tuple[Any, int]]:
    """An index and those that it is made of, and how many vectors each has."""
    index = library().downcast_index(index)
    yield index, count
    for name in ("index", "base_index", "refine_index", "storage"):
        if hasattr(index, name):
            yield from _parts(getattr(index, name), count)
    if hasattr(index, "quantizer"):
        yield from _parts(index.quantizer, index.nlist)


def _kind(index: Any) -> tuple[Any, ...]:
    names = ("d", "metric_type", "nlist", "code_size")
    return (
        # Of flat ones the name also says the metric, or it does not.
        re.sub("(IP|L2)$", "", type(index).__name__),
        *(getattr(index, name, None) for name in names),
        # With a map of where vectors are, faiss would believe it.
        hasattr(index, "direct_map") and index.direct_map.type,
    )


def keeps_ids(index: Any) -> bool:
    """Whether an index finds vectors by ids that it is given."""
    faiss = library()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return keeps_ids(index.index)
    return isinstance(index, faiss.IndexIVF)


def set_parameters(index: Any, parameters: str | None) -> str:
    """Sets how thoroughly an index searches, see `Index`; says what is set."""
    faiss = library()
    text = _default(index) if parameters is None else parameters
    if not text:
        return text
    try:
        if not _PARAMETERS.fullmatch(str(text)):
            raise ValueError("not of the form 'name=number,name=number'")
        faiss.ParameterSpace().set_index_parameters(index, str(text))
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            "`parameters` of an Index must be those of its kind of index. "
            f"Received: parameters={text!r}, which is refused: {error}. Use "
            "for instance 'nprobe=32' for IVF, 'efSearch=64' for HNSW, and no "
            "parameters for Flat."
        ) from None
    return text


def lists_of(index: Any) -> Any:
    """What searches inverted files in an index; None without them."""
    inner = _inner(index)
    return inner if isinstance(inner, library().IndexIVF) else None


def probing(index: Any, lists: int, **options: Any) -> Any:
    """Search parameters of inverted files for a number of lists."""
    faiss = library()
    quantizer = faiss.downcast_index(index.quantizer)
    if isinstance(quantizer, faiss.IndexHNSW):
        # A graph finds no more lists than it has candidates.
        options["quantizer_params"] = searching(quantizer, lists, 1)
    return faiss.SearchParametersIVF(nprobe=lists, **options)


def sample(index: Any, count: int) -> FloatArray:
    """Some of the vectors of inverted files, as they are kept, (n, D)."""
    faiss, lists = library(), index.invlists
    ends = np.cumsum([lists.list_size(i) for i in range(index.nlist)])
    drawn = np.random.default_rng(0).integers(ends[-1], size=count)
    x = np.empty((count, index.d), np.float32)
    for row, number in zip(x, drawn.tolist(), strict=True):
        its = int(np.searchsorted(ends, number, side="right"))
        place = number - int(ends[its - 1] if its else 0)
        index.reconstruct_from_offset(its, place, faiss.swig_ptr(row))
    return x


def selector(chosen: Rows) -> Any:
    """What restricts a search to some vectors, by what faiss calls them."""
    faiss = library()
    bits = np.zeros(int(chosen.max(initial=-1)) + 1, bool)
    bits[chosen] = True
    return faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))


def searching(index: Any, k: int, effort: float = 1.0) -> Any:
    """Search parameters for k vectors.

    Args:
        index: An index.
        k: How many are searched for.
        effort: How many times as thoroughly it searches as it is set to.

    Returns:
        The parameters; None if how thoroughly this kind searches, and whether
        it can leave out vectors, is not known.
    """
    faiss = library()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        inner = searching(index.index, k, effort)
        return inner and faiss.SearchParametersPreTransform(index_params=inner)
    if isinstance(index, faiss.IndexRefine):
        wider = math.ceil(k * index.k_factor / CANDIDATES)
        inner = searching(index.base_index, max(k, wider), effort)
        return inner and faiss.IndexRefineSearchParameters(
            base_index_params=inner, k_factor=index.k_factor
        )
    if isinstance(index, faiss.IndexIVF):
        lists = min(index.nlist, math.ceil(effort * index.nprobe))
        return probing(index, lists, max_codes=index.max_codes)
    if isinstance(index, faiss.IndexHNSW):
        candidates = math.ceil(
            max(effort * index.hnsw.efSearch, CANDIDATES * k)
        )
        return faiss.SearchParametersHNSW(efSearch=candidates)
    if isinstance(index, faiss.IndexFlat | faiss.IndexScalarQuantizer):
        return faiss.SearchParameters()
    return None


def removes(index: Any) -> bool:
    """Whether faiss can remove vectors from an index."""
    try:
        index.remove_ids(np.empty(0, np.int64))
    except RuntimeError as error:
        if "not implemented" not in str(error):
            raise
        return False
    return True


def _default(index: Any) -> str:
    faiss = library()
    inner = _inner(index)
    found = []
    if isinstance(inner, faiss.IndexIVF):
        found.append(f"nprobe={max(1, round(inner.nlist**0.5))}")
    if isinstance(inner, faiss.IndexHNSW):
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


def library() -> Any:
    """faiss, whose stubs lack what its Python layer adds."""
    import faiss

    return faiss
