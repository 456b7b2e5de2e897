"""Files that a data set lists: are they there?"""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

# Files that an error names.
_NAMED = 3


def require_files(files: Sequence[Path], owner: str) -> None:
    """Checks that listed files are there; each folder is read once.

    Args:
        files: Paths of the files.
        owner: What lists them, for the error.

    Raises:
        FileNotFoundError: If some are not there; it says how many and
            names a few.
    """
    names = defaultdict(set)
    for file in files:
        names[file.parent].add(file.name)
    there = {folder: _names_in(folder) for folder in names}
    missing = [file for file in files if file.name not in there[file.parent]]
    if missing:
        some = ", ".join(str(file) for file in missing[:_NAMED])
        raise FileNotFoundError(
            f"{len(missing):,} of the {len(files):,} images that {owner} "
            f"lists are not there, such as {some}. Unpack the images again, "
            "or take the missing ones out of the list."
        )


def _names_in(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()
