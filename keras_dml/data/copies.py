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

MAX_NAMES = 3
"""Maximum number of groups, and of copies in each, that a message names."""

_SPLITS = {"train": "training", "validation": "validation", "test": "test"}

_SIDE = 16
"""Side of the small gray picture that is compared, in pixels."""

_NEAR_CORRELATION = 0.99
"""Minimum correlation between the small pictures of near copies. Copies at half
the size, with another brightness, with noise, or saved as JPEG of quality 20
reach .995 on average; one in 10⁶ pairs of photographs of Caltech-101 is above
the minimum."""

_FLAT_DEVIATION = 1.0
"""Standard deviation of gray values below which a picture is blank."""

_BLOCK_ROWS = 1024


class Copy(NamedTuple):
    """One of several copies, with its split and the name of its class."""

    split: str
    label: str
    path: str


class Copies(NamedTuple):
    """Images that have equal pixels ("exact") or look alike ("near")."""

    kind: str
    images: tuple[Copy, ...]


class _Fingerprint(NamedTuple):
    image: Copy
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
    """Yields a warning for each pair of splits that share equal files.

    Only files of equal sizes are read.
    """
    sets = _files_of(splits)
    ends = np.cumsum([len(x) for x in sets.values()])[:-1]
    parts = np.split(equal_contents(*sets.values()), ends)
    files = {
        name: [*zip(part.tolist(), x.paths or (), strict=True)]
        for (name, x), part in zip(sets.items(), parts, strict=False)
    }
    for first, second in combinations(sets, 2):
        paths = dict(reversed(files[first]))  # The first path of equal files.
        pairs = [
            f"{paths[x]} = {path}" for x, path in files[second] if x in paths
        ]
        if pairs:
            more = ["…"] * (len(pairs) > MAX_NAMES)
            names = "; ".join(pairs[:MAX_NAMES] + more)
            yield (
                f"{len(pairs):,} of the {len(sets[second]):,} "
                f"{_SPLITS[second]} images are exact copies of "
                f"{_SPLITS[first]} images ({names}), so results on them do not "
                "hold for new images. Remove one of each; `keras-dml data "
                "check RECIPE` lists them all."
            )


def find_copies(splits: DataSplits) -> tuple[list[Copies], list[str]]:
    """Groups of copies among all files, and errors from decoding them."""
    items = [
        (name, x, row)
        for name, x in _files_of(splits).items()
        for row in range(len(x))
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(_fingerprint, items)
        outcomes = [*track(results, len(items), "Comparing images")]
    fingerprints = [x for x in outcomes if isinstance(x, _Fingerprint)]
    errors = [str(x) for x in outcomes if isinstance(x, ValueError)]
    if not fingerprints:
        return [], errors
    _, first, numbers = np.unique(
        [x.digest for x in fingerprints], return_index=True, return_inverse=True
    )
    groups = _near_groups(np.stack([fingerprints[i].picture for i in first]))
    # Exact copies count as one picture; a near group has two or more.
    sizes = np.bincount(groups)
    near = np.where(sizes[groups] > 1, groups, -1)[numbers]
    result = []
    for kind, keys in (("exact", numbers), ("near", near)):
        members = defaultdict(list)
        for fingerprint, key in zip(fingerprints, keys.tolist(), strict=True):
            members[key].append(fingerprint.image)
        result += [
            Copies(kind, tuple(group))
            for key, group in members.items()
            if key >= 0 and len(group) > 1
        ]
    return result, errors


def _fingerprint(item: tuple[str, ImageSet, int]) -> _Fingerprint | ValueError:
    from PIL import Image

    split, images, row = item
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
    is_flat = length < _FLAT_DEVIATION * _SIDE
    copy = Copy(split, images.class_called(row), str(images.images[row]))
    picture /= np.inf if is_flat else length
    return _Fingerprint(copy, hashed.hexdigest(), picture)


def _near_groups(pictures: FloatArray) -> Rows:
    """The group of each picture, (N,); near pictures share a number."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = []
    for block in blocks(len(pictures), _BLOCK_ROWS):
        near = np.argwhere(pictures[block] @ pictures.T >= _NEAR_CORRELATION)
        pairs.append(near + [block.start, 0])
    rows, columns = np.concatenate(pairs).T
    links = np.ones(len(rows), bool), (rows, columns)
    graph = coo_array(links, shape=(len(pictures),) * 2)
    groups: Rows = connected_components(graph, directed=False)[1]
    return groups.astype(np.int64)
