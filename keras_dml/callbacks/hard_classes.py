"""HardClasses: finds anew every few epochs which classes are confused."""

import logging
import time
from typing import Annotated, Any

import keras
from annotated_types import Ge, Le

from keras_dml.data import Examples, HardClassBalanced
from keras_dml.data.given import as_examples
from keras_dml.distribution.strategies import strategy_of
from keras_dml.distribution.workers import array_of_chief
from keras_dml.embedding.shares import embed_shares
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import Count

logger = logging.getLogger(__name__)


class HardClasses(keras.callbacks.Callback):
    """Puts classes that are near each other into one batch.

    Before epoch `start` and then every `every` epochs: embed the whole
    training set in its test view, and hand the classes whose mean
    embeddings are nearest to the sampler. So a batch holds the hardest
    negatives of the whole set, not of a random draw.

    A run that is resumed without `Resume` finds them with the model as it
    is then.

    Args:
        images: The training set, as given to the pipeline.
        sampler: The `HardClassBalanced` of the pipeline.
        every: Epochs between two searches.
        start: Epochs before the first, in which batches are those of
            `ClassBalanced`.
        batch_size: Images embedded at a time.

    Attributes:
        seconds: Time taken by all searches.

    Raises:
        ValueError: If an argument is not as described, or the sampler is
            for other images.

    Deviations:
        - Suh et al. update a signature for each class in every step; here
          it is the mean embedding of all its images, every few epochs.

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
                "classes_per_batch=32) for the pipeline, too."
            )
        images = as_examples(images, "images", "HardClasses")
        if len(images) != len(sampler.labels):
            raise ValueError(
                "`images` of HardClasses must be those that `sampler` plans. "
                f"Received: {len(images)} images and a sampler of "
                f"{len(sampler.labels)}."
            )
        self.images: Examples = images
        self.sampler = sampler
        self.every = check_count("HardClasses", "every", every)
        self.start = check_count("HardClasses", "start", start, least=0)
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
        found = self.sampler.neighbors
        if found is not None:  # On other machines digits may differ.
            self.sampler.set_neighbors(array_of_chief(found, strategy))

    def get_state(self) -> dict[str, Any]:
        """What it has seen of a training; see `Resume`."""
        return {"has_searched": self._has_searched, "seconds": self.seconds}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` gave."""
        self._has_searched = state["has_searched"]
        self.seconds = state["seconds"]
