"""Rounds: how often an item is drawn in an epoch."""

import numpy as np

from keras_dml.utils.types import FloatArray, Rows


def balanced_counts(
    items: int, slots: int, epoch: int, seed: tuple[int, ...]
) -> tuple[Rows, Rows]:
    """Draws of every item in an epoch, as equal as can be.

    In one epoch, and in all epochs up to it together, the counts of two
    items differ by at most one. What an epoch has beyond whole multiples
    of the items comes from rounds through all of them in random order,
    which go on from one epoch to the next.

    Args:
        items: Number of items.
        slots: Draws in an epoch.
        epoch: Number of the epoch, from 0.
        seed: Seed of the rounds.

    Returns:
        `(counts, before)`: draws in this epoch and draws in all epochs
        before it, (items,) each.
    """
    each, rest = divmod(slots, items)
    extra, used = _extra_draws(items, rest, epoch, seed)
    return each + extra, each * epoch + used


def _extra_draws(
    items: int, size: int, epoch: int, seed: tuple[int, ...]
) -> tuple[Rows, Rows]:
    """Draws of 0 or 1: `size` different items, and the draws before."""
    if size == 0:
        return np.zeros(items, np.int64), np.zeros(items, np.int64)
    # A round that follows another in the middle of an epoch needs room to
    # move items back that the epoch has had. Where `size` leaves too
    # little, choose in the same way the items to leave out.
    if 2 * size > items + 1:
        left_out, used = _extra_draws(items, items - size, epoch, seed)
        return 1 - left_out, epoch - used
    number, start = divmod(epoch * size, items)
    order = _round(items, size, number, seed)
    used = np.full(items, number)
    used[order[:start]] += 1
    drawn = order[start : start + size]
    if len(drawn) < size:
        following = _round(items, size, number + 1, seed)
        drawn = np.concatenate([drawn, following[: size - len(drawn)]])
    extra = np.zeros(items, np.int64)
    extra[drawn] = 1
    return extra, used


def _round(items: int, size: int, number: int, seed: tuple[int, ...]) -> Rows:
    """All items in random order.

    Those that the epoch has had when the round starts come late enough
    for the next epoch. Its last items are never touched by this, so that
    a round depends on the one before it, and on none further back.
    """
    order = _permutation(items, number, seed)
    had = number * items % size
    if had == 0:
        return order
    previous = _permutation(items, number - 1, seed)
    return put_first(order, size - had, banned=previous[-had:])


def _permutation(items: int, number: int, seed: tuple[int, ...]) -> Rows:
    return np.random.default_rng([*seed, number]).permutation(items)


def put_first(order: Rows, count: int, banned: Rows) -> Rows:
    """`order`, with its first `count` items that are not banned in front."""
    allowed = ~np.isin(order, banned)
    front = allowed & (np.cumsum(allowed) <= count)
    return np.concatenate([order[front], order[~front]])


def proportional_shares(
    weights: FloatArray, slots: int, steps: int
) -> FloatArray:
    """Mean draws of every item, in proportion to the weights.

    No item is drawn more than once a step, and where there are slots
    enough each is drawn at least once.

    Args:
        weights: Positive weights, (C,).
        slots: Draws in an epoch, at most C · steps.
        steps: Steps in an epoch.

    Returns:
        (C,), summing to `slots`.
    """
    least = float(slots >= len(weights))
    low, high = 0.0, (steps + 1) / weights.min()
    for _ in range(100):
        scale = (low + high) / 2
        shares = np.clip(scale * weights, least, steps)
        if shares.sum() < slots:
            low = scale
        else:
            high = scale
    return np.clip(high * weights, least, steps)


def random_counts(
    shares: FloatArray, slots: int, rng: np.random.Generator
) -> Rows:
    """Whole numbers of draws: each share rounded down or up, at random.

    Args:
        shares: Mean draws, (C,), summing to `slots`.
        slots: Draws in an epoch.
        rng: Decides which shares are rounded up; the larger the fraction,
            the more likely (Efraimidis and Spirakis, 2006).
    """
    # What should be whole may be a little less after summation.
    counts = np.floor(shares + 1e-6).astype(np.int64)
    fractions = np.maximum(shares - counts, 1e-12)
    keys = np.log(rng.random(len(shares))) / fractions
    up = np.argsort(-keys, kind="stable")[: slots - counts.sum()]
    counts[up] += 1
    return counts
