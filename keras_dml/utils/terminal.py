"""What a terminal gets: text that it shows and does not obey, and no notes."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_CONTROLS = re.compile(
    # Of C0 not tab and newline; C1; line ends, directions, half characters.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """A text without what a terminal would obey.

    Names of files, labels and values of recipes may hold sequences that
    clear a screen, change its title or turn the direction of writing.
    """
    return _CONTROLS.sub(lambda x: f"\\u{ord(x[0]):04x}", text)


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
