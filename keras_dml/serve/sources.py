"""Sources: where a model and its gallery are, and which version of them."""

import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from keras_dml.export.versions import is_version
from keras_dml.runs.folder import RECIPE
from keras_dml.search.store import MANIFEST
from keras_dml.search.uris import is_database

SAVED_MODEL = "saved_model.pb"

Stamp = Hashable
"""Identifies a version: two versions have different stamps. None: missing."""


@dataclass(frozen=True)
class KerasSource:
    """A `.keras` file, or a run, whose best model is taken.

    Attributes:
        name: Of the model, as addresses name it.
        path: The file, or the folder of the run.
    """

    name: str
    path: Path

    def file(self) -> Path:
        """The file of the model."""
        if not self.path.is_dir():
            return self.path
        best = self.path / "best.keras"
        return best if best.exists() else self.path / "last.keras"

    def stamp(self) -> Stamp:
        """Which version is there."""
        return _stamp_of(self.file())


@dataclass(frozen=True)
class SavedSource:
    """A folder of versions, NAME/1, NAME/2, …; or one SavedModel.

    Attributes:
        name: Of the model, as addresses name it.
        path: The folder.
    """

    name: str
    path: Path

    def folder(self) -> Path:
        """The folder of the highest version."""
        if (self.path / SAVED_MODEL).exists():
            return self.path
        return max(_versions(self.path), key=lambda x: int(x.name))

    def version(self) -> int:
        """The highest version; 1 of a SavedModel that has no number."""
        folder = self.folder()
        return int(folder.name) if is_version(folder) else 1

    def stamp(self) -> Stamp:
        """Which version is there."""
        try:
            folder = self.folder()
        except (OSError, ValueError):  # The folder is gone, or empty.
            return None
        return str(folder), _stamp_of(folder / SAVED_MODEL)


Source = KerasSource | SavedSource


@dataclass(frozen=True)
class GallerySource:
    """An index in a folder or a database.

    Attributes:
        place: The folder, or the address of the database.
    """

    place: str

    def stamp(self) -> Stamp:
        """Which version is there; a database is always of today."""
        if is_database(self.place):
            return self.place
        return _stamp_of(Path(self.place) / MANIFEST)


def find_source(path: str, name: str | None = None) -> Source:
    """What is to be served at a path.

    Args:
        path: The folder of a run, a `.keras` file, `saved_models/NAME` or
            one version of it.
        name: Another name than that of the run, file or folder.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If there is no model, or the name cannot stand in an
            address.
    """
    where = Path(path)
    if not where.exists():
        raise FileNotFoundError(
            f"There is nothing at {path!r}. Use the folder of a run, a .keras "
            "file or saved_models/NAME."
        )
    folder = where.absolute()
    if where.is_file():
        return KerasSource(_checked(name or where.stem), where)
    if (where / RECIPE).exists():
        return KerasSource(_checked(name or folder.name), where)
    if (where / SAVED_MODEL).exists():
        known = folder.parent.name if is_version(folder) else folder.name
        return SavedSource(_checked(name or known), where)
    if not _versions(where):
        raise ValueError(
            f"There is no model in {path!r}. Use the folder of a run, a .keras "
            "file, or saved_models/NAME with the versions 1, 2, … in it."
        )
    return SavedSource(_checked(name or folder.name), where)


def _checked(name: str) -> str:
    if re.search(r"[/:]", name) or not name:
        raise ValueError(
            "`name` of a model must not contain / or :, because it is part of "
            f"addresses. Received: {name!r}. Use --name to choose another one."
        )
    return name


def _versions(folder: Path) -> list[Path]:
    return [
        x
        for x in folder.iterdir()
        if is_version(x) and (x / SAVED_MODEL).exists()
    ]


def _stamp_of(file: Path) -> Stamp:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
