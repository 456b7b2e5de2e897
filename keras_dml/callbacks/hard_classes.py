"""HardClasses: finds classes that are confused, every few epochs."""

import logging
import time
from typing import Annotated, Any

import keras
import numpy as np
from annotated_types import Ge, Le

from keras_dml.data import Examples, HardClassBalanced
from keras_dml.data.reading import as_examples
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import done_by_chief
from keras_dml.embedding.in_memory import embed_shares
from keras_dml.utils.arguments import Checked
from keras_dml.utils.types import Count

logger = logging.getLogger(__name__)


class HardClasses(Checked, keras.callbacks.Callback):
    """Puts classes with similar embeddings into the same batch.

    Before epoch `start` and then every `every` epochs, it embeds the whole
    training set in the test view, and tells the sampler which classes have the
    nearest mean embeddings. So a batch contains the hardest negatives of the
    whole set instead of a random selection.

    If training continues without `Resume`, they are found with the model at
    that point.

    Args:
        images: The training set, as given to the pipeline.
        sampler: The `HardClassBalanced` of the pipeline.
        every: Number of epochs between two searches.
        start: Number of epochs before the first search. Until then, batches are
            those of `ClassBalanced`.
        batch_size: Number of images to embed at a time.

    Attributes:
        seconds: Time spent on all searches.

    Raises:
        ValueError: If an argument is invalid, or the sampler is for other
            images.

    Deviations:
        - Suh et al. update a signature of each class in every step. Here, it is
          the mean embedding of all images of the class, every few epochs.

    Reference:
        Suh et al., "Stochastic Class-based Hard Example Mining for Deep
        Metric Learning", CVPR 2019.
    """

    def __init__(
        self,
        images: Examples,
        sampler: HardClassBalanced,
        every: Count = 1,
        start: Annotated[int, Ge(0), Le(10**6)] = 0,
        *,
        batch_size: int = 256,
    ) -> None:
        super().__init__()
        if not isinstance(sampler, HardClassBalanced):
            raise ValueError(
                "`sampler` of HardClasses must be a data.HardClassBalanced. "
                f"Received: {sampler!r}. Use HardClassBalanced(labels, "
                "classes_per_batch=32), also for the pipeline."
            )
        images = as_examples(images, "images", "HardClasses")
        if len(images) != len(sampler.labels):
            raise ValueError(
                "`images` of HardClasses must be the images of `sampler`. "
                f"Received: {len(images)} images and a sampler for "
                f"{len(sampler.labels)}."
            )
        self.images: Examples = images
        self.sampler = sampler
        self.every = every
        self.start = start
        self.batch_size = batch_size
        self.seconds = 0.0
        self._has_searched = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.sampler.epoch = epoch
        if epoch < self.start:
            self.sampler.set_neighbors(None)
            return
        is_due = (epoch - self.start) % self.every == 0
        if self._has_searched and not is_due:
            return
        began = time.perf_counter()
        self._search()
        self._has_searched = True
        seconds = time.perf_counter() - began
        self.seconds += seconds
        logger.info(
            "Hard classes before epoch %d: found in %.1f s.", epoch + 1, seconds
        )

    def _search(self) -> None:
        strategy = strategy_of(self.model)
        self.sampler.set_embeddings(
            embed_shares(self.model, self.images, self.batch_size, strategy)
        )
        local_neighbors = self.sampler.neighbors
        if local_neighbors is not None:  # Rounding may differ between machines.
            neighbors = done_by_chief(local_neighbors.tolist, strategy)
            self.sampler.set_neighbors(np.array(neighbors))

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {"has_searched": self._has_searched, "seconds": self.seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._has_searched = state["has_searched"]
        self.seconds = state["seconds"]
