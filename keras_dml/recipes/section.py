"""Section: what all parts of a recipe have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of a recipe; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(Section):
    """A part of a recipe whose other keys depend on its `name`."""

    name: str
