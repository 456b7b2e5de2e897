"""Layout: by what the folder of an unpacked archive is known."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """What an archive's folder holds.

    Attributes:
        title: Name of the data set.
        folder: Name of the folder that the archive unpacks to.
        entries: Files and folders that must be in it.
        images: Folder that the paths in its lists start from.
    """

    title: str
    folder: str
    entries: tuple[str, ...]
    images: str = "."

    def missing_in(self, folder: Path) -> list[str]:
        """The entries that a folder does not have."""
        return [x for x in self.entries if not (folder / x).exists()]

    def nearest(self, path: Path) -> tuple[Path, list[str]]:
        """The folder that this is most likely about, and what it lacks.

        Either the folder itself or, if that has more of the entries, the
        one of the archive's name inside of it.
        """
        folders = (path, path / self.folder)
        found = [(folder, self.missing_in(folder)) for folder in folders]
        return min(found, key=lambda x: len(x[1]))


def closest(
    path: Path, layouts: Sequence[Layout]
) -> tuple[Layout, Path, list[str]]:
    """The layout that a folder has most of, that folder, what it lacks."""
    found = [(layout, *layout.nearest(path)) for layout in layouts]
    return min(found, key=lambda x: len(x[2]) / len(x[0].entries))


def locate(
    path: str | os.PathLike[str], layouts: Sequence[Layout], owner: str
) -> tuple[Path, Path]:
    """Finds an archive's folder.

    Args:
        path: The folder, or the one that it is in.
        layouts: The layouts that it may have.
        owner: The loader, for the error.

    Returns:
        The folder, and the one that the paths in its lists start from.

    Raises:
        FileNotFoundError: If there is no such folder, or entries are
            missing; they are named.
    """
    root = Path(path).expanduser()
    layout, folder, missing = closest(root, layouts)
    if not missing:
        return folder, folder / layout.images
    if not root.is_dir():
        found = "which is a file" if root.exists() else "which is not there"
        way_out = "Unpack the archive, and give the folder."
    else:
        found = f"without {', '.join(missing)}"
        way_out = f"Give the folder {layout.folder} as it was unpacked."
    raise FileNotFoundError(
        f"`path` of {owner} must be the folder of {layout.title}, with "
        f"{', '.join(layout.entries)}. Received: path={os.fspath(path)!r}, "
        f"{found}. {way_out}"
    )
