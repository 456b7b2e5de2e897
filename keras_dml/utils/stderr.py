"""Standard error, without what other libraries note there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stderr_held_back() -> Iterator[None]:
    """Keeps back what is written to stderr, and prints it after an error.

    It is for libraries that write there from C++, which no log setting changes.
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
