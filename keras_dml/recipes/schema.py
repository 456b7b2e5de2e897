"""Recipes: one YAML file says everything about a training run."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator

from keras_dml.evaluation.metrics import expanded
from keras_dml.methods.declaration import find
from keras_dml.recipes.optimizer_sections import Optimizer
from keras_dml.recipes.section import Named, Section

Side: TypeAlias = Annotated[int, Field(ge=1)]
ResizeMode: TypeAlias = Literal["shortest", "longest", "squash"]


class Backbone(Section):
    """See `keras_dml.backbones.get`."""

    name: str
    input_shape: tuple[int, int, int] | None = None
    weights: str | None = None
    freeze_batch_norm: bool = False
    freeze_until: str | None = None


class Batches(Section):
    """A batch has `images_per_class` images of each of `classes_per_batch`."""

    classes_per_batch: int = Field(32, ge=1)
    images_per_class: int = Field(4, ge=1)
    steps_per_epoch: int | None = Field(None, ge=1)


class View(Section):
    """What the model sees of an image; see `keras_dml.data.View`.

    Training cuts its windows out of images of the same size, where
    `augmentation` says nothing else.
    """

    resize: Side | None = None
    resize_mode: ResizeMode = "shortest"


class Augmentation(Section):
    """See `keras_dml.data.pipeline`.

    `resize` and `resize_mode` are by default those of the recipe's `view`;
    with `resize: null` windows are cut out of the images as they are.
    """

    resize: Side | None = None
    resize_mode: ResizeMode = "shortest"
    crop: Literal["random", "random_resized", "center"] = "random"
    flip: bool = False
    pad: int = Field(0, ge=0)
    num_views: Literal[1, 2] = 1
    cache: Literal["none", "auto", "memory", "disk"] = "none"


class Evaluation(Section):
    """What is measured on test, and how the best epoch is chosen.

    The choice is made on classes held out of training, by `monitor`, which
    is one of `metrics`.
    """

    metrics: tuple[str, ...] = ("recall@1", "map@r", "r_precision", "nmi")
    monitor: str = "map@r"
    every: int = Field(1, ge=1)

    @field_validator("metrics")
    @classmethod
    def _known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        expanded(metrics, (1,), "a recipe")
        return metrics


class Recipe(Section):
    """A training run, complete: the same recipe gives the same run."""

    name: str
    seed: int = 0
    data: SerializeAsAny[Named]
    backbone: Backbone = Backbone(name="small_convnet")
    method: SerializeAsAny[Named]
    batches: Batches = Batches()
    view: View = View()
    augmentation: Augmentation = Field(Augmentation(), validate_default=True)
    optimizer: Optimizer = Optimizer()
    loss_weights: dict[str, float | Literal["learned"]] = {}
    rate_multipliers: dict[str, float] = {}
    epochs: int = Field(8, ge=1, validate_default=True)
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    jit: bool | Literal["auto"] = "auto"
    evaluation: Evaluation = Evaluation()

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
        return {**view.model_dump(), **augmentation}

    @field_validator("augmentation")
    @classmethod
    def _enough_views(
        cls, augmentation: Augmentation, info: ValidationInfo
    ) -> Augmentation:
        method = info.data.get("method")
        if method is not None and augmentation.num_views != 2:
            why = find(method.name)[1].two_views(method.model_dump())
            if why is not None:
                raise ValueError(why)
        return augmentation

    @field_validator("epochs")
    @classmethod
    def _schedule_ends(cls, epochs: int, info: ValidationInfo) -> int:
        optimizer = info.data.get("optimizer")
        schedule = optimizer and optimizer.schedule
        if schedule and schedule.last_change >= epochs:
            raise ValueError(
                f"`optimizer.schedule` still changes the learning rate after "
                f"{schedule.last_change} epochs, when the run is over; train "
                "longer, change the schedule, or set `optimizer.schedule` to "
                "null"
            )
        return epochs
