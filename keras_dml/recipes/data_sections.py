"""Recipes' sections on data: one for each kind of data set."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from keras_dml.recipes.section import Section


class GlyphsData(Section):
    """The embedded data set of typeface drawings; no download."""

    name: Literal["glyphs"]


TrainClasses: TypeAlias = (
    Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]
)


class LocalData(Section):
    """Images on this machine, some training classes held out."""

    name: str
    path: str
    validation: float = Field(0.2, gt=0, lt=1)


class FolderData(LocalData):
    """Images in `path/class/image.jpg`, classes split in byte order."""

    name: Literal["image_folder"]
    train_classes: TrainClasses = 0.5
    unreadable: Literal["skip", "raise"] = "skip"


class TableData(LocalData):
    """See `keras_dml.data.table`."""

    name: Literal["table"]
    root: str | None = None
    train_classes: TrainClasses = 0.5


class BoxedData(LocalData):
    """See `keras_dml.data.cub200` and `keras_dml.data.cars196`."""

    name: Literal["cub200", "cars196"]
    cropped: bool = False


class ListedData(LocalData):
    """See `keras_dml.data.sop` and `keras_dml.data.inshop`."""

    name: Literal["sop", "inshop"]


class VehicleIDData(LocalData):
    """See `keras_dml.data.vehicleid`."""

    name: Literal["vehicleid"]
    test: Literal["small", "medium", "large"] = "small"


Data: TypeAlias = (
    GlyphsData | FolderData | TableData | BoxedData | ListedData | VehicleIDData
)
