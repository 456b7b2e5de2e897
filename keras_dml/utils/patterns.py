"""Patterns: regular expressions that select variables by their paths."""

import re
from collections.abc import Iterable, Sequence

from keras_dml.utils.arguments import did_you_mean

_ARGUMENT = "`rate_multipliers` of MetricModel"


def matches(pattern: str, text: str, argument: str = _ARGUMENT) -> bool:
    """Whether a regular expression matches some part of a text.

    Args:
        pattern: The expression.
        text: The text.
        argument: What an error calls the pattern.

    Raises:
        ValueError: If it is none.
    """
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{argument} must be regular expressions. Received: {pattern!r}. "
            f'{error}. Use "/loss/", for instance.'
        ) from None


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
        found = {path for path in paths if matches(pattern, path, argument)}
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
