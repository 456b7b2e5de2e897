"""Division of the data: batches from clusters that are found anew."""

from collections.abc import Callable
from typing import Any

from keras_dml.methods.declaration import Arguments, Traits, Uses


def divided_data(
    num_clusters: Callable[[Arguments], int],
    only_with: tuple[str, Any] | None = None,
    left_out: Callable[[Arguments], tuple[str, ...]] = lambda method: (),
) -> Traits:
    """The traits of a method that trains on clusters of the data in turn.

    Args:
        num_clusters: The number of clusters, from the method's arguments.
        only_with: As for `Uses`.
        left_out: As for `Traits`.
    """
    return Traits(
        sampler=Uses(
            "ClusterSampler",
            ("schedule", "fill"),
            lambda method, batches: {
                **batches, "num_learners": num_clusters(method)
            },
            only_with,
        ),
        callbacks=(
            Uses(
                "Recluster",
                ("every", "partition", "cluster_space", "phases"),
                only_with=only_with,
            ),
        ),
        left_out=left_out,
    )  # fmt: skip
