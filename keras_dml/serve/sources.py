"""Sources: where a model and its gallery are, and which version of them."""

import re
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from keras_dml.embedding.engines import KERAS, Engine
from keras_dml.export.versions import is_version
from keras_dml.runs.folder import RECIPE
from keras_dml.search.store import MANIFEST
from keras_dml.serve.settings import check_is_there

SAVED_MODEL = "saved_model.pb"

Stamp = Hashable
"""Identifies a version: two versions have different stamps. None: missing."""


@dataclass(frozen=True)
class Source:
    """What is to be served.

    Attributes:
        name: Of the model, as addresses name it.
        path: A `.keras` file; a run, whose best model is taken; a SavedModel;
            or a folder of them, NAME/1, NAME/2, …, of which the highest is.
        gallery: The folder of an index; None without one.
        engine: What embeds.
    """

    name: str
    path: Path
    gallery: str | None = None
    engine: Engine = KERAS

    def file(self) -> Path | None:
        """The `.keras` file, or that of the SavedModel; None if it is gone."""
        if self.path.is_file():
            return self.path
        places = [self.path / SAVED_MODEL, *_versions(self.path)]
        if (self.path / RECIPE).exists():
            places = [self.path / "best.keras", self.path / "last.keras"]
        return next((x for x in places if x.exists()), None)

    def export(self) -> Path | None:
        """The folder of the SavedModel; None of a model of Keras."""
        file = self.file()
        return file.parent if file and file.name == SAVED_MODEL else None

    def stamps(self) -> tuple[Stamp, Stamp]:
        """Which model and which gallery are there."""
        try:
            model = _stamp_of(self.file())
        except OSError:  # A folder above it must not be read any more.
            model = None
        if self.gallery is None:
            return model, None
        return model, _stamp_of(Path(self.gallery) / MANIFEST)


def find_source(
    path: str,
    name: str | None = None,
    gallery: str | None = None,
    engine: Engine = KERAS,
) -> Source:
    """What is to be served at a path; see `serve`.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If there is no model, or the name cannot stand in an
            address.
    """
    check_is_there(path)
    where = Path(path)
    folder = where.absolute()
    if where.is_file():
        known = where.stem
    elif (where / SAVED_MODEL).exists() and is_version(folder):
        known = folder.parent.name
    else:
        known = folder.name
    called = known if name is None else name
    source = Source(called, where, gallery, engine)
    if source.file() is None and not (where / RECIPE).exists():
        raise ValueError(
            f"There is no model in {path!r}. Use the folder of a run, a .keras "
            "file, or saved_models/NAME with the versions 1, 2, … in it."
        )
    if re.search(r"[/:]", source.name) or not source.name:
        raise ValueError(
            "`name` of a model must not contain / or :, because it is part of "
            f"addresses. Received: {source.name!r}. Use --name to choose "
            "another one."
        )
    return source


def _versions(folder: Path) -> list[Path]:
    """The files of SavedModels with a version, the highest first."""
    found = [x for x in folder.glob(f"*/{SAVED_MODEL}") if is_version(x.parent)]
    return sorted(found, key=lambda x: int(x.parent.name), reverse=True)


def _stamp_of(file: Path | None) -> Stamp:
    try:
        status = file.stat() if file else None
    except OSError:
        status = None
    if status is None:
        return None
    return str(file), status.st_mtime_ns, status.st_size, status.st_ino
