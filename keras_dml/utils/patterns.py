"""Patterns: regular expressions that end, whoever wrote them."""

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
