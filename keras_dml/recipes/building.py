"""Building what a recipe describes: data, model, optimizer, callbacks."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import replace

import keras
import numpy as np
from keras.optimizers import schedules

from keras_dml import backbones, data
from keras_dml.callbacks import HardClasses
from keras_dml.methods.declaration import Arguments, find
from keras_dml.model.generated import takes_images
from keras_dml.model.metric_model import MetricModel
from keras_dml.optimizers import COUPLED
from keras_dml.recipes import num_classes
from keras_dml.recipes.schema import Recipe, Schedule, Steps, looked_up
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Shape

logger = logging.getLogger(__name__)


def splits(recipe: Recipe) -> data.DataSplits:
    """The data of a recipe: train, validation and test classes."""
    load = data.DATASETS[recipe.data.name].value
    arguments = recipe.data.model_dump(exclude={"name"})
    if "seed" in inspect.signature(load).parameters:
        arguments["seed"] = recipe.seed
    found = load(**arguments)
    if recipe.train_on == "all":
        none = found.validation.select([])
        return replace(found, train=found.trainval, validation=none)
    return found


def backbone(recipe: Recipe) -> keras.Model:
    """The backbone of a recipe, which requires no data."""
    others = {"name", "feature_views", "feature_cache", "freeze_epochs"}
    section = recipe.backbone
    return backbones.get(section.name, **section.model_dump(exclude=others))


def model(
    recipe: Recipe,
    batches: data.Sampler | None = None,
    network: keras.Model | None = None,
) -> MetricModel:
    """The compiled model of a recipe.

    Args:
        batches: The result of `sampler`. It provides the number of training
            classes, for `num_classes: auto`, and the number of steps per epoch,
            for a learning rate schedule and `freeze_epochs`. Recipes that use
            none of them do not need it.
        network: The result of `backbone`; None to build it here.

    Raises:
        ValueError: If the recipe needs `batches`, or a loss has fewer classes
            than the training set.
    """
    factory, traits = find(recipe.method.name)
    left_out = traits.left_out(recipe.method.model_dump())
    arguments = recipe.method.model_dump(
        exclude={"name", *traits.extra_keys, *left_out}
    )
    if batches is not None:
        counts = np.unique(batches.labels, return_counts=True)[1].tolist()
        num_classes.check(arguments, len(counts))
        arguments = num_classes.filled(arguments, counts)
    elif num_classes.is_auto(arguments):
        raise ValueError(_needs_batches(recipe, "`num_classes: auto`"))
    network = backbone(recipe) if network is None else network
    built = factory(
        network,
        loss_weights=dict(recipe.loss_weights),
        rate_multipliers=recipe.rate_multipliers,
        relation_rule=recipe.relation_rule,
        gather=recipe.gather,
        accumulate=recipe.accumulate,
        freeze_steps=_freeze_steps(recipe, batches),
        view=_view(recipe, network),
        **arguments,
    )
    built.compile(optimizer(recipe, batches), jit_compile=recipe.jit)
    return built


def _freeze_steps(recipe: Recipe, batches: data.Sampler | None) -> int:
    epochs = recipe.backbone.freeze_epochs
    if not epochs:
        return 0
    if batches is None:
        raise ValueError(_needs_batches(recipe, "`backbone.freeze_epochs`"))
    return epochs * batches.steps


def _view(recipe: Recipe, backbone: keras.Model) -> data.View | None:
    """The view of the model, if it takes images."""
    arguments = recipe.view.model_dump()
    if takes_images(backbone):
        _, height, width, channels = backbone.input_shape
        return data.View((height, width), channels, **arguments)
    if recipe.view != type(recipe.view)():
        raise ValueError(
            f"`view` of the recipe {recipe.name!r} requires a backbone that "
            f"takes images. Received: {arguments} and a backbone that takes "
            f"{backbone.input_shape}. Leave it out."
        )
    return None


def features(
    recipe: Recipe,
    model: MetricModel,
    splits: data.DataSplits,
    with_test: bool = False,
) -> data.DataSplits:
    """The data that a model is fitted on: of what is frozen its features.

    Those of a backbone's lower part are computed only if the recipe asks for a
    number of views, as training otherwise sees a new one each time.

    Which classes are held out, and the seed of a recipe, do not change what is
    computed: runs with other seeds find the features of the first on disk.

    With `with_test` and `feature_cache: disk`, those of test examples are kept
    as well. Otherwise these stay as they are, and the whole model measures
    them.
    """
    section = recipe.backbone
    stores_lower = section.freeze_until is not None and section.feature_views
    if section.feature_cache == "none" or not (section.freeze or stores_lower):
        return splits
    until = None if section.freeze else section.freeze_until
    views = recipe.augmentation.model_dump(exclude={"cache", "num_views"})
    # An order of the training set in which held-out classes are in place.
    order = np.arange(len(splits.trainval))
    if not splits.trainval.has_label_sets:
        # The examples of a class are together, and stay in their order.
        order = np.argsort(splits.trainval.known_labels, kind="stable")
    found = backbones.features(
        model,
        splits.trainval.select(order),
        num_views=section.feature_views,
        until=until,
        cache=section.feature_cache,
        **(views if section.feature_views else {}),
    )
    train, validation = np.split(np.argsort(order), [len(splits.train)])
    test = splits.test
    if with_test and section.feature_cache == "disk":
        test = backbones.features(model, test, until=until, cache="disk")
    return replace(
        splits,
        train=found.select(train),
        validation=found.select(validation),
        test=test,
    )


def optimizer(
    recipe: Recipe, batches: data.Sampler | None = None
) -> keras.Optimizer:
    """The optimizer of a recipe; see `model`."""
    section = recipe.optimizer
    arguments = section.model_dump(
        exclude={"name", "decay", "schedule"}, exclude_none=True
    )
    if section.schedule is not None:
        if batches is None:
            raise ValueError(_needs_batches(recipe, "`optimizer.schedule`"))
        arguments["learning_rate"] = _learning_rate(
            recipe, section.schedule, batches.steps
        )
    if section.decay == "coupled":
        return COUPLED[section.name.lower()](**arguments)
    return keras.optimizers.get(
        {"class_name": section.name, "config": arguments}
    )


def _learning_rate(
    recipe: Recipe, schedule: Schedule, steps: int
) -> schedules.LearningRateSchedule:
    # A function of the number of updates, which a `.keras` file keeps with
    # the optimizer.
    rate = recipe.optimizer.learning_rate
    if isinstance(schedule, Steps):
        # Keras changes the rate in the step after a boundary.
        return schedules.PiecewiseConstantDecay(
            [epoch * steps - 1 for epoch in schedule.epochs],
            [
                rate * schedule.factor**times
                for times in range(len(schedule.epochs) + 1)
            ],
        )
    warmup = schedule.warmup * steps
    return schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup else rate,
        decay_steps=recipe.epochs * steps - warmup,
        warmup_target=rate if warmup else None,
        warmup_steps=warmup,
    )


def _needs_batches(recipe: Recipe, key: str) -> str:
    return (
        f"The recipe {recipe.name!r} uses {key}, so building.model needs the "
        "recipe's batches. Received: batches=None. Use `building.model(recipe, "
        "building.sampler(recipe, splits.train))`."
    )


def sampler(recipe: Recipe, train: data.Examples) -> data.Sampler:
    """The sampler of a recipe, bound to the training examples.

    If a loss has a weight for each class, classes are renumbered from 0.

    Raises:
        ValueError: If the recipe requires one label per example and these have
            several, or vice versa.
    """
    train = _numbered(recipe, train)
    traits = find(recipe.method.name)[1]
    method = recipe.method.model_dump()
    arguments: Arguments = recipe.batches.sizes
    if train.has_label_sets:
        _check_label_sets(recipe, train)
        return data.MultiLabelBalanced(
            train.labels, seed=recipe.seed, **_fitting(arguments, recipe, train)
        )
    if recipe.relation_rule is not None:
        raise ValueError(
            f"`relation_rule` of the recipe {recipe.name!r} requires examples "
            f"with several labels. Received: {recipe.relation_rule!r} and "
            f"{train!r}. Leave it out."
        )
    if traits.check_labels is not None:
        traits.check_labels(
            method, train.known_labels, recipe.batches.images_per_class
        )
    make: Callable[..., data.Sampler] = data.ClassBalanced
    hard = recipe.batches.hard_classes
    if hard is not None:
        make = data.HardClassBalanced
        arguments = {**arguments, "num_neighbors": hard.num_neighbors}
    if traits.sampler is not None and traits.sampler.is_used(method):
        make = looked_up(traits.sampler)
        arguments = traits.sampler.given(method, arguments)
    return make(
        train.labels, seed=recipe.seed, **_fitting(arguments, recipe, train)
    )


def _fitting(
    arguments: Arguments, recipe: Recipe, train: data.Examples
) -> Arguments:
    """Arguments of a sampler, with no more classes than there are."""
    wanted = arguments.get("classes_per_batch", 0)
    least = min(2, recipe.batches.images_per_class)
    if train.has_label_sets and train.labels is not None:
        counts = train.labels.sum(axis=0)
    else:
        counts = np.unique(train.known_labels, return_counts=True)[1]
    most = int(np.sum(counts >= least))
    if wanted <= most or not most:  # Without any, the sampler says why.
        return arguments
    if not recipe.batches.fewer_classes:
        raise ValueError(
            f"`batches.classes_per_batch` of the recipe {recipe.name!r} must "
            "not exceed the number of training classes with at least "
            f"{least} images, {most}. Received: {wanted}. Use "
            f"batches.classes_per_batch={most}, or leave it out to have as "
            "many as there are."
        )
    logger.warning(
        "Batches have %d classes instead of %d, because %s has no more for "
        "training with %d images or more.",
        most,
        wanted,
        recipe.source,
        least,
    )
    return {**arguments, "classes_per_batch": most}


def _check_label_sets(recipe: Recipe, train: data.Examples) -> None:
    """Checks that the recipe can be trained with several labels per example."""
    method = recipe.method.model_dump()
    own = find(recipe.method.name)[1].sampler
    odd = None
    if own is not None and own.is_used(method):
        odd = f"method: {method['name']!r}, with batches of its own"
    elif recipe.batches.hard_classes is not None:
        odd = "batches.hard_classes"
    elif num_classes.is_set(method):
        odd = f"a loss with `{num_classes.KEY}`, a weight for each class"
    if odd is not None:
        raise ValueError(
            f"The recipe {recipe.name!r} requires one label per example. "
            f"Received: {odd}; and {train!r}. To train with several labels, "
            "use a loss on pairs or triplets and a method that takes the "
            "batches of data.MultiLabelBalanced, such as 'baseline'."
        )


def pipeline(
    recipe: Recipe,
    train: data.Examples,
    batches: data.Sampler,
    input_shape: Shape,
) -> tf.data.Dataset:
    """The training batches of a recipe for a model's input shape.

    Classes are numbered as by `sampler`, which has made `batches`.
    """
    views = recipe.augmentation.model_dump()
    if isinstance(train, data.FeatureSet):
        views = {"num_views": views["num_views"]}
    elif isinstance(train, data.ImageSet):
        _, height, width, channels = input_shape
        views |= {"size": (height, width), "channels": channels}
    return data.pipeline(
        _numbered(recipe, train),
        batches,
        seed=recipe.seed,
        **views,
    )


def _numbered(recipe: Recipe, train: data.Examples) -> data.Examples:
    # Not always: which images a sampler draws hangs on their labels.
    needed = num_classes.is_set(recipe.method.model_dump())
    return train.relabeled() if needed else train


def callbacks(
    recipe: Recipe, train: data.Examples, batches: data.Sampler
) -> list[keras.callbacks.Callback]:
    """The callbacks that the recipe's method and batches need.

    Classes are numbered as by `sampler`, which has made `batches`.
    """
    train = _numbered(recipe, train)
    method, sizes = recipe.method.model_dump(), recipe.batches.sizes
    own: list[keras.callbacks.Callback] = []
    hard = recipe.batches.hard_classes
    if hard is not None and isinstance(batches, data.HardClassBalanced):
        own.append(HardClasses(train, batches, hard.every, hard.start))
    return own + [
        looked_up(x)(train, batches, seed=recipe.seed, **x.given(method, sizes))
        for x in find(recipe.method.name)[1].callbacks
        if x.is_used(method)
    ]
