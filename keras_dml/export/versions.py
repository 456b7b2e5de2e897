"""Versions: the folders NAME/1, NAME/2, … that a server loads, and its list.

A version is written to a hidden folder next to it and then renamed in one step,
so it exists completely or not at all, even if the process is killed. A hidden
folder that is left over starts with a dot and is ignored by servers, which look
for integers. An existing version is never changed, since a server may be using
it: a new export is a new version.
"""

import json
import os
import re
from pathlib import Path

from keras_dml.utils.files import write_atomically
from keras_dml.utils.tensorflow import tf


def version_folder(path: Path) -> Path:
    """The folder of NAME/VERSION, or of the next version of NAME."""
    if not is_version(path):
        versions = path.iterdir() if path.exists() else ()
        taken = [int(x.name) for x in versions if is_version(x)]
        return path / str(max(taken, default=0) + 1)
    if path.exists():
        raise FileExistsError(
            "`path` of export must be a new version. Received: "
            f"path={str(path)!r}, which exists. Use path={str(path.parent)!r} "
            "for the next free version."
        )
    return path


def is_version(path: Path) -> bool:
    """Whether a server takes a folder of this name for a version."""
    return re.fullmatch("[0-9]+", path.name) is not None


def write_models_config(
    folder: str | os.PathLike[str], base_path: str = "/models"
) -> Path:
    """Writes `models.config`, which lists all models in a folder.

    Args:
        folder: The folder `saved_models`, with models written by
            `export_model`.
        base_path: The path of this folder on the server.

    Returns:
        The path of the file, to be passed to the server as
        `--model_config_file`.

    Raises:
        FileNotFoundError: If there are no models in the folder.
    """
    names = sorted(x.name for x in Path(folder).iterdir() if _has_version(x))
    if not names:
        raise FileNotFoundError(
            "`folder` of write_models_config must contain exports as "
            f"folder/NAME/VERSION. Received: folder={os.fspath(folder)!r}."
        )
    path = Path(folder, "models.config")
    entries = "".join(_entry(name, base_path) for name in names)
    # A server may be reading it at any time.
    write_atomically(path, f"model_config_list {{\n{entries}}}\n")
    return path


def _has_version(folder: Path) -> bool:
    return folder.is_dir() and any(
        is_version(x) and tf.saved_model.contains_saved_model(str(x))
        for x in folder.iterdir()
    )


def _entry(name: str, base_path: str) -> str:
    fields = {
        "name": name,
        "base_path": f"{base_path.rstrip('/')}/{name}",
        "model_platform": "tensorflow",
    }
    lines = "".join(
        f"    {key}: {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in fields.items()
    )
    return f"  config {{\n{lines}  }}\n"
