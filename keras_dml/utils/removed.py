"""What has left the package, and what to use instead."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_DATABASE = (
    "Fill a database by its own client, as docs/guides/databases.md shows."
)

_PRECISION = (
    'Use a factory string of faiss: "SQfp16", "SQ8" or "RaBitQ,RFlat", also in '
    'lists, such as "IVF1024,SQ8".'
)

_SEARCH = (
    "Evaluation is one process that uses all cores. For a sample of the "
    "queries, use --queries."
)

_CLUSTER = (
    "Commands train on one machine. For several, set up a cluster as "
    "tf.distribute or jax.distributed say, and train by MetricModel.fit."
)

REMOVED = {
    "embed --max-bad": (
        "Images must be readable: `keras-dml data check` lists those that are "
        "not."
    ),
    "embed --workers": (
        "Embedding is one process that uses all cores. For several machines, "
        "use --ray."
    ),
    "evaluate --ray": _SEARCH,
    "evaluate --workers": _SEARCH,
    "export --models-config": (
        "Write models.config by hand, as docs/guides/tensorflow_serving.md "
        "shows."
    ),
    "index --precision": _PRECISION,
    "index --store": _DATABASE,
    "precision": _PRECISION,
    "push": _DATABASE,
    "store": _DATABASE,
    "train --index": _CLUSTER,
    "train --wait": _CLUSTER,
    "train --workers": _CLUSTER,
}
"""One sentence each, by argument, or by command and option."""


def explain_removed(owner: str) -> Callable[[F], F]:
    """Decorator: passing a removed argument by name raises a TypeError.

    Args:
        owner: The function or class that messages name.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in kwargs.keys() & REMOVED.keys():
                raise TypeError(
                    f"{owner} has no argument `{name}` any more. Received: "
                    f"{name}={kwargs[name]!r}. {REMOVED[name]}"
                )
            return function(*args, **kwargs)

        return cast(F, call)

    return decorate
