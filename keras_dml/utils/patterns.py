"""Patterns: regular expressions that end, whoever wrote them."""

from collections.abc import Iterable, Sequence

import tensorflow as tf


def matches(
    pattern: str,
    text: str,
    argument: str = "`rate_multipliers` of MetricModel",
) -> bool:
    """Whether a regular expression matches some part of a text.

    It is one of RE2, which takes time in proportion to the text. Python's
    may take longer than anyone waits.

    Args:
        pattern: The expression.
        text: The text.
        argument: What an error calls the pattern.

    Raises:
        ValueError: If it is none.
    """
    with tf.init_scope():
        try:
            found = tf.strings.regex_full_match(
                text, f"(?s:.*)({pattern})(?s:.*)"
            )
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"{argument} must be RE2 regular expressions, which do not "
                "support look-around or back-references. Received: "
                f"{pattern!r}. "
                f'{error.message}. Use "/loss/", for instance.'
            ) from None
    return bool(found)


def check_order(
    argument: str, patterns: Iterable[str], paths: Sequence[str]
) -> None:
    """Checks patterns of which, for each path, the first that matches counts.

    Args:
        argument: What an error calls the patterns.
        patterns: The patterns. One that matches no path is let pass.
        paths: The paths.

    Raises:
        ValueError: If patterns before one match all that it matches.
    """
    left = set(paths)
    for pattern in patterns:
        found = {path for path in paths if matches(pattern, path, argument)}
        if found and not found & left:
            raise ValueError(
                f"{argument}: the first pattern that matches counts. Received: "
                f"{list(patterns)}, in which {pattern!r} matches only what "
                "those before it match. Put it before them."
            )
        left -= found
