"""Schema: the sections of a recipe, and what they hold by default.

Keys that are arguments of a function have its types, ranges and defaults. The
file is longer than others because most checks are of settings in two sections,
which are easier to follow beside each other.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, Self, TypeAlias

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from keras_dml import backbones, callbacks, data
from keras_dml.data.augmentations import as_steps
from keras_dml.data.batches import Views
from keras_dml.evaluation.metrics import expanded
from keras_dml.evaluation.reranking.base import rerankings
from keras_dml.losses.labels import Rule
from keras_dml.methods.declaration import Uses, find
from keras_dml.model.metric_model import Gather
from keras_dml.optimizers import COUPLED, known_optimizers
from keras_dml.recipes.sections import Named, Section
from keras_dml.recipes.signatures import keys_of
from keras_dml.utils.arguments import did_you_mean, matches
from keras_dml.utils.types import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    Seed,
    Share,
)

MOMENTUM = "ema_momentum"
"""The argument that gives any method a momentum network."""

_ANY_SIDE = 2**15
"""Of images, in pixels, where nothing says how long it is."""

_MOST_EPOCHS = 10**6

_MOST_IMAGES = 2**28
"""Of an epoch, whose rows are planned in memory."""

_NAME = r"\w([\w .,=()+-]{0,98}[\w)+-])?"


def looked_up(uses: Uses) -> Callable[..., Any]:
    """The sampler or callback that a method names."""
    if callable(uses.what):
        return uses.what
    module = data if hasattr(data, uses.what) else callbacks
    made: Callable[..., Any] = getattr(module, uses.what)
    return made


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
class Backbone(Named):
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

    freeze_epochs: int = Field(0, ge=0, le=_MOST_EPOCHS)
    feature_views: int = Field(0, ge=0, le=1000)
    feature_cache: Literal["auto", "memory", "disk", "none"] = "auto"


@keys_of(data.HardClassBalanced, ("num_neighbors",))
@keys_of(callbacks.HardClasses, ("every", "start"))
class HardClasses(Section):
    """Batches of classes that are near each other.

    See `keras_dml.data.HardClassBalanced` and
    `keras_dml.callbacks.HardClasses`.
    """


@keys_of(data.ClassBalanced, ("images_per_class", "steps_per_epoch"))
class Batches(Section):
    """Batches of `images_per_class` images from `classes_per_batch` classes.

    With `fewer_classes`, batches have all training classes if these are fewer.
    It is true for a number of classes that comes with the package, and false
    for one of your own, unless you say otherwise.
    """

    classes_per_batch: Count = 32
    fewer_classes: bool = True
    hard_classes: HardClasses | None = None

    @model_validator(mode="after")
    def _epoch_fits(self) -> Self:
        images = self.classes_per_batch * self.images_per_class
        if images * (self.steps_per_epoch or 1) > _MOST_IMAGES:
            raise ValueError(
                f"an epoch must have at most {_MOST_IMAGES:,} images"
            )
        return self

    @property
    def sizes(self) -> dict[str, Any]:
        """What every sampler of batches of classes is given."""
        return self.model_dump(exclude={"hard_classes", "fewer_classes"})


@keys_of(data.View, ("resize", "resize_mode", "fast"))
class View(Section):
    """Preprocessing of images for the model; see `keras_dml.data.View`.

    Random crops for training are taken from images resized in the same way,
    unless `augmentation` says otherwise.
    """


@keys_of(
    data.pipeline,
    (
        "resize", "resize_mode", "crop", "flip", "pad", "augment",
        "augment_by", "num_views", "cache",
    ),
)  # fmt: skip
class Augmentation(Section):
    """See `keras_dml.data.pipeline`.

    By default, `resize` and `resize_mode` are those of the recipe's `view`;
    with `resize: null`, crops are taken from the original images. `augment`
    lists Keras layers with their arguments.
    """

    @field_validator("augment", check_fields=False)
    @classmethod
    def _layers_are_known(cls, augment: Any) -> Any:
        if augment is not None:
            as_steps(augment)
        return augment


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
        """Epochs that are over when the schedule has its last say."""
        return self.epochs[-1]


class Cosine(Section):
    """Decay to 0 at the end of the run along half a cosine (SGDR, Eq. 5).

    Before that, the learning rate rises linearly from 0 for `warmup` epochs.
    """

    name: Literal["cosine"]
    warmup: int = Field(0, ge=0, le=_MOST_EPOCHS)

    @property
    def last_change(self) -> int:
        """Epochs that are over when the cosine starts."""
        return self.warmup


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
        known = known_optimizers()
        if name.lower() not in known and ">" not in name:
            raise ValueError(
                f"must be an optimizer of Keras.{did_you_mean(name, known)}"
            )
        return name

    @model_validator(mode="after")
    def _takes_arguments(self) -> Self:
        made = known_optimizers().get(self.name.lower())
        if made is None:  # Of the user's own.
            return self
        known = inspect.signature(made.__init__).parameters
        for name in ("epsilon", "momentum"):
            if getattr(self, name) is not None and name not in known:
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


@keys_of(
    callbacks.RetrievalEvaluation,
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
    """What is measured on the test set, and how the best epoch is chosen.

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
    def _known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        expanded(metrics, (1,), "a recipe")
        return metrics

    @model_validator(mode="after")
    def _can_rerank(self) -> Self:
        rerankings(self.rerank, self.distance, "a recipe")
        return self


class Recipe(Section):
    """A complete training run: the same recipe gives the same run.

    With `train_on: all`, or `validation: 0` in `data`, no class is held out, as
    with the training sets of the papers. In this case no epoch is chosen, and
    the last one is measured. It is the last of `epochs`, or `stop_after` if
    given; settings that depend on the length of training, such as schedules,
    always use `epochs`. `refit: true` trains once more on all classes, for the
    number of epochs that was chosen on held-out classes, in the folder `refit`
    of the run.
    """

    name: str
    seed: Seed = 0
    data: SerializeAsAny[Named]
    backbone: Backbone = Backbone(name="small_convnet")
    method: SerializeAsAny[Named]
    batches: Batches = Batches()
    view: View = View()
    augmentation: Augmentation = Field(Augmentation(), validate_default=True)
    optimizer: Optimizer = Optimizer()
    relation_rule: Rule | None = None
    gather: Gather = "replicas"
    accumulate: Count = 1
    loss_weights: dict[str, float | Literal["learned"]] = {}
    rate_multipliers: dict[str, NonNegative] = {}
    epochs: int = Field(8, ge=1, le=_MOST_EPOCHS, validate_default=True)
    stop_after: int | None = Field(None, ge=1, le=_MOST_EPOCHS)
    train_on: Literal["train", "all"] = "train"
    refit: bool = False
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
        own = find(method.name)[1].sampler
        if own is not None and own.is_used(method.model_dump()):
            raise ValueError(
                f"`hard_classes` cannot be used with {method.name!r}, which "
                f"makes its own batches, those of a {own.what}; leave it out"
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
        shape = getattr(info.data.get("backbone"), "input_shape", None)
        channels = 3
        # Of a size that is not known, any that fits.
        size: Any = (augmentation.resize or _ANY_SIDE,) * 2
        if isinstance(shape, tuple) and len(shape) == 3 and None not in shape:
            size, channels = shape[:2], shape[2]
        views = Views(size=size, **augmentation.model_dump())
        views.with_channels(channels)
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

    @field_validator("augmentation")
    @classmethod
    def _views_are_computed(
        cls, augmentation: Augmentation, info: ValidationInfo
    ) -> Augmentation:
        backbone = info.data.get("backbone")
        given = augmentation.model_dump(exclude={"resize", "resize_mode"})
        default = Augmentation().model_dump()
        if given["crop"] == "center":  # As the test view has it.
            given["crop"] = default["crop"]
        if (
            backbone is not None
            and backbone.freeze
            and backbone.feature_cache != "none"
            and not backbone.feature_views
            and any(x != default[k] for k, x in given.items() if k != "cache")
        ):
            raise ValueError(
                "random views have no effect on a head that is trained on "
                "features of the test view; set `backbone.feature_views`, the "
                "number of views per image, or leave them out"
            )
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
