"""Patterns: regular expressions that end, whoever wrote them."""

from collections.abc import Iterable, Sequence

import numpy as np

from keras_dml.utils.arguments import did_you_mean

_ARGUMENT = "`rate_multipliers` of MetricModel"


def matches(pattern: str, text: str, argument: str = _ARGUMENT) -> bool:
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
    return bool(_matching(pattern, [text], argument))


def check_patterns(
    patterns: Iterable[str], paths: Sequence[str], argument: str = _ARGUMENT
) -> None:
    """Checks patterns of which, for each path, the first that matches counts.

    Args:
        patterns: The patterns.
        paths: The paths of variables.
        argument: What an error calls the patterns.

    Raises:
        ValueError: If a pattern matches no path, or only those that patterns
            before it match.
    """
    left = set(paths)
    for pattern in patterns:
        found = _matching(pattern, paths, argument)
        if not found:
            parts = sorted({part for path in paths for part in path.split("/")})
            raise ValueError(
                f"{argument} must be patterns that match the path of a "
                f"variable. Received: {pattern!r}, which matches none of "
                f"{len(paths)} paths."
                f"{did_you_mean(pattern.strip('/'), parts)} Paths are, "
                f"for example, {paths[0]!r} and {paths[-1]!r}."
            )
        if not found & left:
            raise ValueError(
                f"{argument}: the first pattern that matches counts. Received: "
                f"{list(patterns)}, in which {pattern!r} matches only what "
                "those before it match. Put it before them."
            )
        left -= found


def _matching(pattern: str, texts: Sequence[str], argument: str) -> set[str]:
    """Those of the texts that a pattern matches; see `matches`."""
    # Arrow's RE2 and not TensorFlow's: recipes are checked before devices and
    # workers are set, which TensorFlow does not allow once it has computed.
    import pyarrow as arrow
    from pyarrow import compute

    try:
        found = compute.match_substring_regex(
            arrow.array(texts, arrow.string()), pattern
        )
    except (arrow.ArrowInvalid, UnicodeError) as error:
        raise ValueError(
            f"{argument} must be RE2 regular expressions, which do not "
            "support look-around or back-references. Received: "
            f'{pattern!r}. {error}. Use "/loss/", for instance.'
        ) from None
    return set(np.array(texts, object)[found.to_numpy(zero_copy_only=False)])
