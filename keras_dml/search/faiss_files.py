"""Index files of faiss, which may be a stranger's: read and checked."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.search.engine import IndexSpec, keeps_ids, make_index
from keras_dml.search.metrics import library
from keras_dml.utils.types import Rows


class IndexFileError(ValueError):
    """A folder that is not an index, or a damaged index."""


def read(path: Path, dim: int, count: int, spec: IndexSpec) -> Any:
    """The index in a file, which need not be trustworthy.

    Raises:
        ValueError: If it is not of `count` vectors of `dim` dimensions and
            of this kind and metric, or cannot be read.
    """
    faiss, factory = library(), spec.factory
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
    like = make_index(dim, spec)  # Its parts live as long as it does.
    new, found = list(_parts(like, count)), list(_parts(index, count))
    kinds, expected = ([_kind(x) for x, _ in parts] for parts in (found, new))
    if kinds != expected or not index.is_trained:
        raise ValueError(f"it is not a trained index {factory!r}")
    for (part, its_count), (fresh, _) in zip(found, new, strict=True):
        if part.ntotal != its_count:
            raise ValueError("its parts have different numbers of vectors")
        if hasattr(part, "bbs"):
            _check_blocks(part)
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


def _check_blocks(part: Any) -> None:
    """ValueError if to search codes in blocks would leave their array."""
    whole = -(-part.ntotal // part.bbs) * part.bbs
    codes = part.codes.size(), part.center.size()
    if part.ntotal2 != whole or codes != (whole * part.code_size, part.d):
        raise ValueError("its codes are not of as many vectors")


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
    names = ["d", "metric_type", "nlist", "code_size", "qb"]
    if hasattr(index, "bbs"):
        names += ["bbs", "M", "M2", "ksub", "nbits", "implem", "qbs", "skip"]
    return (
        # Of flat ones the name also says the metric, or it does not.
        re.sub("(IP|L2)$", "", type(index).__name__),
        *(getattr(index, name, None) for name in names),
        # With a map of where vectors are, faiss would believe it.
        hasattr(index, "direct_map") and index.direct_map.type,
    )
