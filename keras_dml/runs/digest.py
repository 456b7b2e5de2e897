"""Digest of images: whether two runs were measured on the same ones."""

import hashlib
import os

from keras_dml.data import ImageSet


def digest(images: ImageSet) -> str:
    """A digest of which images are in a set, in which order and class.

    Images are told apart by what their source calls them; else files by
    their paths below the folder that they share, and pixels by
    themselves. Sets that differ in any of this have different digests,
    and a set that was moved to another folder keeps its own.

    Returns:
        SHA-256 in hexadecimal.
    """
    hashed = hashlib.sha256(images.labels.astype("<i8").tobytes())
    for name in _names(images):
        hashed.update(name.encode() + b"\0")
    if images.ids is None and images.pixels is not None:
        hashed.update(str(images.pixels.shape).encode())
        hashed.update(images.pixels.tobytes())
    return hashed.hexdigest()


def _names(images: ImageSet) -> tuple[str, ...]:
    if images.ids is not None:
        return images.ids
    if images.paths is None:
        return ()
    root = os.path.commonpath(map(os.path.dirname, images.paths))
    return tuple(os.path.relpath(path, root) for path in images.paths)
