"""Weights of pairs against float64 loops: every loss on pairs or triplets.

The loop of a loss stands here, or as `LOOPS` in the tests of its own file: by
case, the arguments of the loss and a function of the labels, the unit
embeddings, the two matrices of weights and the name of the miner.
"""

import functools
import importlib
import math
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from keras_dml.losses.mining import get as get_miner
from keras_dml.losses.pairs import compare
from tests.conftest import quick
from tests.losses.oracle import (
    LABELS,
    batch,
    check_slopes,
    log_sum,
    sets,
    softplus,
    unit,
    value_and_gradient,
)
from tests.losses.test_contract import built, default

LOSSES = {name: entry.value for name, entry in losses.LOSSES.items()}
PAIRWISE = [n for n in LOSSES if LOSSES[n].weights_pairs]
MINERS = ["easy", "semihard", "hard", "multi_similarity"]


def weights(labels, seed=1):
    """Two matrices with zeros, ones and numbers in between and above."""
    generator = np.random.default_rng(seed)
    size = (2, len(labels), len(labels))
    values = generator.uniform(0.2, 2.0, size)
    values[generator.uniform(size=size) < 0.2] = 0.0
    return values


def mined(mining, labels, d):
    """All triplets (a, p, n) that mining yields, by loops over distances."""
    for a, same, other in sets(labels):
        if not same or not other:
            continue
        to, away = (lambda j, a=a: d[a, j]), max(other, key=lambda j: d[a, j])
        closest = min(other, key=to)
        if mining == "hard":
            yield a, max(same, key=to), closest
            continue
        for p in [min(same, key=to)] if mining == "easy" else same:
            if mining == "all":
                yield from ((a, p, n) for n in other)
            elif mining == "multi_similarity":
                if d[a, p] > d[a, closest] - 0.1:
                    limit = max(d[a, q] for q in same) + 0.1
                    yield from ((a, p, n) for n in other if d[a, n] < limit)
            else:
                beyond = [n for n in other if d[a, n] > d[a, p]]
                yield a, p, min(beyond, key=to) if beyond else away


def counts(mining, labels, d):
    """How often each pair counts in a loss on pairs."""
    positive, negative = np.zeros((2, *d.shape))
    for a, same, other in sets(labels):
        if mining == "all":
            positive[a, same], negative[a, other] = 1, 1
        elif mining == "multi_similarity" and same and other:
            positive[a, same] = d[a, same] > d[a, other].min() - 0.1
            negative[a, other] = d[a, other] < d[a, same].max() + 0.1
    if mining not in ("all", "multi_similarity"):
        for a, p, n in mined(mining, labels, d):
            positive[a, p] += 1
            negative[a, n] += 1
    return positive, negative


def squared(x):
    return np.array([[sum((u - v) ** 2) for v in x] for u in x])


def average(terms, weight, times, nonzero=False):
    """Σ count · weight · term / Σ count, of the terms above 0 if asked."""
    used = times * (terms > 0) if nonzero else times
    total = (terms * weight * times).sum()
    return total / used.sum() if used.sum() else 0.0


def on_pairs(pull, push, distance, nonzero=False):
    """Losses that are a mean over positive and one over negative pairs."""

    def loop(labels, x, w, mining):
        d = distance(x)
        positive, negative = counts(mining, labels, d)
        return average(pull(d), w[0], positive, nonzero) + average(
            push(d), w[1], negative, nonzero
        )

    return loop


def summed(labels, x, w, mining):
    """The contrastive loss of ABE, Eq. 10."""
    d = squared(x)
    positive, negative = counts(mining, labels, d)
    terms = w[0] * positive * d + w[1] * negative * np.maximum(1 - d, 0)
    return terms.sum() / len(labels)


def on_pairs_jointly(pull, push, nonzero):
    """One mean over both kinds of pairs, as in HDC's released code."""

    def loop(labels, x, w, mining):
        d = squared(x)
        masks = counts(mining, labels, d)
        terms = np.concatenate([pull(d), push(d)], axis=1)
        both = [np.concatenate(pair, axis=1) for pair in (w, masks)]
        return average(terms, *both, nonzero)

    return loop


def margin(labels, x, w, mining):
    d = np.sqrt(squared(x))
    positive, negative = counts(mining, labels, d)
    pull, push = np.maximum(d - 1.0, 0), np.maximum(1.4 - d, 0)
    total = (w[0] * positive * pull + w[1] * negative * push).sum()
    return total / ((pull > 0) * positive + (push > 0) * negative).sum()


def margin_triplets(labels, x, w, mining, alpha=0.2, every=False):
    d = np.sqrt(squared(x))
    total, count = 0.0, 0
    for a, p, n in mined(mining, labels, d):
        pull, push = (
            max(d[a, p] + alpha - 1.2, 0),
            max(alpha + 1.2 - d[a, n], 0),
        )
        total += w[0][a, p] * pull + w[1][a, n] * push
        count += every or pull > 0 or push > 0
    return total / count


def triplet(
    labels, x, w, mining, link=lambda gap: max(gap, 0.0), distance=squared,
    violated=False,
):  # fmt: skip
    d = distance(x)
    triplets = list(mined(mining, labels, d))
    terms = [link(d[a, p] - d[a, n] + 0.2) for a, p, n in triplets]
    total = sum(
        w[0][a, p] * w[1][a, n] * term
        for term, (a, p, n) in zip(terms, triplets, strict=True)
    )
    return total / (np.count_nonzero(terms) if violated else len(terms))


def angular(labels, x, w, mining):
    terms = []
    for a, same, other in sets(labels):
        for p in same if other else []:
            f = [4 * (x[a] + x[p]) @ x[n] - 4 * x[a] @ x[p] for n in other]
            terms.append(w[0][a, p] * log_sum(f, w[1][a, other], one=1.0))
    return sum(terms) / len(terms)


def rows(term, d_of, empty=True, alone=True):
    """Losses with one term an anchor: without pairs, without positives."""

    def loop(labels, x, w, mining):
        d = d_of(x)
        positive, negative = counts(mining, labels, d)
        terms = []
        for a in range(len(labels)):
            p, n = np.flatnonzero(positive[a]), np.flatnonzero(negative[a])
            if (empty or len(n)) and (alone or len(p)):
                terms.append(term(d[a], w[0][a], w[1][a], p, n))
        return sum(terms) / len(terms)

    return loop


def multi_similarity(d, wp, wn, p, n):
    pull = log_sum(2 * (d[p] + 0.5), wp[p], one=1.0) / 2
    return pull + log_sum(-50 * (d[n] + 0.5), wn[n], one=1.0) / 50


def circle(labels, x, w, mining):
    # The paces of the similarities are those at `FIXED`: no gradient.
    d, fixed = -(x @ x.T), FIXED[len(labels)] @ FIXED[len(labels)].T
    positive, negative = counts(mining, labels, d)
    terms = []
    for a in range(len(labels)):
        p, n = np.flatnonzero(positive[a]), np.flatnonzero(negative[a])
        if len(p) and len(n):
            pull = 1.4 - np.minimum(fixed[a, p], 1.4)
            push = np.maximum(fixed[a, n] + 0.4, 0)
            terms.append(
                softplus(
                    log_sum(20 * pull * (0.6 + d[a, p]), w[0][a, p])
                    + log_sum(20 * push * (-d[a, n] - 0.4), w[1][a, n])
                )
            )
    return sum(terms) / len(terms)


def lifted(labels, x, w, mining):
    d = np.sqrt(squared(x))
    positive, negative = counts(mining, labels, d)
    total = 0.0
    for a, p in np.argwhere(positive):
        k, at = np.flatnonzero(negative[a]), np.flatnonzero(negative[:, p])
        sums = np.concatenate([1 - d[a, k], 1 - d[at, p]])
        weight = np.concatenate([w[1][a, k], w[1][at, p]])
        violation = max(log_sum(sums, weight) + d[a, p], 0)
        total += positive[a, p] * w[0][a, p] * 0.5 * violation**2
    return total / positive.sum()


def lifted_generalized(d, wp, wn, p, n):
    return max(log_sum(d[p], wp[p]) + log_sum(1 - d[n], wn[n]), 0)


def softmax(temperature, labels, x, w, mining):
    s = x @ x.T / temperature
    positive, negative = counts(mining, labels, cosine(x))
    total = 0.0
    for a, p in np.argwhere(positive):
        n = np.flatnonzero(negative[a])
        rest = log_sum(s[a, n], w[1][a, n]) - s[a, p]
        total += positive[a, p] * w[0][a, p] * softplus(rest)
    return total / positive.sum()


def multi_sup_con(labels, x, w, mining):
    s = x @ x.T / 0.1
    positive, negative = counts(mining, labels, cosine(x))
    terms = []
    for a in range(len(labels)):
        p, n = np.flatnonzero(positive[a]), np.flatnonzero(negative[a])
        if len(p):
            weight = np.concatenate([np.ones(len(p)), w[1][a, n]])
            total = log_sum(np.concatenate([s[a, p], s[a, n]]), weight)
            each = (positive[a] * w[0][a])[p] * (total - s[a, p])
            terms.append(each.sum() / positive[a].sum())
    return sum(terms) / len(terms)


def sup_con(labels, x, w, mining):
    s = x @ x.T / 0.1
    positive, negative = counts(mining, labels, cosine(x))
    terms = []
    for a in range(len(labels)):
        p, n = np.flatnonzero(positive[a]), np.flatnonzero(negative[a])
        if not len(p):
            continue
        weight = np.concatenate([w[0][a, p], w[1][a, n]])
        total = log_sum(np.concatenate([s[a, p], s[a, n]]), weight)
        each = [positive[a, q] * w[0][a, q] * (total - s[a, q]) for q in p]
        terms.append(sum(each) / positive[a].sum())
    return sum(terms) / len(terms)


def histograms(values, weight, nodes):
    """Soft counts at nodes that are 1 apart, from 0."""
    result = np.zeros(nodes)
    for value, w in zip(values, weight, strict=True):
        node = min(int(value), nodes - 2)
        result[node] += w * (1 - (value - node))
        result[node + 1] += w * (value - node)
    return result


def fast_ap(labels, x, w, mining):
    d, terms = squared(x) * 2.5, []
    for a, same, other in sets(labels):
        of_positive, of_negative = w[0][a, same], w[1][a, other]
        if of_positive.any() and of_negative.any():
            near = histograms(d[a, same], of_positive, 11)
            all_up_to = near + histograms(d[a, other], of_negative, 11)
            all_up_to = np.cumsum(all_up_to)
            has_terms = all_up_to > 0
            precision = np.cumsum(near)[has_terms] / all_up_to[has_terms]
            terms.append(1 - near[has_terms] @ precision / of_positive.sum())
    return sum(terms) / len(terms)


def histogram(labels, x, w, mining):
    s = (x @ x.T + 1) * 50
    same = np.equal.outer(labels, labels)
    other, same = ~same, same & ~np.eye(len(labels), dtype=bool)
    positive = histograms(s[same], w[0][same], 101) / w[0][same].sum()
    negative = histograms(s[other], w[1][other], 101) / w[1][other].sum()
    return negative @ np.cumsum(positive)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def ranking(of_anchor):
    """Losses of how many are ranked above each positive, softly."""

    def loop(labels, x, w, mining):
        s, terms = x @ x.T, []
        for a, same, other in sets(labels):
            above = [
                [
                    sum(
                        w[k][a, j] * sigmoid(10 * (s[a, j] - s[a, i]))
                        for j in js
                        if j != i
                    )
                    for k, js in enumerate((same, other))
                ]
                for i in same
            ]
            if same:
                terms.append(of_anchor(w[0][a, same], above))
        return sum(terms) / len(terms)

    return loop


def lost_precision(weight, above):
    lost = [
        w * n / (1 + p + n) for w, (p, n) in zip(weight, above, strict=True)
    ]
    return sum(lost) / len(lost)


def pnp(penalty):
    def of_anchor(weight, above):
        lost = [w * penalty(n) for w, (_, n) in zip(weight, above, strict=True)]
        return sum(lost) / len(lost)

    return ranking(of_anchor)


def lost_recall(weight, above):
    total, lost = sum(weight), 0.0
    for k in (1, 2, 4, 8, 16) if total else ():
        pairs = zip(weight, above, strict=True)
        recall = sum(w * sigmoid(k - 1 - p - n) for w, (p, n) in pairs)
        lost += (1 - recall / total) / 5
    return lost


def nca(d, wp, wn, p, n):
    same = log_sum(-d[p], wp[p])
    if same == -math.inf:
        return 0.0
    return softplus(log_sum(-d[n], wn[n]) - same)


def instance(d, wp, wn, p, n):
    return log_sum(-9 * (1 + d[n]), wn[n], one=1.0)


def decoupled(labels, x, w, mining, sigma=None):
    s = x @ x.T
    positive, negative = counts(mining, labels, cosine(x))
    positive *= negative.any(axis=1, keepdims=True)
    powers = np.exp(s / sigma) if sigma else np.ones_like(s)
    pace = 2 - powers * positive.sum() / (positive * powers).sum()
    total = 0.0
    for a, p in np.argwhere(positive):
        n = np.flatnonzero(negative[a])
        rest = log_sum(s[a, n] / 0.1, w[1][a, n])
        if rest > -math.inf:
            term = rest - pace[a, p] * s[a, p] / 0.1
            total += positive[a, p] * w[0][a, p] * term
    return total / positive.sum()


def tuplet(labels, x, w, mining):
    angles = np.arccos(np.clip(x @ x.T, -1, 1))
    positive, negative = counts(mining, labels, cosine(x))
    total = 0.0
    for a, p in np.argwhere(positive):
        n = np.flatnonzero(negative[a])
        rest = 64 * (np.cos(angles[a, n]) - math.cos(angles[a, p] - 0.1))
        term = log_sum(rest, w[1][a, n], one=1.0)
        total += positive[a, p] * w[0][a, p] * term
    return total / positive.sum()


def dynamic_soft_margin(labels, x, w, mining):
    now, fixed = euclidean(x), euclidean(FIXED[len(labels)])
    triplets = list(mined(mining, labels, fixed))
    shares = cumulated([fixed[a, p] - fixed[a, n] for a, p, n in triplets])
    terms = [
        share * w[0][a, p] * w[1][a, n] * (now[a, p] - now[a, n])
        for share, (a, p, n) in zip(shares, triplets, strict=True)
    ]
    return np.mean(terms)


def cumulated(gaps):
    """Shares of a histogram with nodes 0.1 apart that are no larger."""
    counts, nodes = np.zeros(41), []
    for gap in gaps:
        node = math.floor((gap + 2) / 0.1)
        above = (gap + 2) / 0.1 - node
        counts[node] += 1 - above
        counts[node + 1] += above
        nodes.append(node)
    return np.cumsum(counts / len(gaps))[nodes]


def selectively_contrastive(labels, x, w, mining):
    s, terms = x @ x.T, []
    for a, p, n in mined(mining, labels, cosine(x)):
        hard = s[a, n] > s[a, p] or s[a, n] > 0.6
        easy_term = math.log1p(math.exp(10 * (s[a, n] - s[a, p])))
        term = 0.7 * s[a, n] if hard else easy_term
        terms.append(w[0][a, p] * w[1][a, n] * term)
    return np.mean(terms)


def intra_pair(labels, x, w, mining):
    s = x @ x.T
    positive, negative = counts(mining, labels, cosine(x))
    near, far = (np.average(s, weights=c) for c in (positive, negative))
    pull = np.maximum(0.99 * near - s, 0) ** 2
    push = np.maximum(s - 1.01 * far, 0) ** 2
    return average(pull, w[0], positive) + average(push, w[1], negative)


def ranked_list(labels, x, w, mining, differentiate=False):
    d = euclidean(x)
    # Where no gradient passes the weights, they are those at `FIXED`.
    fixed = d if differentiate else euclidean(FIXED[len(labels)])
    masks, total = counts(mining, labels, d), 0.0
    for a in range(len(labels)):
        for mask, weight, sign, at in zip(
            masks, w, (1, -1), (0.8, 1.2), strict=True
        ):
            used = [
                j for j in np.flatnonzero(mask[a]) if sign * (d[a, j] - at) > 0
            ]
            pace = [
                mask[a, j] * math.exp(3 * sign * (fixed[a, j] - at))
                for j in used
            ]
            each = [sign * (d[a, j] - at) * weight[a, j] for j in used]
            if used:
                total += 0.5 * np.dot(pace, each) / sum(pace)
    return total / len(labels)


def barlow_twins(labels, x, w, mining):
    pairs = [
        (x[a], x[p], w[0][a, p]) for a, same, _ in sets(labels) for p in same
    ]
    first, second, weight = (np.array(v) for v in zip(*pairs, strict=True))
    views = []
    for view in (first, second):
        centered = view - np.average(view, axis=0, weights=weight)
        variance = np.average(centered**2, axis=0, weights=weight)
        views.append(centered / np.sqrt(variance + 1e-5))
    c = np.einsum("n,ni,nj->ij", weight, *views) / weight.sum()
    off = (c**2).sum() - (np.diag(c) ** 2).sum()
    return ((1 - np.diag(c)) ** 2).sum() + 0.0051 * off


FIXED = {len(v): unit(batch(v)) for v in LABELS.values()}


def cosine(x):
    return -(x @ x.T)


def euclidean(x):
    return np.sqrt(squared(x))


log1pexp = functools.partial(np.logaddexp, 0)
CASES = {
    "angular": ({}, angular),
    "barlow_twins": ({"normalize": True}, barlow_twins),
    "binomial_deviance": (
        {},
        on_pairs(
            lambda d: log1pexp(2 * (d + 0.5)),
            lambda d: log1pexp(-50 * (d + 0.5)),
            cosine,
        ),
    ),
    "circle": ({"gamma": 20.0}, circle),
    "contrastive": (
        {"reduction": "mean_nonzero"},
        on_pairs(lambda d: d, lambda d: np.maximum(1 - d, 0), squared, True),
    ),
    "contrastive summed": ({"reduction": "sum_over_pairs"}, summed),
    # Eq. 1 of attentive grouping.
    "contrastive plain": (
        {"negative_margin": 1.3, "distance": "euclidean", "reduction": "mean"},
        on_pairs(lambda d: d, lambda d: np.maximum(1.3 - d, 0), euclidean),
    ),
    "contrastive two margins": (
        {
            "positive_margin": 0.9,
            "negative_margin": 1.4,
            "power": 2,
            "distance": "euclidean",
        },
        on_pairs(
            lambda d: np.maximum(d - 0.9, 0) ** 2,
            lambda d: np.maximum(1.4 - d, 0) ** 2,
            euclidean,
            True,
        ),
    ),
    "contrastive similarity": (
        {
            "positive_margin": 0.8,
            "negative_margin": 0.1,
            "distance": "cosine",
            "reduction": "mean",
        },
        on_pairs(
            lambda d: np.maximum(d + 0.8, 0),
            lambda d: np.maximum(-d - 0.1, 0),
            cosine,
        ),
    ),
    "contrastive joint": (
        {"negative_margin": 1.5, "joint": True, "reduction": "mean"},
        on_pairs_jointly(lambda d: d, lambda d: np.maximum(1.5 - d, 0), False),
    ),
    "contrastive joint nonzero": (
        {"negative_margin": 1.5, "joint": True, "negative_weight": 10.0},
        on_pairs_jointly(
            lambda d: d, lambda d: 10 * np.maximum(1.5 - d, 0), True
        ),
    ),
    "decoupled_contrastive": ({}, decoupled),
    "decoupled_contrastive weighted": (
        {"sigma": 0.5},
        functools.partial(decoupled, sigma=0.5),
    ),
    "dynamic_soft_margin": ({"num_bins": 40}, dynamic_soft_margin),
    "fast_ap": ({}, fast_ap),
    "histogram": ({}, histogram),
    "instance": ({"gamma": 9.0}, rows(instance, cosine)),
    "intra_pair_variance": ({}, intra_pair),
    "lifted_structure": ({}, lifted),
    "lifted_structure generalized": (
        {"generalized": True},
        rows(lifted_generalized, euclidean, empty=False, alone=False),
    ),
    "margin": ({}, margin),
    "margin triplets": ({"normalize_by": "triplets"}, margin_triplets),
    "margin every triplet": (
        {"normalize_by": "triplets", "alpha": 0.05, "reduction": "mean"},
        functools.partial(margin_triplets, alpha=0.05, every=True),
    ),
    "multi_sup_con": ({}, multi_sup_con),
    "multi_similarity": ({}, rows(multi_similarity, cosine)),
    "n_pair": (
        {"normalize": True},
        functools.partial(softmax, 1.0),
    ),
    "nca": ({}, rows(nca, squared, alone=False)),
    "nt_xent": ({}, functools.partial(softmax, 0.1)),
    "pnp": ({"temperature": 0.1}, pnp(lambda n: 1 - 1 / (1 + n))),
    "pnp O": ({"temperature": 0.1, "variant": "O"}, pnp(lambda n: n)),
    "ranked_list": (
        {"positive_temperature": 3.0, "negative_temperature": 3.0},
        ranked_list,
    ),
    "ranked_list differentiated": (
        {
            "positive_temperature": 3.0,
            "negative_temperature": 3.0,
            "differentiate_weights": True,
        },
        functools.partial(ranked_list, differentiate=True),
    ),
    "recall_at_k": ({"temperature": 0.1}, ranking(lost_recall)),
    "selectively_contrastive": (
        {"weight": 0.7, "cutoff": 0.6},
        selectively_contrastive,
    ),
    "smooth_ap": ({"temperature": 0.1}, ranking(lost_precision)),
    "sup_con": ({}, sup_con),
    "triplet": ({}, triplet),
    "triplet soft": (
        {"soft_margin": True, "distance": "euclidean"},
        functools.partial(triplet, link=softplus, distance=euclidean),
    ),
    "triplet violated": (
        {"reduction": "mean_nonzero"},
        functools.partial(triplet, violated=True),
    ),
    "triplet similarity": (
        {"distance": "cosine"},
        functools.partial(triplet, distance=cosine),
    ),
    "tuplet_margin": ({}, tuplet),
}
for path in sorted(Path(__file__).parent.glob("test_*.py")):
    if re.search(r"^LOOPS = ", path.read_text(), re.M):
        CASES |= importlib.import_module(f"tests.losses.{path.stem}").LOOPS


def make(case, mining="all", **arguments):
    name = case.split()[0]
    arguments = {**CASES[case][0], **arguments}
    if issubclass(LOSSES[name], losses.PairLoss):
        arguments["mining"] = mining
    return built(name, **arguments)


def mines(case):
    return issubclass(LOSSES[case.split()[0]], losses.PairLoss)


def test_every_pairwise_loss_has_a_case():
    missing = set(PAIRWISE) - {case.split()[0] for case in CASES}
    assert not missing, "add LOOPS, with a loop of the loss, to its own tests"


# Variants that differ by a formula alone are mined as the loss itself is.
ALIKE = (
    "contrastive ",
    "margin every",
    "triplet violated",
    "triplet similarity",
)
MINED = [x for x in CASES if mines(x) and not x.startswith(ALIKE)]
# The miners take turns: what they count is known from their own tests.
EVERY = [(case, "all", "unbalanced") for case in CASES] + [
    pytest.param(
        case,
        MINERS[k % len(MINERS)],
        "balanced",
        marks=() if k < len(MINERS) else pytest.mark.slow,
    )
    for k, case in enumerate(MINED)
]


@pytest.mark.parametrize(("case", "mining", "which"), EVERY)
def test_weighted_loss_matches_a_loop(case, mining, which):
    labels = LABELS[which]
    w, x = weights(labels), batch(labels)
    values, gradient = value_and_gradient(
        make(case, mining),
        np.array(labels),
        x.astype("float32"),
        pair_weights=(w[0], w[1]),
    )

    def loop(x):
        return CASES[case][1](labels, unit(x), w, mining)

    np.testing.assert_allclose(values.mean(), loop(x), rtol=3e-5, atol=1e-7)
    check_slopes(gradient, loop, x)


def test_drawn_negatives_are_weighted_after_the_draw():
    labels = LABELS["balanced"]
    w, x = weights(labels), unit(batch(labels)).astype("float32")
    pairs = compare(np.array(labels), x, distance="euclidean")
    generator = keras.random.SeedGenerator(5)
    drawn = get_miner("distance_weighted").pair_weights(pairs, generator)
    pull, push = (
        np.maximum(pairs.distances - 1, 0),
        np.maximum(1.4 - pairs.distances, 0),
    )
    loss = losses.MarginLoss(seed=5, reduction="sum_over_pairs")
    total = sum(
        (np.array(count) * weight * terms).sum()
        for count, weight, terms in zip(drawn, w, (pull, push), strict=True)
    )
    values = loss.per_example(np.array(labels), x, pair_weights=tuple(w))
    assert np.sum(values) == pytest.approx(total, rel=1e-5)


# Of a loss by rank, by histogram, on pairs and on triplets.
@pytest.mark.parametrize(
    "case", quick(("contrastive", "fast_ap", "smooth_ap", "triplet"), PAIRWISE)
)
def test_weights_of_other_pairs_are_ignored(case):
    labels = np.array(LABELS["unbalanced"])
    x = batch(LABELS["unbalanced"]).astype("float32")
    same = np.equal.outer(labels, labels) & ~np.eye(8, dtype=bool)
    other = np.not_equal.outer(labels, labels)
    loss = make(case)

    def weighted(positive, negative):
        weights = [np.float32(w) for w in (positive, negative)]
        return value_and_gradient(loss, labels, x, pair_weights=weights)

    expected = value_and_gradient(loss, labels, x)
    ones = weighted(*np.ones((2, 8, 8)))
    for one, none in zip(ones, expected, strict=True):
        assert one.tobytes() == none.tobytes()
    odd = weighted(np.where(same, 1, np.nan), np.where(other, 1, np.inf))
    for one, other in zip(ones, odd, strict=True):
        np.testing.assert_array_equal(other, one)
    for result in weighted(*np.zeros((2, 8, 8))):
        assert not result.any()


@pytest.mark.parametrize("case", ["contrastive", "triplet", "lifted_structure"])
def test_references_have_a_column_of_weights_each(case):
    labels, x = LABELS["unbalanced"], batch(LABELS["unbalanced"])
    x, w = x.astype("float32"), weights(labels)
    loss = make(case)
    relation = np.equal.outer(labels, labels).astype(int)
    expected = loss.per_example(relation, x, pair_weights=tuple(w))
    np.fill_diagonal(relation, -1)
    actual = loss.per_example(
        np.concatenate([relation, np.full((8, 2), -1)], axis=1),
        x,
        ref_embeddings=np.concatenate([x, x[:2]]),
        pair_weights=tuple(np.pad(v, ((0, 0), (0, 2))) for v in w),
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", ["contrastive", "sup_con"])
def test_weights_pass_no_gradient(case):
    """The comparison that all losses share passes no gradient."""
    labels, x = LABELS["balanced"], batch(LABELS["balanced"])
    x = tf.constant(x, "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        w = tf.exp(tf.matmul(x, x, transpose_b=True))
        loss = make(case).per_example(np.array(labels), x, pair_weights=(w, w))
    weighted = tape.gradient(loss, x).numpy()
    fixed = value_and_gradient(
        make(case), np.array(labels), x, pair_weights=(w.numpy(), w.numpy())
    )
    np.testing.assert_allclose(weighted, 9 * fixed[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["circle", "triplet"])
def test_graph_and_xla_give_the_same_weighted_loss(case):
    labels, x = LABELS["unbalanced"], batch(LABELS["unbalanced"])
    x, w = tf.constant(x, "float32"), weights(labels)
    loss = make(case, "semihard")

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = loss.per_example(
                tf.constant(labels), x, pair_weights=(w[0], w[1])
            )
            mean = tf.reduce_mean(values)
        return values, tape.gradient(mean, x)

    expected = step(x)
    graph = tf.function(step, autograph=False)
    compiled = tf.function(graph, jit_compile=True, autograph=False)
    for actual in (graph(x), compiled(x)):
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "received"),
    [
        (np.ones((9, 9)), "1 of the shapes"),
        ((np.ones((9, 9)), np.ones((9, 8))), r"\(9, 8\)"),
        ((np.ones(9), np.ones(9)), r"2 of the shapes \[\(9,\)"),
        ((np.ones((9, 9)),) * 3, "3 of the shapes"),
    ],
)
def test_wrong_shapes_of_weights_raise(wrong, received):
    labels, x = LABELS["balanced"], batch(LABELS["balanced"])
    with pytest.raises(ValueError, match=f"here .9, 9.*{received}"):
        losses.ContrastiveLoss().per_example(
            np.array(labels), x, pair_weights=wrong
        )


def test_weights_for_losses_without_pairs_raise():
    labels, x = LABELS["balanced"], batch(LABELS["balanced"])
    ones = np.ones((9, 9))
    for name in set(LOSSES) - set(PAIRWISE):
        with pytest.raises(ValueError, match="support `pair_weights`.*Contr"):
            default(name).per_example(
                np.array(labels), x, pair_weights=(ones, ones)
            )
