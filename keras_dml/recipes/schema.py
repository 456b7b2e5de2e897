"""Recipes: one YAML file says everything about a training run."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Section(BaseModel):
    """A part of a recipe; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GlyphsData(Section):
    """The embedded data set of typeface drawings; no download."""

    name: Literal["glyphs"]


class FolderData(Section):
    """Images in `path/class/image.jpg`, classes split in byte order."""

    name: Literal["image_folder"]
    path: str
    train_classes: (
        Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
    ) = 0.5
    validation: float = Field(0.2, gt=0, lt=1)
    unreadable: Literal["skip", "raise"] = "skip"


class Backbone(Section):
    """See `keras_dml.backbones.get`."""

    name: str
    input_shape: tuple[int, int, int] | None = None
    weights: str | None = None
    freeze_batch_norm: bool = False


class Baseline(Section):
    """See `keras_dml.methods.baseline`."""

    name: Literal["baseline"]
    embedding_dim: int = Field(128, ge=1)
    loss: str | dict[str, Any] = "margin"
    pooling: Literal["avg", "max"] = "avg"

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, loss: Any) -> Any:
        from keras_dml import losses

        losses.get(loss)
        return loss


class DivideAndConquer(Baseline):
    """See `keras_dml.methods.divide_and_conquer` and `Recluster`."""

    name: Literal["divide_and_conquer"]  # type: ignore[assignment]
    learners: int = Field(4, ge=1)
    split_embedding: bool = True
    update: Literal["active", "all"] = "active"
    every: int = Field(2, ge=1)
    partition: Literal["kmeans", "random", "labels"] = "kmeans"
    cluster_space: Literal["embedding", "features"] = "embedding"
    schedule: Literal["alternate", "round_robin", "proportional"] = "alternate"
    fill: Literal["none", "outside"] = "none"
    phases: list[tuple[int | None, str, str]] | None = None


class Batches(Section):
    """A batch has `images` images of each of `classes` classes."""

    classes: int = Field(32, ge=1)
    images: int = Field(4, ge=1)
    steps_per_epoch: int | None = Field(None, ge=1)


class Augmentation(Section):
    """See `keras_dml.data.pipeline`."""

    resize: int | None = Field(None, ge=1)
    crop: Literal["random", "random_resized", "center"] = "random"
    flip: bool = False
    pad: int = Field(0, ge=0)


class Optimizer(Section):
    """A Keras optimizer and those of its arguments that are not None."""

    name: str = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float | None = None
    epsilon: float | None = None
    momentum: float | None = None
    clipnorm: float | None = None
    global_clipnorm: float | None = None


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
    data: Annotated[GlyphsData | FolderData, Field(discriminator="name")]
    backbone: Backbone = Backbone(name="small_convnet")
    method: Annotated[Baseline | DivideAndConquer, Field(discriminator="name")]
    batches: Batches = Batches()
    augmentation: Augmentation = Augmentation()
    optimizer: Optimizer = Optimizer()
    loss_weights: dict[str, float | Literal["learned"]] = {}
    rate_multipliers: dict[str, float] = {}
    epochs: int = Field(8, ge=1)
    precision: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    jit: bool | Literal["auto"] = "auto"
    resize: int | None = Field(None, ge=1)
    evaluation: Evaluation = Evaluation()
