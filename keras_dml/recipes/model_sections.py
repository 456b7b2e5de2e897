"""What a recipe trains: a backbone, a method and an optimizer."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self, TypeAlias

import keras
import numpy as np
from keras.optimizers import schedules
from pydantic import Field, ValidationInfo, field_validator, model_validator

from keras_dml import backbones, callbacks, data
from keras_dml.methods.declaration import Traits, Uses, find
from keras_dml.model.metric_model import MetricModel
from keras_dml.optimizers import COUPLED, known_optimizers
from keras_dml.recipes.data_sections import Augmentation, Batches
from keras_dml.recipes.sections import (
    MAX_EPOCHS,
    NamedSection,
    Section,
    fill_counts,
    keys_of,
    values_of,
)
from keras_dml.utils.arguments import did_you_mean, matches
from keras_dml.utils.types import (
    Count,
    Fraction,
    IntArray,
    NonNegative,
    Positive,
    Share,
)


@keys_of(
    backbones.get,
    (
        "input_shape",
        "weights",
        "width",
        "output",
        "num_prefix_tokens",
        "freeze_batch_norm",
        "freeze_until",
        "freeze",
    ),
)
class Backbone(NamedSection):
    """See `keras_dml.backbones.get`.

    With `freeze: true`, features are computed once, see
    `keras_dml.backbones.features`, and a head is trained on them.
    `feature_views` is the number of random views per image, made by
    `augmentation`; with 0, the head is trained on the test view.
    `feature_cache: none` disables this and trains through the frozen network.
    With `freeze_until`, what the frozen layers compute is stored instead, if
    `feature_views` is given.

    `freeze_epochs` is the number of epochs at the beginning of training that
    change only head and loss, not the weights of the backbone.
    """

    freeze_epochs: int = Field(0, ge=0, le=MAX_EPOCHS)
    feature_views: int = Field(0, ge=0, le=1000)
    feature_cache: Literal["auto", "memory", "disk", "none"] = "auto"

    def build(self) -> keras.Model:
        """Builds the network, which requires no data."""
        keys = {"name", "feature_views", "feature_cache", "freeze_epochs"}
        return backbones.get(self.name, **self.model_dump(exclude=keys))

    @property
    def stores_features(self) -> bool:
        """Whether training reads stored features of frozen layers."""
        is_frozen = self.freeze or (self.freeze_until and self.feature_views)
        return self.feature_cache != "none" and bool(is_frozen)

    def features(
        self,
        model: MetricModel,
        splits: data.DataSplits,
        augmentation: Augmentation,
        with_test: bool = False,
    ) -> data.DataSplits:
        """The data to fit a model on: features of frozen layers, or examples.

        Those of a backbone's lower part are computed only if the recipe asks
        for a number of views, as training otherwise sees a new one each time.

        Which classes are held out, and the seed of a recipe, do not change
        what is computed: runs with other seeds find the features of the first
        on disk.

        With `with_test` and `feature_cache: disk`, those of test examples are
        kept as well. Otherwise these stay as they are, and the whole model
        measures them.
        """
        if self.feature_cache == "none" or not self.stores_features:
            return splits
        until = None if self.freeze else self.freeze_until
        views = augmentation.model_dump(exclude={"cache", "num_views"})
        # An order of the training set in which held-out classes are in place.
        order = np.arange(len(splits.trainval))
        if not splits.trainval.has_label_sets:
            # The examples of a class are together, and stay in their order.
            order = np.argsort(splits.trainval.known_labels, kind="stable")
        features = backbones.features(
            model,
            splits.trainval.select(order),
            num_views=self.feature_views,
            until=until,
            cache=self.feature_cache,
            **(views if self.feature_views else {}),
        )
        train, validation = np.split(np.argsort(order), [len(splits.train)])
        test = splits.test
        if with_test and self.feature_cache == "disk":
            test = backbones.features(model, test, until=until, cache="disk")
        return replace(
            splits,
            train=features.select(train),
            validation=features.select(validation),
            test=test,
        )


class Method(NamedSection):
    """A method of `keras_dml.methods`, with its sampler and callbacks."""

    @property
    def traits(self) -> Traits:
        """What is specific to the method."""
        return find(self.name)[1]

    @property
    def makes_batches(self) -> bool:
        """Whether the method, with these arguments, has its own sampler."""
        sampler = self.traits.sampler
        return sampler is not None and sampler.is_used(self.model_dump())

    @property
    def weighs_classes(self) -> bool:
        """Whether a loss has a weight for each class."""
        numbers = values_of(self.model_dump())
        return any(number is not None for number in numbers)

    def number_classes(self, train: data.Examples) -> data.Examples:
        """Numbers classes from 0 if a loss has a weight for each of them.

        Otherwise labels stay, as they determine which images a sampler draws.
        """
        return train.relabeled() if self.weighs_classes else train

    def sampler(
        self, train: data.Examples, batches: Batches, seed: int
    ) -> data.Sampler:
        """The sampler of the training examples."""
        train = self.number_classes(train)
        method, sizes = self.model_dump(), batches.sizes
        if train.has_label_sets:
            self._check_label_sets(train, batches)
            return data.MultiLabelBalanced(
                train.labels, seed=seed, **batches.fit(sizes, train)
            )
        if self.traits.check_labels is not None:
            self.traits.check_labels(
                method, train.known_labels, batches.images_per_class
            )
        make: Callable[..., data.Sampler] = data.ClassBalanced
        if self.makes_batches and self.traits.sampler is not None:
            make = resolve(self.traits.sampler)
            sizes = dict(self.traits.sampler.arguments_for(method, sizes))
        elif batches.hard_classes is not None:
            make = data.HardClassBalanced
            sizes["num_neighbors"] = batches.hard_classes.num_neighbors
        return make(train.labels, seed=seed, **batches.fit(sizes, train))

    def _check_label_sets(self, train: data.Examples, batches: Batches) -> None:
        """Checks that the method can train on several labels per example."""
        reason = None
        if self.makes_batches:
            reason = f"method: {self.name!r}, with batches of its own"
        elif batches.hard_classes is not None:
            reason = "batches.hard_classes"
        elif self.weighs_classes:
            reason = "a loss with `num_classes`, a weight for each class"
        if reason is not None:
            raise ValueError(
                "The recipe requires one label per example. Received: "
                f"{reason}; and {train!r}. To train with several labels, use a "
                "loss on pairs or triplets and a method that takes the batches "
                "of data.MultiLabelBalanced, such as 'baseline'."
            )

    def build(
        self, backbone: keras.Model, labels: IntArray, **options: Any
    ) -> MetricModel:
        """Builds the model, with `options` of `MetricModel`.

        Labels of the training examples determine `num_classes: auto`.
        """
        factory, traits = find(self.name)
        left_out = {*traits.extra_keys, *traits.left_out(self.model_dump())}
        arguments = self.model_dump(exclude={"name", *left_out})
        counts = np.unique(labels, return_counts=True)[1].tolist()
        for number in values_of(arguments):
            if isinstance(number, int) and number < len(counts):
                # Examples of some classes would have no weight.
                raise ValueError(
                    "`num_classes` of a loss must be at least the number of "
                    f"training classes, which is {len(counts)} without those "
                    f"held out. Received: num_classes={number}. Use "
                    "`num_classes: auto`."
                )
        arguments = fill_counts(arguments, counts)
        return factory(backbone, **options, **arguments)

    def callbacks(
        self,
        train: data.Examples,
        sampler: data.Sampler,
        batches: Batches,
        seed: int,
    ) -> list[keras.callbacks.Callback]:
        """The callbacks that the method and its batches need."""
        method, sizes = self.model_dump(), batches.sizes
        hard, needed = batches.hard_classes, []
        if hard is not None and isinstance(sampler, data.HardClassBalanced):
            needed = [
                callbacks.HardClasses(train, sampler, hard.every, hard.start)
            ]
        return needed + [
            resolve(x)(
                train, sampler, seed=seed, **x.arguments_for(method, sizes)
            )
            for x in self.traits.callbacks
            if x.is_used(method)
        ]


def resolve(uses: Uses) -> Callable[..., Any]:
    """The sampler or callback that a method names."""
    if callable(uses.what):
        return uses.what
    module = data if hasattr(data, uses.what) else callbacks
    factory: Callable[..., Any] = getattr(module, uses.what)
    return factory


class Steps(Section):
    """Multiplies the learning rate by `factor` after each of `epochs`."""

    name: Literal["steps"]
    epochs: tuple[Count, ...] = Field(min_length=1)
    factor: Fraction = 0.1

    @field_validator("epochs")
    @classmethod
    def _ascend(cls, epochs: tuple[int, ...]) -> tuple[int, ...]:
        if list(epochs) != sorted(set(epochs)):
            raise ValueError("must ascend, each epoch once")
        return epochs

    @property
    def last_change(self) -> int:
        """Number of epochs before the schedule's last change."""
        return self.epochs[-1]

    def build(
        self, rate: float, steps: int, epochs: int
    ) -> schedules.LearningRateSchedule:
        """The schedule of a run with so many steps in an epoch."""
        # Keras changes the rate in the step after a boundary.
        return schedules.PiecewiseConstantDecay(
            [epoch * steps - 1 for epoch in self.epochs],
            [
                rate * self.factor**times
                for times in range(len(self.epochs) + 1)
            ],
        )


class Cosine(Section):
    """Decay to 0 at the end of the run along half a cosine (SGDR, Eq. 5).

    Before that, the learning rate rises linearly from 0 for `warmup` epochs.
    """

    name: Literal["cosine"]
    warmup: int = Field(0, ge=0, le=MAX_EPOCHS)

    @property
    def last_change(self) -> int:
        """Number of epochs before the cosine starts."""
        return self.warmup

    def build(
        self, rate: float, steps: int, epochs: int
    ) -> schedules.LearningRateSchedule:
        """The schedule of a run with so many steps in an epoch."""
        warmup = self.warmup * steps
        return schedules.CosineDecay(
            initial_learning_rate=0.0 if warmup else rate,
            decay_steps=epochs * steps - warmup,
            warmup_target=rate if warmup else None,
            warmup_steps=warmup,
        )


Schedule: TypeAlias = Steps | Cosine


class Optimizer(Section):
    """A Keras optimizer, with its arguments that are not None.

    `decay` says how `weight_decay` acts: "decoupled", as in Keras, or
    "coupled", as in PyTorch's Adam and SGD. For the latter and its
    `decay_multipliers`, see `keras_dml.optimizers.CoupledDecay`.
    """

    name: str = "adam"
    learning_rate: Positive = 1e-3
    schedule: Schedule | None = Field(None, discriminator="name")
    weight_decay: NonNegative | None = None
    decay: Literal["coupled", "decoupled"] = "decoupled"
    epsilon: NonNegative | None = None
    decay_multipliers: dict[str, NonNegative] | None = None
    momentum: Share | None = None
    clipnorm: Positive | None = None
    global_clipnorm: Positive | None = None

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        optimizers = known_optimizers()
        if name.lower() not in optimizers and ">" not in name:
            raise ValueError(
                "must be an optimizer of Keras."
                f"{did_you_mean(name, optimizers)}"
            )
        return name

    @model_validator(mode="after")
    def _takes_arguments(self) -> Self:
        optimizer = known_optimizers().get(self.name.lower())
        if optimizer is None:  # Of the user's own.
            return self
        parameters = inspect.signature(optimizer.__init__).parameters
        for name in ("epsilon", "momentum"):
            if getattr(self, name) is not None and name not in parameters:
                raise ValueError(
                    f"{self.name!r} has no `{name}`; leave it out, or set it "
                    "to null"
                )
        return self

    @field_validator("decay_multipliers")
    @classmethod
    def _are_coupled(
        cls, multipliers: dict[str, float] | None, info: ValidationInfo
    ) -> dict[str, float] | None:
        if multipliers and info.data.get("decay") == "decoupled":
            raise ValueError(
                "require `decay: coupled`; set it, or leave these out"
            )
        for pattern in multipliers or ():
            matches(pattern, "", "`optimizer.decay_multipliers` of a recipe")
        return multipliers

    @field_validator("decay")
    @classmethod
    def _has_coupled_decay(cls, decay: str, info: ValidationInfo) -> str:
        if decay == "decoupled":
            return decay
        name = info.data.get("name", "")
        if name.lower() not in COUPLED:
            raise ValueError(
                f"{name!r} does not support coupled decay; use "
                f"{', '.join(COUPLED)}, or `decay: decoupled`"
            )
        if info.data.get("weight_decay", 0) is None:
            raise ValueError(
                "says how `weight_decay` is applied, which is not set; set it, "
                "or leave `decay` out"
            )
        return decay

    def build(self, steps: int, epochs: int) -> keras.Optimizer:
        """The optimizer of a run with so many steps in an epoch."""
        arguments = self.model_dump(
            exclude={"name", "decay", "schedule"}, exclude_none=True
        )
        if self.schedule is not None:
            # A function of the number of updates, which a `.keras` file keeps
            # with the optimizer.
            arguments["learning_rate"] = self.schedule.build(
                self.learning_rate, steps, epochs
            )
        if self.decay == "coupled":
            return COUPLED[self.name.lower()](**arguments)
        return keras.optimizers.get(
            {"class_name": self.name, "config": arguments}
        )
