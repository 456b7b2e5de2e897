"""Index files of faiss: read, and compared with what the manifest says."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.search.engine import IndexSpec, inverted, make_index
from keras_dml.search.metrics import library
from keras_dml.utils.types import Rows


class IndexFileError(ValueError):
    """A folder that is not an index, or a damaged index."""


def read(path: Path, dim: int, count: int, spec: IndexSpec) -> Any:
    """Reads an index whose kind, size and metric are known.

    What faiss stores within, such as the links of a graph, is not checked:
    checksums find accidents, and an index is read from people you trust.

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
    for part, its_count in found:
        if part.ntotal != its_count:
            raise ValueError("its parts have different numbers of vectors")
        if isinstance(part, faiss.IndexIVFPQ):
            part.precompute_table()
    return index


def check_ids(index: Any, ids: Rows) -> None:
    """Raises ValueError if lists keep other ids than `ids`, ascending."""
    lists = inverted(index)
    if lists is None:
        return
    faiss, kept = library(), lists.invlists
    parts = [
        faiss.rev_swig_ptr(kept.get_ids(i), kept.list_size(i))
        for i in range(kept.nlist)
        if kept.list_size(i)
    ]
    stored = np.concatenate([np.empty(0, np.int64), *parts])
    if not np.array_equal(np.sort(stored), ids):
        raise ValueError("its vectors have the ids of other rows")


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
    names = ("d", "metric_type", "nlist", "code_size", "qb")
    return (
        # Of flat ones the name also says the metric, or it does not.
        re.sub("(IP|L2)$", "", type(index).__name__),
        *(getattr(index, name, None) for name in names),
        # With a map of where vectors are, faiss would believe it.
        hasattr(index, "direct_map") and index.direct_map.type,
    )
