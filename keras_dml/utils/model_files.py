"""Model files, read as from a stranger."""

import os
import zipfile

import keras

from keras_dml.utils.files import check_regular


def read_model(path: str | os.PathLike[str]) -> keras.Model:
    """The model in a `.keras` file, without its optimizer.

    Keras runs no code of the file: it refuses Lambda layers and classes that
    are not registered.

    Raises:
        OSError: If it is not there, or is no regular file.
        ValueError: If it is damaged, or Keras refuses it.
    """
    check_regular(path)
    try:
        return keras.models.load_model(path, compile=False)
    # Whatever Keras stumbles over, the file is what is wrong.
    except Exception as error:
        raise ValueError(
            f"The model file {os.fspath(path)!r} cannot be read. "
            f"{why_unreadable(path, error)}"
        ) from error


def why_unreadable(path: str | os.PathLike[str], error: Exception) -> str:
    """Why Keras cannot load a model; of half a file, it says "not found"."""
    if os.path.isfile(path) and not zipfile.is_zipfile(path):
        return (
            "It is cut off or damaged: a .keras file is a zip archive. Save or "
            "copy it again."
        )
    return f"{type(error).__name__}: {error}"
