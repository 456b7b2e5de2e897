"""Text that a terminal shows and does not obey."""

import re

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
