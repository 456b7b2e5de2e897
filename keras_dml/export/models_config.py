"""The list of models that TensorFlow Serving is to serve."""

import json
import os
from pathlib import Path

import tensorflow as tf

from keras_dml.export.versions import is_version
from keras_dml.utils.files import write_atomically

FILE = "models.config"


def write_models_config(
    folder: str | os.PathLike[str], base_path: str = "/models"
) -> Path:
    """Writes `models.config`, which names all models of a folder.

    Args:
        folder: `saved_models`, with models in it as `export` writes them.
        base_path: Where the server finds that folder.

    Returns:
        The file, to be given to the server as `--model_config_file`.

    Raises:
        FileNotFoundError: If there are no models in the folder.
    """
    models = sorted(x for x in Path(folder).iterdir() if _has_version(x))
    if not models:
        raise FileNotFoundError(
            "`folder` of write_models_config must have exports in it, as "
            f"folder/NAME/VERSION. Received: folder={os.fspath(folder)!r}."
        )
    entries = "".join(_entry(x.name, base_path) for x in models)
    path = Path(folder, FILE)
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
