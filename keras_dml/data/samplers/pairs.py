"""PairSampler: random images, each with a positive or negative partner."""

import numpy as np
import numpy.typing as npt

from keras_dml.data.samplers.base import Sampler
from keras_dml.data.samplers.planning import Groups, balanced_counts, spread
from keras_dml.utils.types import Count, Rows, Several


class PairSampler(Sampler):
    """Batches of pairs, half of them positive, as in ABE.

    A batch is `[anchors, partners]`. The anchors are different images. In the
    first half, the partner of each anchor is another image of its class; in
    the second half, it is an image of another class. Anchors are drawn equally
    often, to within one draw.

    Corner case: an image that is the only one of its class is never an anchor,
    but may be a negative partner.

    Args:
        labels: Class of every image, (N,) integers.
        num_pairs: Number of pairs in a batch, an even number; half the batch
            size.
        seed: Seed of all plans.
        steps_per_epoch: See `Sampler`.

    Raises:
        ValueError: If `num_pairs` is odd, if there are fewer anchors than
            pairs, or if there is only one class.

    Also known as:
        None of the compared libraries has an equivalent.

    Example:
        `PairSampler(train.labels, num_pairs=64)`

    Reference:
        Kim et al., "Attention-based Ensemble for Deep Metric Learning",
        ECCV 2018, Sec. 4.2.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        num_pairs: Several = 32,
        seed: int = 0,
        steps_per_epoch: Count | None = None,
    ) -> None:
        self.num_pairs = num_pairs
        super().__init__(labels, 2 * self.num_pairs, seed, steps_per_epoch)
        self._warn_of_unknown()
        self._groups = Groups.of(self.labels, np.arange(len(self.labels)))
        self._anchors = np.flatnonzero(
            np.repeat(self._groups.sizes, self._groups.sizes) >= 2
        )
        if self.num_pairs % 2:
            raise ValueError(
                "`num_pairs` of PairSampler must be even, so that half of the "
                f"pairs can be positive. Received: num_pairs={num_pairs}."
            )
        if len(self._anchors) < self.num_pairs or len(self._groups) < 2:
            raise ValueError(
                "`labels` of PairSampler must have at least two classes and, "
                "in classes of at least two images, at least `num_pairs` "
                f"images. Received: {len(self._groups)} classes, "
                f"{len(self._anchors)} images in such classes, "
                f"num_pairs={num_pairs}."
            )

    def plan(self, epoch: int) -> Rows:
        """Rows of every batch, anchors and partners, (steps, 2 · num_pairs)."""
        rng = np.random.default_rng([self.seed, 0, epoch])
        slots = self.steps * self.num_pairs
        counts, _ = balanced_counts(
            len(self._anchors), slots, epoch, (self.seed, 1)
        )
        # Positions in the rows sorted by class, where a class is an interval.
        anchors = self._anchors[spread(counts, self.steps, rng)]
        groups = self._groups
        group = np.searchsorted(groups.starts, anchors, side="right") - 1
        start, size = groups.starts[group], groups.sizes[group]
        half = self.num_pairs // 2
        offsets = rng.integers(size - 1)
        positive = start + (anchors - start + 1 + offsets) % size
        total = len(self.labels)
        negative = (start + size + rng.integers(total - size)) % total
        partners = np.hstack([positive[:, :half], negative[:, half:]])
        return groups.rows[np.hstack([anchors, partners])]
