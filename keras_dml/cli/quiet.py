"""The import of TensorFlow and of the package, without TensorFlow's notes."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


def import_package() -> None:
    """Imports all parts of the package, whose classes saved models name.

    TensorFlow logs warnings and errors only, unless TF_CPP_MIN_LOG_LEVEL
    is set.
    """
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if level in ("2", "3") and "tensorflow" not in sys.modules:
        with _silent_unless_it_fails():
            import tensorflow as tf

            if not os.path.exists("/dev/nvidiactl"):
                # It would note later, as an error, that there is no GPU.
                tf.config.list_physical_devices("GPU")
    import keras_dml

    keras_dml.import_parts()


@contextmanager
def _silent_unless_it_fails() -> Iterator[None]:
    """Keeps back what is written to stderr, and prints it after an error.

    At every log level, TensorFlow notes there that it uses oneDNN, from C++
    and before its log can be set.
    """
    try:
        kept = os.dup(2)
    except OSError:  # There is no stderr.
        yield
        return
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        except BaseException:
            written.seek(0)
            os.write(kept, written.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
