"""Recipes' sections on the optimizer and its learning rate."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from keras_dml.recipes.section import Section


class Steps(Section):
    """The learning rate times `factor` from the end of each of `epochs`."""

    name: Literal["steps"]
    epochs: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    factor: float = Field(0.1, gt=0, lt=1)

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
    """To 0 at the end of the run along half a cosine (SGDR, Eq. 5).

    Before that, `warmup` epochs from 0 up to the learning rate, in a line.
    """

    name: Literal["cosine"]
    warmup: int = Field(0, ge=0)

    @property
    def last_change(self) -> int:
        """Epochs that are over when the cosine starts."""
        return self.warmup


Schedule: TypeAlias = Steps | Cosine


class Optimizer(Section):
    """A Keras optimizer and those of its arguments that are not None.

    `decay` says how `weight_decay` acts: "decoupled", as Keras has it, or
    "coupled", as PyTorch's Adam and SGD have it; see
    `keras_dml.optimizers.CoupledDecay`.
    """

    name: str = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    schedule: Schedule | None = Field(None, discriminator="name")
    weight_decay: float | None = Field(None, ge=0)
    decay: Literal["coupled", "decoupled"] = "decoupled"
    epsilon: float | None = None
    momentum: float | None = None
    clipnorm: float | None = None
    global_clipnorm: float | None = None

    @field_validator("decay")
    @classmethod
    def _has_coupled_decay(cls, decay: str, info: ValidationInfo) -> str:
        from keras_dml.optimizers import COUPLED

        if decay == "decoupled":
            return decay
        name = info.data.get("name", "")
        if name.lower() not in COUPLED:
            raise ValueError(
                f"there is no {name!r} with coupled decay, only "
                f"{', '.join(COUPLED)}; use one of these or `decay: "
                "decoupled`"
            )
        if info.data.get("weight_decay", 0) is None:
            raise ValueError(
                "says how `weight_decay` acts, and there is none; set it, "
                "or leave `decay` out"
            )
        return decay
