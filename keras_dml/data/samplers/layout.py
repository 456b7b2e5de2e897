"""Layout of batches: which classes, and which of their images."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_dml.data.samplers.rounds import put_first
from keras_dml.utils.types import Rows


@dataclass(frozen=True)
class Groups:
    """Rows by class.

    The rows of group g are `rows[starts[g] : starts[g] + sizes[g]]`.

    Attributes:
        labels: Label of every group, (C,), ascending.
        sizes: Images of every group, (C,).
        starts: (C,).
        rows: Row numbers, group after group.
    """

    labels: Rows
    sizes: Rows
    starts: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, labels: Rows, rows: Rows, at_least: int = 1) -> "Groups":
        """Groups `rows` by their labels.

        Args:
            labels: Labels of all images, (N,).
            rows: The rows to group.
            at_least: Classes with fewer images are left out.
        """
        ordered = rows[np.argsort(labels[rows], kind="stable")]
        found, sizes = np.unique(labels[rows], return_counts=True)
        kept = sizes >= at_least
        ordered = ordered[np.repeat(kept, sizes)]
        sizes = sizes[kept].astype(np.int64)
        return cls(found[kept], sizes, np.cumsum(sizes) - sizes, ordered)


def spread(counts: Rows, steps: int, rng: np.random.Generator) -> Rows:
    """Deals items to steps, each item at most once a step.

    The items lie one after the other, each as often as it counts, and are
    cut into rows of one slot a step. The slots of each row are dealt to
    the steps at random; an item that was cut by the end of a row goes to
    steps that have not had it.

    Args:
        counts: Draws of every item, (C,), none above `steps`; their sum is
            a multiple of `steps`.
        steps: Number of steps.
        rng: Shuffles.

    Returns:
        Items of every step, (steps, sum of counts / steps), in random
        order.
    """
    order = rng.permutation(len(counts))
    rows = np.repeat(order, counts[order]).reshape(-1, steps)
    dealt = np.empty_like(rows)
    slots = rng.permutation(steps)
    for number, row in enumerate(rows):
        previous, slots = slots, rng.permutation(steps)
        if number and row[0] == rows[number - 1, -1]:
            here = int(np.argmin(np.append(row, -1) == row[0]))
            before = counts[row[0]] - here
            slots = put_first(slots, here, banned=previous[-before:])
        dealt[number, slots] = row
    return rng.permuted(dealt.T, axis=1)


def occurrences(items: Rows, before: Rows) -> Rows:
    """How often each item was drawn earlier, for every draw.

    Args:
        items: Items drawn, in order, of any shape.
        before: Draws of every item before the first one, (C,).
    """
    flat = items.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.searchsorted(ordered, ordered)
    earlier = np.empty_like(flat)
    earlier[order] = np.arange(len(flat)) - starts
    return (earlier + before[flat]).reshape(items.shape)


def draw_images(
    groups: Groups,
    drawn: Rows,
    occurrence: Rows,
    quotas: Rows,
    seed: tuple[int, ...],
) -> Rows:
    """The images of every draw of a class.

    A class goes through its images in random order, K at a time, and
    shuffles them again when fewer than K are left. A class with fewer than
    K images repeats them, each as often as the others or once more.

    Args:
        groups: The classes.
        drawn: Classes of every step, (steps, P).
        occurrence: For every draw, how often its class was drawn before,
            (steps, P).
        quotas: Images of every class of a batch, (P,). K is the largest.
        seed: Seed of the shuffles.

    Returns:
        Rows, (steps, sum of quotas).
    """
    most = int(quotas.max())
    draws_a_round = np.maximum(1, groups.sizes // most)[drawn]
    number, place = np.divmod(occurrence, draws_a_round)
    radix = int(number.max()) + 1
    rounds, inverse = np.unique(drawn * radix + number, return_inverse=True)
    shuffled, starts = _shuffle(groups, *np.divmod(rounds, radix), seed)
    first = starts[inverse.reshape(drawn.shape)]
    slot = np.arange(most)
    within = (place[..., None] * most + slot) % groups.sizes[drawn][..., None]
    taken = shuffled[first[..., None] + within]
    return taken[:, slot < quotas[:, None]]


def _shuffle(
    groups: Groups, which: Rows, number: Rows, seed: tuple[int, ...]
) -> tuple[Rows, Rows]:
    """Shuffled rows of classes, one after the other, and their starts."""
    sizes = groups.sizes[which]
    starts = np.cumsum(sizes) - sizes
    segment = np.repeat(np.arange(len(sizes)), sizes)
    within = np.arange(len(segment)) - starts[segment]
    source = groups.starts[which][segment] + within
    keys = _mix(
        *np.array(seed, np.uint64)[:, None],
        groups.labels[which][segment].astype(np.uint64),
        number[segment].astype(np.uint64),
        within.astype(np.uint64),
    )
    return groups.rows[source[np.lexsort((keys, segment))]], starts


def _mix(*parts: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hashes vectors of numbers: random keys that can be made again.

    The finalizer is that of SplitMix64 (Steele et al., 2014).
    """
    mixed = np.zeros(1, np.uint64)
    for part in parts:
        mixed = (mixed ^ part) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(
            0xBF58476D1CE4E5B9
        )
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(
            0x94D049BB133111EB
        )
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed
