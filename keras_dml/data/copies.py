"""Copies: images that a data set has more than once, exactly or nearly."""

import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_128

from keras_dml.data.hashing import equal_contents
from keras_dml.data.imageset import ImageSet
from keras_dml.data.splits import DataSplits
from keras_dml.utils.progress import track
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

NAMED = 3
"""Number of copies that a message names."""

_SPLITS = {"train": "training", "validation": "validation", "test": "test"}

_SIDE = 16
"""Side of the small gray picture by which near copies are found."""

_NEAR = 0.99
"""Correlation of small pictures from which images are near copies. Copies at
half the size, of another brightness, with noise, or as JPEG of quality 20 have
.995 on average; of 10⁶ pairs of photographs of Caltech-101, one has more."""

_FLAT = 1.0
"""Standard deviation of gray values below which a picture shows nothing."""

_BLOCK = 1024


class Copy(NamedTuple):
    """One of several copies, with its split and the name of its class."""

    split: str
    label: str
    path: str


class Copies(NamedTuple):
    """Images with equal pixels ("exact"), or that look the same ("near")."""

    kind: str
    images: tuple[Copy, ...]


class _Look(NamedTuple):
    digest: str
    picture: FloatArray


def _files_of(splits: DataSplits) -> dict[str, ImageSet]:
    sets = {name: splits.part(name) for name in _SPLITS}
    return {
        name: x
        for name, x in sets.items()
        if isinstance(x, ImageSet) and x.paths
    }


def leaks(splits: DataSplits) -> Iterator[str]:
    """Sentences on files of a split with exact copies in another one.

    Only files that may be equal by their sizes are read.
    """
    sets = _files_of(splits)
    ends = np.cumsum([len(x) for x in sets.values()])[:-1]
    parts = np.split(equal_contents(*sets.values()), ends)
    numbers = dict(zip(sets, parts, strict=False))
    for first, second in combinations(sets, 2):
        rows = np.flatnonzero(np.isin(numbers[second], numbers[first]))
        if not len(rows):
            continue
        names = "; ".join(
            f"{_first_copy(sets[first], numbers[first], number)} = "
            f"{sets[second].paths[row]}"  # type: ignore[index]
            for row, number in zip(
                rows[:NAMED], numbers[second][rows], strict=False
            )
        )
        yield (
            f"{len(rows):,} of the {len(sets[second]):,} {_SPLITS[second]} "
            f"images are exact copies of {_SPLITS[first]} images ({names}"
            f"{'; …' * (len(rows) > NAMED)}), so results on them do not hold "
            "for new images. Remove one of each; `keras-dml data check RECIPE` "
            "lists them all."
        )


def _first_copy(images: ImageSet, numbers: Rows, number: int) -> str:
    return images.paths[int(np.argmax(numbers == number))]  # type: ignore[index]


def find_copies(splits: DataSplits) -> tuple[list[Copies], list[str]]:
    """Groups of copies among all files, and why some cannot be decoded."""
    sets = _files_of(splits)
    images, items = [], []
    for name, x in sets.items():
        for row, path in enumerate(x.paths or ()):
            images.append(Copy(name, x.class_called(row), path))
            items.append((x, row))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(_look, items)
        looked = [*track(results, len(items), "Comparing images")]
    looks = {i: x for i, x in enumerate(looked) if isinstance(x, _Look)}
    rows = list(looks)
    errors = [str(x) for x in looked if not isinstance(x, _Look)]
    if not rows:
        return [], errors
    digests = [looks[row].digest for row in rows]
    _, first, numbers = np.unique(
        digests, return_index=True, return_inverse=True
    )
    groups = _near_groups(np.stack([looks[rows[i]].picture for i in first]))
    # Exact copies alone are no near copies.
    sizes = np.bincount(groups)
    near = np.where(sizes[groups] > 1, groups, -1)[numbers]
    result = []
    for kind, keys in (("exact", numbers), ("near", near)):
        members = defaultdict(list)
        for row, key in zip(rows, keys.tolist(), strict=True):
            members[key].append(images[row])
        result += [
            Copies(kind, tuple(group))
            for key, group in members.items()
            if key >= 0 and len(group) > 1
        ]
    return result, errors


def _look(item: tuple[ImageSet, int]) -> _Look | ValueError:
    from PIL import Image

    images, row = item
    try:
        pixels = images.read(row)
    except ValueError as error:
        return error
    pixels = np.broadcast_to(pixels, (*pixels.shape[:2], 3)).copy()
    hashed = xxh3_128(repr(pixels.shape).encode())
    hashed.update(pixels.data)
    small = Image.fromarray(pixels).convert("L")
    gray = small.resize((_SIDE, _SIDE), Image.Resampling.BOX)
    picture = np.asarray(gray, np.float32).ravel()
    picture -= picture.mean()
    length = float(np.linalg.norm(picture))
    is_flat = length < _FLAT * _SIDE
    return _Look(hashed.hexdigest(), picture / (np.inf if is_flat else length))


def _near_groups(pictures: FloatArray) -> Rows:
    """Numbers of groups, (N,), of pictures that are near each other."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = []
    for block in blocks(len(pictures), _BLOCK):
        near = np.argwhere(pictures[block] @ pictures.T >= _NEAR)
        pairs.append(near + [block.start, 0])
    rows, columns = np.concatenate(pairs).T
    links = np.ones(len(rows), bool), (rows, columns)
    graph = coo_array(links, shape=(len(pictures),) * 2)
    groups: Rows = connected_components(graph, directed=False)[1]
    return groups.astype(np.int64)
