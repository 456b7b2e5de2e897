"""The schema of a recipe: its keys, their types and defaults.

Keys that are arguments of a function have its types, ranges and defaults.
Checks of settings in two sections stand here; each section builds its part.
"""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import keras
from pydantic import (
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.data import DataSplits, Examples, Sampler
from keras_dml.data.batches import Views
from keras_dml.evaluation.metrics import expand_metrics
from keras_dml.evaluation.reranking import rerankings
from keras_dml.losses.labels import Rule
from keras_dml.methods.declaration import find
from keras_dml.model.head_start import HeadInit
from keras_dml.model.metric_model import Gather, MetricModel
from keras_dml.recipes.data_sections import Augmentation, Batches, Data, View
from keras_dml.recipes.model_sections import Backbone, Method, Optimizer
from keras_dml.recipes.sections import MAX_EPOCHS, Section, keys_of
from keras_dml.utils.arguments import matches
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Count, NonNegative, Seed

MOMENTUM = "ema_momentum"
"""The argument that gives any method a momentum network."""

_ANY_SIDE = 2**15
"""Length in pixels of a side of images that nothing specifies."""

_NAME = r"\w([\w .,=()+-]{0,98}[\w)+-])?"


@dataclass(frozen=True)
class Training:
    """A compiled model, and everything that it is fitted with.

    `splits` have features in place of frozen layers, and `validation` measures
    the held-out classes, if there are any.
    """

    model: MetricModel
    sampler: Sampler
    splits: DataSplits
    batches: tf.data.Dataset
    callbacks: list[keras.callbacks.Callback]
    validation: RetrievalEvaluation | None
    monitor: str

    def fit(
        self,
        epochs: int,
        callbacks: Sequence[keras.callbacks.Callback],
        verbose: int | str,
    ) -> None:
        """Fits the model; `callbacks` come after the training's own."""
        validation = [] if self.validation is None else [self.validation]
        self.model.fit(
            self.batches,
            epochs=epochs,
            callbacks=[*self.callbacks, *validation, *callbacks],
            verbose=verbose,
        )


@keys_of(
    RetrievalEvaluation,
    (
        "every",
        "protocol",
        "distance",
        "relevance",
        "levels",
        "prefixes",
        "parts",
        "rerank",
    ),
)
class Evaluation(Section):
    """Metrics on the test set, and the choice of the best epoch.

    The epoch is chosen on classes held out of training, by `monitor`, a
    retrieval metric. Without a `protocol`, test images are evaluated as the
    data set defines it: with queries and gallery if it has them, otherwise all
    against all. `prefixes`, `parts` and `levels` are measured on the test set;
    by default, `levels` are all levels of the data set.
    """

    metrics: tuple[str, ...] = ("recall@1", "map@r", "r_precision", "nmi")
    monitor: str = "map@r"

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        expand_metrics(metrics, (1,), "a recipe")
        return metrics

    @model_validator(mode="after")
    def _can_rerank(self) -> Self:
        rerankings(self.rerank, self.distance, "a recipe")
        return self

    def validation(self, examples: Examples) -> RetrievalEvaluation | None:
        """The callback that measures held-out examples, if there are any."""
        if not len(examples):
            return None
        return RetrievalEvaluation(
            examples,
            every=self.every,
            metrics=tuple(dict.fromkeys(("recall@1", "map@r", self.monitor))),
            protocol=self.protocol,
            distance=self.distance,
            relevance=self.relevance,
        )


class Recipe(Section):
    """A complete training run: the same recipe gives the same run.

    With `train_on: all`, or `validation: 0` in `data`, no class is held out, as
    with the training sets of the papers. In this case no epoch is chosen, and
    the last one is measured. It is the last of `epochs`, or `stop_after` if
    given; settings that depend on the length of training, such as schedules,
    always use `epochs`. `refit: true` trains once more on all classes, for the
    number of epochs that was chosen on held-out classes, in the folder `refit`
    of the run. `guard: true` goes back toward a pretrained network as far as
    held-out classes demand; see `callbacks.Guard`.
    """

    name: str
    seed: Seed = 0
    data: SerializeAsAny[Data]
    backbone: Backbone = Backbone(name="small_convnet")
    method: SerializeAsAny[Method]
    batches: Batches = Batches()
    view: View = View()
    augmentation: Augmentation = Field(Augmentation(), validate_default=True)
    optimizer: Optimizer = Optimizer()
    relation_rule: Rule | None = None
    head_init: HeadInit = "auto"
    gather: Gather = "replicas"
    accumulate: Count = 1
    loss_weights: dict[str, float | Literal["learned"]] = {}
    rate_multipliers: dict[str, NonNegative] = {}
    epochs: int = Field(8, ge=1, le=MAX_EPOCHS, validate_default=True)
    stop_after: int | None = Field(None, ge=1, le=MAX_EPOCHS)
    train_on: Literal["train", "all"] = "train"
    refit: bool = False
    guard: bool = False
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    jit: bool | Literal["auto"] = "auto"
    evaluation: Evaluation = Evaluation()

    @field_validator("name")
    @classmethod
    def _names_a_file(cls, name: str) -> str:
        if not re.fullmatch(_NAME, name):
            raise ValueError(
                "must be a valid folder name: at most 100 letters, digits and "
                "`_`, with spaces and any of `.,=()+-` between them"
            )
        return name

    @field_validator("rate_multipliers")
    @classmethod
    def _end(cls, multipliers: dict[str, float]) -> dict[str, float]:
        for pattern in multipliers:
            matches(pattern, "")
        return multipliers

    @field_validator("guard")
    @classmethod
    def _has_a_start(cls, guard: bool, info: ValidationInfo) -> bool:
        if not guard:
            return guard
        if info.data.get("head_init") == "random":
            raise ValueError(
                "a guard requires a start to go back to; leave out "
                "`head_init: random`, or `guard`"
            )
        if info.data.get("refit"):
            raise ValueError(
                "a guard requires held-out classes, of which `refit` leaves "
                "none; leave out one of them"
            )
        return guard

    @property
    def holds_out(self) -> bool:
        """Whether training classes are held out, to choose an epoch by."""
        share = getattr(self.data, "validation", None)
        return self.train_on == "train" and share != 0

    @property
    def source(self) -> str:
        """Name of the data set, and its path."""
        path = getattr(self.data, "path", None)
        return f"{self.data.name} at {path}" if path else self.data.name

    @field_validator("batches")
    @classmethod
    def _can_be_hard(cls, batches: Batches, info: ValidationInfo) -> Batches:
        method = info.data.get("method")
        if batches.hard_classes is None or method is None:
            return batches
        if method.makes_batches:
            raise ValueError(
                f"`hard_classes` cannot be used with {method.name!r}, which "
                "makes its own batches, those of a "
                f"{method.traits.sampler.what}; leave it out"
            )
        return batches

    @field_validator("augmentation", mode="before")
    @classmethod
    def _resized_as_the_view(
        cls, augmentation: Any, info: ValidationInfo
    ) -> Any:
        if isinstance(augmentation, Augmentation):
            augmentation = augmentation.model_dump(exclude_unset=True)
        view = info.data.get("view")
        if view is None or not isinstance(augmentation, dict):
            return augmentation
        return {**view.model_dump(exclude={"fast"}), **augmentation}

    @field_validator("augmentation")
    @classmethod
    def _views_fit(
        cls, augmentation: Augmentation, info: ValidationInfo
    ) -> Augmentation:
        backbone = info.data.get("backbone")
        shape = getattr(backbone, "input_shape", None)
        channels = 3
        # Of a size that is not known, any that fits.
        size: Any = (augmentation.resize or _ANY_SIDE,) * 2
        if isinstance(shape, tuple) and len(shape) == 3 and None not in shape:
            size, channels = shape[:2], shape[2]
        batch_views = Views(size=size, **augmentation.model_dump())
        batch_views.with_channels(channels)
        views = augmentation.model_dump(exclude={"resize", "resize_mode"})
        default = Augmentation().model_dump()
        if views["crop"] == "center":  # As the test view has it.
            views["crop"] = default["crop"]
        if (
            backbone is not None
            and backbone.stores_features
            and not backbone.feature_views
            and any(x != default[k] for k, x in views.items() if k != "cache")
        ):
            raise ValueError(
                "random views have no effect on a head that is trained on "
                "features of the test view; set `backbone.feature_views`, the "
                "number of views per image, or leave them out"
            )
        return augmentation

    @field_validator("augmentation")
    @classmethod
    def _enough_views(
        cls, augmentation: Augmentation, info: ValidationInfo
    ) -> Augmentation:
        method = info.data.get("method")
        if method is not None and augmentation.num_views != 2:
            factory, traits = find(method.name)
            why = traits.two_views(method.model_dump())
            has_own = MOMENTUM in inspect.signature(factory).parameters
            if not has_own and getattr(method, MOMENTUM, None) is not None:
                why = (
                    f"`method.{MOMENTUM}` requires a second view of each "
                    "image, which the momentum network embeds: set "
                    "`augmentation: {num_views: 2}`, or leave it out"
                )
            if why is not None:
                raise ValueError(why)
        return augmentation

    @field_validator("stop_after")
    @classmethod
    def _stops_within(
        cls, stop_after: int | None, info: ValidationInfo
    ) -> int | None:
        epochs = info.data.get("epochs")
        if stop_after is not None and epochs and stop_after > epochs:
            raise ValueError(f"must be at most the {epochs} `epochs`")
        return stop_after

    @field_validator("epochs")
    @classmethod
    def _schedule_ends(cls, epochs: int, info: ValidationInfo) -> int:
        optimizer = info.data.get("optimizer")
        schedule = optimizer and optimizer.schedule
        if schedule and schedule.last_change >= epochs:
            raise ValueError(
                "`optimizer.schedule` still changes the learning rate after "
                f"{schedule.last_change} epochs, when the run has ended; train "
                "longer, change the schedule, or set `optimizer.schedule` to "
                "null"
            )
        return epochs

    def check_files(self) -> None:
        """Raises `FileNotFoundError` if files of the recipe are missing.

        The message lists all of them, and how to name others.
        """
        missing = []
        for (section, key), way_out in _FILES.items():
            value = getattr(getattr(self, section), key, None)
            is_file = key != "name" or str(value).endswith(".keras")
            if (
                isinstance(value, str)
                and is_file  # Others are names of networks to build,
                and (key, value) != ("weights", "imagenet")  # or to fetch.
                and not Path(value).expanduser().exists()
            ):
                missing.append(
                    f"`{section}.{key}`: {value!r} does not exist. Put it "
                    f"there, or use {way_out}."
                )
        if missing:
            raise FileNotFoundError("\n".join(missing))

    def build(
        self, sampler: Sampler, backbone: keras.Model | None = None
    ) -> MetricModel:
        """Builds and compiles the model.

        Args:
            sampler: The sampler of the training examples. It provides the
                number of training classes, for `num_classes: auto`, and the
                number of steps per epoch, for a learning rate schedule and
                `freeze_epochs`.
            backbone: The network; None to build it here.

        Raises:
            ValueError: If a loss has fewer classes than the training set.
        """
        network = self.backbone.build() if backbone is None else backbone
        model = self.method.build(
            network,
            sampler.labels,
            view=self.view.build(network),
            freeze_steps=self.backbone.freeze_epochs * sampler.steps,
            **self.model_dump(include=_MODEL_ARGUMENTS),
        )
        optimizer = self.optimizer.build(sampler.steps, self.epochs)
        model.compile(optimizer, jit_compile=self.jit)
        return model

    def training(
        self,
        model: MetricModel,
        sampler: Sampler,
        splits: DataSplits,
        with_test: bool = False,
    ) -> Training:
        """The model with its batches and callbacks; see `Backbone.features`."""
        splits = self.backbone.features(
            model, splits, self.augmentation, with_test
        )
        train = self.method.number_classes(splits.train)
        return Training(
            model,
            sampler,
            splits,
            self.augmentation.pipeline(
                train, sampler, model.input_shape, self.seed
            ),
            self.method.callbacks(train, sampler, self.batches, self.seed),
            self.evaluation.validation(splits.validation),
            self.evaluation.monitor,
        )


_MODEL_ARGUMENTS = {
    "loss_weights",
    "rate_multipliers",
    "relation_rule",
    "head_init",
    "gather",
    "accumulate",
}
"""Keys of a recipe that are arguments of `MetricModel`."""

_FILES = {
    ("data", "path"): "--set data.path=FOLDER",
    ("data", "root"): "--set data.root=FOLDER",
    ("backbone", "name"): "--set backbone.name=NAME; to download weights, for "
    "instance --set backbone.name=EfficientNetV2B0 "
    "--set backbone.weights=imagenet",
    ("backbone", "weights"): "--set backbone.weights=FILE",
    ("method", "teacher"): "--set method.teacher=RUN",
}
"""Keys that name files, and how to name others."""
