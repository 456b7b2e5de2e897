"""Bad files: listed image files that cannot be decoded when they are read."""

from __future__ import annotations

import logging
from typing import Any, Literal, TypeAlias

import numpy as np

from keras_dml.utils.types import Rows

logger = logging.getLogger(__name__)

MAX_SHARE = 0.01
"""Maximum share of bad files; a single one is always allowed."""

OnBadFile: TypeAlias = Literal["raise", "skip"]
"""What to do with a bad file; see `image_folder`."""

_MAX_NAMES = 20


class BadFiles:
    """The bad files of a data set, shared by all `ImageSet`s made of it."""

    def __init__(self, total: int) -> None:
        self._max = max(1, int(MAX_SHARE * total))
        self._total = total
        self._paths: list[str] = []
        self._num_logged = 0

    @classmethod
    def of(cls, images: Any, on_bad_file: OnBadFile) -> BadFiles | None:
        return cls(len(images)) if on_bad_file == "skip" else None

    def add(self, path: str, error: ValueError) -> None:
        """Adds a bad file; raises `ValueError` if there are too many."""
        if path in self._paths:
            return
        self._paths.append(path)
        if len(self._paths) > self._max:
            raise ValueError(
                f'`on_bad_file="skip"` leaves out at most {self._max:,} of '
                f"{self._total:,} files (1 %). Received: {self._names()}. "
                "Check the disk, and replace these files or leave them out of "
                f"the data. The last one: {error}"
            ) from error
        logger.warning("Left out: %s", error)

    def log_count(self) -> None:
        """Logs how many files were left out, if more than last time."""
        if len(self._paths) > self._num_logged:
            self._num_logged = len(self._paths)
            logger.warning(
                "%d of %s image files could not be decoded and were left out: "
                "%s.",
                len(self._paths),
                f"{self._total:,}",
                self._names(),
            )

    def rows_of(self, images: Any) -> Rows:
        """Rows of a set whose files are bad."""
        return np.flatnonzero(np.isin(images.paths or (), self._paths))

    def replacement(self, images: Any, row: int) -> int:
        """The row itself, or the next readable one of its class.

        Raises:
            ValueError: If there are too many bad files, or no file of the class
                can be read.
        """
        labels = images.labels
        alike = np.arange(len(images))
        if labels is not None:
            same = (labels == labels[row]).reshape(len(labels), -1)
            alike = np.flatnonzero(same.all(axis=1))
        start = int(np.searchsorted(alike, row))
        for other in np.roll(alike, -start).tolist():
            try:
                images.read(other)
            except ValueError as error:
                self.add(str(images.images[other]), error)
            else:
                return int(other)
        raise ValueError(
            f"{images.images[row]!r} cannot be decoded, and its class has no "
            "other file that can. Replace it, or leave the class out."
        )

    def _names(self) -> str:
        names = ", ".join(self._paths[-_MAX_NAMES:])
        return names + ", …" * (len(self._paths) > _MAX_NAMES)
