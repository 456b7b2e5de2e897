"""Plans of batches: how often and when a class is drawn, and which images."""

import logging
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from keras_dml.utils.types import FloatArray, Rows

logger = logging.getLogger(__name__)

MAX_DEFAULT_CLASSES = 32
"""Number of classes of a batch by default, if there are as many."""

Seed: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Groups:
    """Rows by class: group g is `rows[starts[g] : starts[g] + sizes[g]]`.

    Labels, sizes and starts are (C,), in the order of the labels.
    """

    labels: Rows
    sizes: Rows
    starts: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, labels: Rows, rows: Rows, at_least: int = 1) -> "Groups":
        """Groups `rows` by their labels, without classes of too few images."""
        ordered = rows[np.argsort(labels[rows], kind="stable")]
        classes, sizes = np.unique(labels[rows], return_counts=True)
        is_kept = sizes >= at_least
        ordered = ordered[np.repeat(is_kept, sizes)]
        sizes = sizes[is_kept].astype(np.int64)
        return cls(classes[is_kept], sizes, np.cumsum(sizes) - sizes, ordered)


def default_classes(requested: int | None, available: int) -> int:
    """The requested number of classes, or by default 32, or all."""
    if requested is not None:
        return requested
    if available < MAX_DEFAULT_CLASSES:
        logger.info(
            "Batches have all %d classes with several images.", available
        )
    return max(1, min(MAX_DEFAULT_CLASSES, available))


def balanced_counts(
    items: int, slots: int, epoch: int, seed: Seed
) -> tuple[Rows, Rows]:
    """Number of draws of every item in an epoch, and in all epochs before.

    In one epoch, and in all epochs up to it together, the counts of two items
    differ by at most one: rounds through all items, in random order, continue
    from one epoch to the next.
    """
    each, rest = divmod(slots, items)
    extra, used = _extra_draws(items, rest, epoch, seed)
    return each + extra, each * epoch + used


def _extra_draws(
    items: int, size: int, epoch: int, seed: Seed
) -> tuple[Rows, Rows]:
    """Draws of 0 or 1 for `size` different items, and the draws before."""
    if size == 0:
        return np.zeros(items, np.int64), np.zeros(items, np.int64)
    # A round that starts within an epoch needs room to move back the items
    # that the epoch has already had. If `size` leaves too little, the items
    # to leave out are drawn instead, in the same way.
    if 2 * size > items + 1:
        left_out, used = _extra_draws(items, items - size, epoch, seed)
        return 1 - left_out, epoch - used
    number, start = divmod(epoch * size, items)
    order = _round(items, size, number, seed)
    used = np.full(items, number)
    used[order[:start]] += 1
    chosen = order[start : start + size]
    if len(chosen) < size:
        following = _round(items, size, number + 1, seed)
        chosen = np.concatenate([chosen, following[: size - len(chosen)]])
    extra = np.zeros(items, np.int64)
    extra[chosen] = 1
    return extra, used


def _round(items: int, size: int, number: int, seed: Seed) -> Rows:
    """All items in random order.

    Items that the epoch has already had when the round starts come late enough
    to fall into the next epoch. The last items of a round are never moved by
    this, so that a round depends only on the one before it.
    """
    order = np.random.default_rng([*seed, number]).permutation(items)
    had = number * items % size
    if had == 0:
        return order
    previous = np.random.default_rng([*seed, number - 1]).permutation(items)
    return put_first(order, size - had, banned=previous[-had:])


def put_first(order: Rows, count: int, banned: Rows) -> Rows:
    """`order`, with its first `count` items that are not banned in front."""
    allowed = ~np.isin(order, banned)
    front = allowed & (np.cumsum(allowed) <= count)
    return np.concatenate([order[front], order[~front]])


def proportional_shares(
    weights: FloatArray, slots: int, steps: int
) -> FloatArray:
    """Mean draws of every item in an epoch, (C,), summing to `slots`.

    They are proportional to the weights, (C,), except that no item is drawn
    more than once per step, and if there are enough slots, each is drawn at
    least once.
    """
    min_draws = float(slots >= len(weights))
    low, high = 0.0, (steps + 1) / weights.min()
    for _ in range(100):
        scale = (low + high) / 2
        is_low = np.clip(scale * weights, min_draws, steps).sum() < slots
        low, high = (scale, high) if is_low else (low, scale)
    return np.clip(high * weights, min_draws, steps)


def random_counts(
    shares: FloatArray, slots: int, rng: np.random.Generator
) -> Rows:
    """Integer numbers of draws with the same sum as the shares (C,), `slots`.

    Each share is rounded down or up at random: the larger its fraction, the
    more likely it is rounded up (Efraimidis and Spirakis, 2006).
    """
    # Rounding may leave whole numbers a little too small.
    counts = np.floor(shares + 1e-6).astype(np.int64)
    fractions = np.maximum(shares - counts, 1e-12)
    keys = np.log(rng.random(len(shares))) / fractions
    up = np.argsort(-keys, kind="stable")[: slots - counts.sum()]
    counts[up] += 1
    return counts


def spread(counts: Rows, steps: int, rng: np.random.Generator) -> Rows:
    """Assigns items to steps, each item at most once per step.

    The items are lined up, each as often as it is counted, and cut into rows
    with one slot per step. The slots of each row are assigned to the steps at
    random; an item that spans the end of a row goes to steps that do not have
    it yet.

    The counts, (C,), must not exceed `steps`, and must sum to a multiple of
    it. The result is (steps, sum / steps), each step in random order.
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
    """Number of draws of each item before each draw, plus those `before`."""
    flat = items.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.searchsorted(ordered, ordered)
    earlier = np.empty_like(flat)
    earlier[order] = np.arange(len(flat)) - starts
    return (earlier + before[flat]).reshape(items.shape)


def draw_images(
    groups: Groups, classes: Rows, before: Rows, share: Rows, seed: Seed
) -> Rows:
    """The images of every draw of a class, (steps, sum of the share).

    A class uses its images in random order, K at a time, and shuffles them
    again when fewer than K remain. A class with fewer than K images repeats
    them, each as often as the others or once more. The classes of the steps are
    (steps, P), after as many draws `before`, (C,); the share, (P,), is the
    number of their images in a batch, of which K is the largest.
    """
    k = int(share.max())
    draws_a_round = np.maximum(1, groups.sizes // k)[classes]
    number, position = np.divmod(occurrences(classes, before), draws_a_round)
    radix = int(number.max()) + 1
    rounds, inverse = np.unique(classes * radix + number, return_inverse=True)
    shuffled, starts = _shuffle(groups, *np.divmod(rounds, radix), seed)
    first = starts[inverse.reshape(classes.shape)]
    slot = np.arange(k)
    within = (position[..., None] * k + slot) % groups.sizes[classes][..., None]
    images = shuffled[first[..., None] + within]
    return images[:, slot < share[:, None]]


def quotas(batch_size: int, classes: int) -> Rows:
    each, rest = divmod(batch_size, classes)
    return each + (np.arange(classes) < rest).astype(np.int64)


def _shuffle(
    groups: Groups, which: Rows, number: Rows, seed: Seed
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
    """Hashes vectors of numbers to random keys that can be reproduced.

    The finalizer is that of SplitMix64 (Steele et al., 2014).
    """
    increment, first, second = (
        np.uint64(x)
        for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
    )
    mixed = np.zeros(1, np.uint64)
    for part in parts:
        mixed = (mixed ^ part) + increment
        mixed = (mixed ^ (mixed >> np.uint64(30))) * first
        mixed = (mixed ^ (mixed >> np.uint64(27))) * second
        mixed = mixed ^ (mixed >> np.uint64(31))
    return mixed
