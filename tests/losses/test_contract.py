"""The contract of losses, checked for all of them."""

import functools
import inspect
import itertools
import math
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

import keras
import numpy as np
import pytest
from annotated_types import Ge, Gt, Le

from keras_dml import losses
from keras_dml.losses import ProxyLoss
from keras_dml.utils.arguments import arguments_of
from keras_dml.utils.serialization import parameters_of
from tests.conftest import quick
from tests.losses.oracle import (
    DEGENERATE,
    LABELS,
    batch,
    compiled,
    step_of,
    value_and_gradient,
)

CLASSES = 6
LOSSES = {name: entry.value for name, entry in losses.LOSSES.items()}
# Arguments that several losses have, at values that are no defaults.
OTHER = {
    "reduction": "mean_nonzero",
    "normalize": False,
    "seed": 5,
    "mining": "hard",
    "distance": "dot",
    "margin": 0.33,
    "alpha": 1.7,
    "temperature": 0.21,
    "num_classes": CLASSES,
    "initializer": "random_normal",
    "class_share": 0.9,
    "trainable_proxies": False,
}
EXAMPLES = {
    name: entry.details.get("examples", {})
    for name, entry in losses.LOSSES.items()
}
"""Arguments of a loss that stand beside it, in `LOSSES.register`."""

NAMES = list(LOSSES)
PAIRWISE = [n for n in NAMES if not issubclass(LOSSES[n], ProxyLoss)]
OWN_CODE = [
    "angular", "circle", "contrastive", "dynamic_soft_margin", "fast_ap",
    "hist", "hyperbolic", "margin", "multi_similarity", "proxy_anchor",
    "recall_at_k", "soft_triple", "sub_center_arc_face", "triplet", "vicreg",
]  # fmt: skip
"""One loss for each kind of loop, gradient, sum and variable; JAX compiles all
of them by XLA."""


def by_graph(names):
    """Losses whose graph is traced: quickly one of each kind."""
    return pytest.mark.parametrize("name", quick(OWN_CODE, names))


def configured(name):
    """Non-default values for every argument of a loss."""
    cls = LOSSES[name]
    names = set(parameters_of(cls)) - {"name"}
    return {k: v for k, v in {**OTHER, **EXAMPLES[name]}.items() if k in names}


def needed(name, classes=CLASSES):
    """The required arguments of a loss."""
    values = {
        "num_classes": classes,
        "class_counts": list(range(1, classes + 1)),
    }
    parameters = parameters_of(LOSSES[name]).values()
    return {p.name: values[p.name] for p in parameters if p.default is p.empty}


def built(name, dim=5, **arguments):
    loss = LOSSES[name](**arguments)
    loss.build(keras.layers.Layer(), dim)
    return loss


def default(name, dim=5):
    """The loss with its default arguments, built where it owns variables."""
    return built(name, dim, **needed(name))


def inputs(labels, dim=5):
    return np.array(labels), batch(labels, dim).astype("float32")


@pytest.mark.parametrize("name", NAMES)
def test_config_round_trips_with_non_default_arguments(name):
    cls, arguments = LOSSES[name], configured(name)
    loss = cls(**arguments, name="mine")
    missing = set(parameters_of(cls)) - {"name", *arguments}
    assert not missing, f'add values to examples= of LOSSES.register("{name}")'
    defaults = {
        key: parameter.default
        for base in reversed(cls.__mro__)
        if "__init__" in vars(base)
        for key, parameter in inspect.signature(
            base.__init__
        ).parameters.items()
    }
    for key, value in arguments.items():
        if value == defaults[key]:  # The loss takes no other value.
            with pytest.raises(ValueError, match=key):
                cls(**{**arguments, key: OTHER[key]})
    config = keras.saving.serialize_keras_object(loss)
    copy = keras.saving.deserialize_keras_object(config)
    assert type(copy) is cls
    assert copy.get_config() == loss.get_config()
    assert copy.name == "mine"
    for key, value in arguments.items():
        if key != "initializer":
            assert getattr(copy, key) == value
    assert losses.get(config).get_config() == loss.get_config()


def values_outside(expected):
    """Values outside a checked type."""
    options = [x for x in get_args(expected) if x is not NoneType]
    if get_origin(expected) in (Union, UnionType):
        return values_outside(options[0])
    if get_origin(expected) is Literal:
        return ["unheard of", 3]
    if get_origin(expected) is Sequence:
        return [(x,) for x in values_outside(options[0])]
    number, *bounds = options
    wrong = [2.5, "6", True] if number is int else [math.nan, "1"]
    for bound in bounds:
        limit = getattr(bound, type(bound).__name__.lower())
        if isinstance(bound, Gt | Ge):
            wrong += [limit - 1] if isinstance(bound, Ge) else [limit, -1]
        elif number is float:
            wrong += [limit + 0.5] if isinstance(bound, Le) else [limit]
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_arguments_outside_their_types_raise(name):
    cls = LOSSES[name]
    _, types = arguments_of(cls)
    for key, expected in types.items():
        message = f"`{key}` of {cls.__name__} must be .*Received: {key}="
        for value in values_outside(expected):
            with pytest.raises(ValueError, match=message):
                cls(**{**needed(name), key: value})


def without_draws(name):
    """A loss that runs all of its code without random draws."""
    arguments = needed(name)
    if name == "margin":
        arguments["mining"] = "semihard"
    if "num_centers" in parameters_of(LOSSES[name]):
        arguments["num_centers"] = 3
    if name == "instance":  # At the default hardly any pair has a gradient.
        arguments["gamma"] = 9.0
    owner = keras.layers.Layer()
    loss = LOSSES[name](**arguments)
    loss.build(owner, 5)
    for variable in owner.trainable_variables if name not in PAIRWISE else ():
        rows = int(np.prod(variable.shape[:-1]))
        values = batch([0] * rows, variable.shape[-1]).astype("float32")
        variable.assign(np.reshape(values, variable.shape))
    return loss


@functools.cache
def graph_of(name):
    """The step of a loss, traced once for batches of any size."""
    return compiled(step_of(without_draws(name)))


def difficult(size):
    """Batches of a size: (labels, embeddings)."""
    rows = np.arange(size)
    ordinary = batch([0] * size)
    equal = np.repeat(ordinary[:1], size, axis=0)
    some_zero, zero = (x * (rows != 1)[:, None] for x in (equal, 0 * equal))
    labels = 0 * rows + 4, rows % 6, rows // 2  # one class, all, pairs
    yield from itertools.product(labels, (ordinary, equal, some_zero, zero))


SMALL_IDS = np.array([0, 1, 0, 1, 2, 2, 3])
LARGE_IDS = np.array([2**24, 2**24 + 1, 2**40, 2**40 + 1])[SMALL_IDS]
BATCHES = {
    "ordinary": (LABELS["unbalanced"], batch(LABELS["unbalanced"])),
    **{case: (labels, batch(labels)) for case, labels in DEGENERATE.items()},
    **{f"difficult {k}": case for k, case in enumerate(difficult(6))},
    "small ids": (SMALL_IDS, batch(SMALL_IDS)),
    "large ids": (LARGE_IDS, batch(SMALL_IDS)),
}
for bad in (np.nan, np.inf):
    BATCHES[str(bad)] = LABELS["balanced"], batch(LABELS["balanced"])
    BATCHES[str(bad)][1][3, 1] = bad


@functools.cache
def results_of(name):
    """Values and gradients of all batches, by the graph of a loss."""
    return {
        case: [
            result.numpy()
            for result in graph_of(name)(np.array(labels), x.astype("float32"))
        ]
        for case, (labels, x) in BATCHES.items()
        if case != "large ids" or name in PAIRWISE
    }


NEEDS_POSITIVES = [
    "angular", "barlow_twins", "circle", "decoupled_contrastive",
    "dynamic_soft_margin", "fast_ap", "histogram", "hyperbolic",
    "lifted_structure", "margin", "multi_sup_con", "n_pair", "nca",
    "nt_xent", "pnp", "recall_at_k",
    "selectively_contrastive", "smooth_ap", "sup_con", "triplet",
    "tuplet_margin",
]  # fmt: skip
NEEDS_NEGATIVES = [
    "angular", "circle", "decoupled_contrastive", "dynamic_soft_margin",
    "fast_ap", "histogram",
    "hyperbolic", "instance", "lifted_structure", "margin", "n_pair", "nca",
    "nt_xent", "pnp", "selectively_contrastive", "smooth_ap", "triplet",
    "tuplet_margin",
]  # fmt: skip


@by_graph(NAMES)
def test_graph_equals_eager_code(name):
    labels, x = inputs(LABELS["unbalanced"])
    expected = value_and_gradient(without_draws(name), labels, x)
    scale = np.abs(expected[1]).max()
    assert scale > 1e-4
    values, gradient = results_of(name)["ordinary"]
    np.testing.assert_allclose(values, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-5 * scale)


@by_graph(NAMES)
def test_degenerate_batches_are_finite_or_exactly_zero(name):
    zero = {
        "no positives": name in NEEDS_POSITIVES,
        "one class": name in NEEDS_NEGATIVES,
        "one example": name in PAIRWISE,
    }
    for case in DEGENERATE:
        for result in results_of(name)[case]:
            assert np.isfinite(result).all(), case
            assert not zero.get(case) or not result.any(), case


@by_graph(NEEDS_POSITIVES)
def test_lonely_anchor_costs_nothing(name):
    values, _ = results_of(name)["ordinary"]  # the last two are alone
    if name == "histogram":  # its value is the share of negative pairs
        assert (values > 0).all()
        return
    assert (values[:4] != 0).any()
    np.testing.assert_array_equal(values[-2:], [0.0, 0.0])


@by_graph(NAMES)
def test_equal_and_zero_embeddings_are_finite(name):
    for case, results in results_of(name).items():
        if case.startswith("difficult"):
            assert all(np.isfinite(x).all() for x in results), case
    loss = LOSSES[name](**needed(name), normalize=False)
    loss.build(keras.layers.Layer(), 5)
    labels, x = list(difficult(6))[-2]  # pairs of equals and one zero
    for result in value_and_gradient(loss, labels, x.astype("float32")):
        assert np.isfinite(result).all()


@by_graph(NAMES)
def test_nan_and_infinity_give_nan(name):
    for bad in ("nan", "inf"):
        values, _ = results_of(name)[bad]
        assert np.isnan(values[3])
        assert np.isnan(values.mean())


@by_graph(PAIRWISE)
def test_large_ids_are_not_merged(name):
    small, large = (results_of(name)[f"{x} ids"] for x in ("small", "large"))
    for one, other in zip(small, large, strict=True):
        np.testing.assert_array_equal(one, other)


def is_mined(name):
    return "mining" in parameters_of(LOSSES[name])


@pytest.mark.parametrize(
    "name",
    [
        "angular", "barlow_twins", "contrastive", "fast_ap", "hyperbolic",
        "instance", "lifted_structure", "margin", "smooth_ap", "triplet",
    ],
)  # fmt: skip
def test_relations_and_references_agree_with_class_ids(name):
    labels, x = inputs(LABELS["unbalanced"])
    relation = (labels[:, None] == labels).astype("int32")
    loss = built(name, **({"mining": "semihard"} if is_mined(name) else {}))
    expected = loss.per_example(labels, x)
    actual = loss.per_example(relation, x)
    np.testing.assert_array_equal(actual, expected)
    # The batch as its own references, self-pairs marked as neither, and
    # more references of which none is either.
    np.fill_diagonal(relation, -1)
    actual = loss.per_example(
        np.concatenate([relation, -np.ones((8, 4), int)], axis=1),
        x,
        ref_embeddings=np.concatenate([x, x[:4]]),
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


PAIRS_APART = np.full((128, 128), -1)
for k in range(64):
    first, second = 2 * k, 2 * k + 1
    PAIRS_APART[first, second] = PAIRS_APART[second, first] = k % 2


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param(x, {}, marks=() if x in OWN_CODE else pytest.mark.slow)
        for x in PAIRWISE
    ]
    + [("contrastive", {"mining": x}) for x in losses.mining.MINING],
)
def test_losses_that_need_triplets_learn_nothing_from_pairs(
    name, arguments
) -> None:
    loss = built(name, **arguments)
    x = batch(list(range(128)), dim=3)
    _, gradient = value_and_gradient(loss, PAIRS_APART, x)
    assert (np.abs(gradient).max() > 1e-6) != loss.needs_triplets
