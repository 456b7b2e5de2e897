"""Recipes: one YAML file says everything about a training run."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from keras_dml.recipes.data_sections import Data
from keras_dml.recipes.num_classes import filled
from keras_dml.recipes.optimizer_sections import Optimizer
from keras_dml.recipes.section import Section

ResizeMode: TypeAlias = Literal["shortest", "longest", "squash"]


class Backbone(Section):
    """See `keras_dml.backbones.get`."""

    name: str
    input_shape: tuple[int, int, int] | None = None
    weights: str | None = None
    freeze_batch_norm: bool = False
    freeze_until: str | None = None


class Baseline(Section):
    """See `keras_dml.methods.baseline`.

    `num_classes: auto`, in a loss that has a weight for each class, is the
    number of classes that are trained on.
    """

    name: Literal["baseline"]
    embedding_dim: int = Field(128, ge=1)
    loss: str | dict[str, Any] = "margin"
    pooling: Literal["avg", "max"] = "avg"

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, loss: Any) -> Any:
        from keras_dml import losses

        losses.get(filled(loss, 2))
        return loss


class ABE(Baseline):
    """See `keras_dml.methods.abe`.

    With `pair_batches` a batch is made of pairs (`data.PairSampler`), of as
    many images as `batches` says.
    """

    name: Literal["abe"]  # type: ignore[assignment]
    embedding_dim: int = Field(512, ge=1)
    num_learners: int = Field(8, ge=1)
    loss: str | dict[str, Any] = "contrastive"
    branch: str | None = None
    attention_end: str | None = None
    variant: Literal["abe", "heads", "heads_attention", "tails"] = "abe"
    divergence: bool | None = None
    divergence_margin: float = Field(1.0, gt=0)
    pair_batches: bool = False
    pairs: Literal["all", "constructed"] = "all"
    tail_noise: float = Field(0.1, ge=0)

    @field_validator("pairs")
    @classmethod
    def _pairs_are_constructed(cls, pairs: str, info: ValidationInfo) -> str:
        if pairs == "constructed" and not info.data.get("pair_batches"):
            raise ValueError("needs `pair_batches: true`")
        return pairs


class AttentiveGrouping(Baseline):
    """See `keras_dml.methods.attentive_grouping`."""

    name: Literal["attentive_grouping"]  # type: ignore[assignment]
    num_groups: int | None = Field(None, ge=1)
    grouping: Literal["A", "N", "M", "G", "C"] = "A"
    key_dim: int | None = Field(None, ge=1)
    loss: str | dict[str, Any] = {"name": "margin", "learn_beta": True}
    scales: Literal["released", "paper_table"] = "released"
    diversity_reduction: Literal["mean", "sum"] = "mean"


class Division(Section):
    """See `keras_dml.data.ClusterSampler` and `Recluster`."""

    every: int = Field(2, ge=1)
    partition: Literal["kmeans", "random", "labels"] = "kmeans"
    cluster_space: Literal["embedding", "features"] = "embedding"
    schedule: Literal["alternate", "round_robin", "proportional"] = "alternate"
    fill: Literal["none", "outside"] = "none"
    phases: list[tuple[int | None, str, str]] | None = None

    @property
    def clusters(self) -> int:
        """Number of clusters to divide the data into; 0: do not divide."""
        raise NotImplementedError


class DCML(Division, Baseline):
    """See `keras_dml.methods.dcml`; with its clusters, also `Division`."""

    name: Literal["dcml"]  # type: ignore[assignment]
    embedding_dim: int = Field(512, ge=1)
    num_learners: int = Field(4, ge=1)
    num_compositors: int = Field(8, ge=0)
    tasks: Literal["metric", "clusters"] = "metric"
    train_compositors_on_tasks: bool = True
    softmax: bool = True
    signs: bool = True
    input_norm: bool = False
    compositor_initializer: str | dict[str, Any] = {
        "class_name": "RandomNormal",
        "config": {"mean": 0.0, "stddev": 1.0},
    }

    @property
    def clusters(self) -> int:
        parts = self.num_compositors or self.num_learners
        return parts if self.tasks == "clusters" else 0

    @model_validator(mode="after")
    def _divides(self) -> "DCML":
        changed = [
            name
            for name, field in Division.model_fields.items()
            if getattr(self, name) != field.default
        ]
        if changed and not self.clusters:
            raise ValueError(
                f"{changed} say how to divide the data into clusters, and "
                f"`tasks` do not use any. Received: tasks={self.tasks!r}. "
                "Use `tasks: clusters`, or leave them out."
            )
        return self


class DivideAndConquer(Division, Baseline):
    """See `keras_dml.methods.divide_and_conquer` and `Division`."""

    name: Literal["divide_and_conquer"]  # type: ignore[assignment]
    num_learners: int = Field(4, ge=1)
    split_embedding: bool = True
    update: Literal["active", "all"] = "active"

    @property
    def clusters(self) -> int:
        return self.num_learners


class Diva(Baseline):
    """See `keras_dml.methods.diva`."""

    name: Literal["diva"]  # type: ignore[assignment]
    embedding_dim: int = Field(512, ge=1)
    tasks: tuple[Literal["discriminative", "dance", "shared", "intra"], ...] = (
        "discriminative",
        "dance",
        "shared",
        "intra",
    )
    auxiliary_loss: str | dict[str, Any] | None = None
    alpha: float = 0.3
    rho: float = 1500.0
    shared: Literal["strict", "negative_only", "permuted"] = "strict"
    queue_size: int = Field(3360, ge=1)
    temperature: float = Field(0.1, gt=0)
    weighting: Literal["released", "paper"] | None = "released"
    limit: float | None = Field(None, gt=0)
    momentum: float = Field(0.9, ge=0, le=1)
    copy_statistics: bool = False
    psi_units: int = Field(512, ge=1)
    reduction: Literal["mean", "sum"] = "mean"
    test_weights: tuple[float, ...] | None = None

    @field_validator("auxiliary_loss")
    @classmethod
    def _known_auxiliary_loss(cls, loss: Any) -> Any:
        return loss if loss is None else cls._known_loss(loss)


class Batches(Section):
    """A batch has `images_per_class` images of each of `classes_per_batch`."""

    classes_per_batch: int = Field(32, ge=1)
    images_per_class: int = Field(4, ge=1)
    steps_per_epoch: int | None = Field(None, ge=1)


class Augmentation(Section):
    """See `keras_dml.data.pipeline`."""

    resize: int | None = Field(None, ge=1)
    resize_mode: ResizeMode = "shortest"
    crop: Literal["random", "random_resized", "center"] = "random"
    flip: bool = False
    pad: int = Field(0, ge=0)
    views: Literal[1, 2] = 1
    cache: Literal["none", "auto", "memory", "disk"] = "none"


class Evaluation(Section):
    """What is measured on test, and how the best epoch is chosen.

    The choice is made on classes held out of training, by `monitor`, which
    is one of `metrics`.
    """

    metrics: tuple[str, ...] = ("recall@1", "map@r", "r_precision", "nmi")
    monitor: str = "map@r"
    every: int = Field(1, ge=1)


class Recipe(Section):
    """A training run, complete: the same recipe gives the same run."""

    name: str
    seed: int = 0
    data: Annotated[Data, Field(discriminator="name")]
    backbone: Backbone = Backbone(name="small_convnet")
    method: Annotated[
        ABE | AttentiveGrouping | Baseline | DCML | Diva | DivideAndConquer,
        Field(discriminator="name"),
    ]
    batches: Batches = Batches()
    augmentation: Augmentation = Field(Augmentation(), validate_default=True)
    optimizer: Optimizer = Optimizer()
    loss_weights: dict[str, float | Literal["learned"]] = {}
    rate_multipliers: dict[str, float] = {}
    epochs: int = Field(8, ge=1, validate_default=True)
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    jit: bool | Literal["auto"] = "auto"
    resize: int | None = Field(None, ge=1)
    resize_mode: ResizeMode = "shortest"
    evaluation: Evaluation = Evaluation()

    @field_validator("augmentation")
    @classmethod
    def _enough_views(
        cls, augmentation: Augmentation, info: ValidationInfo
    ) -> Augmentation:
        method = info.data.get("method")
        compares = isinstance(method, Diva) and "dance" in method.tasks
        if compares and augmentation.views != 2:
            raise ValueError(
                'the task "dance" of diva compares two views of an image: '
                "set `augmentation: {views: 2}`, or leave it out of `tasks`"
            )
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
