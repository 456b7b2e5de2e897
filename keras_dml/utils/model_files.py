"""Model files, read as from a stranger."""

import os

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
            f"{type(error).__name__}: {error}"
        ) from error
