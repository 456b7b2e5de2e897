"""DataFigure: a matplotlib figure that carries its numbers."""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib.figure import Figure

from keras_dml.utils.files import atomic_file

Columns: TypeAlias = Mapping[str, Any]
"""A table: the values of each column, with columns of equal length."""


class DataFigure(Figure):
    """A `matplotlib.figure.Figure` that holds its numbers in `data`.

    `data` maps names of columns to values. The figure is not part of a window
    or of matplotlib's global state.
    """

    def __init__(self, data: Columns, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data = dict(data)

    def save(self, path: str | os.PathLike[str], dpi: int = 200) -> Path:
        """Writes the figure, and its numbers as a CSV file next to it.

        Args:
            path: The file to write. Its suffix determines the format, such as
                ".png", ".svg" or ".pdf". The CSV file has the same name with
                the suffix ".csv".
            dpi: Dots per inch, for formats that consist of pixels.

        Returns:
            The path of the CSV file.
        """
        path = Path(path)
        with atomic_file(path) as partial:
            self.savefig(partial, dpi=dpi)
        table = path.with_suffix(".csv")
        with (
            atomic_file(table) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            self.write_csv(csv.writer(file))
        return table

    def _repr_png_(self) -> bytes:
        """The picture in a notebook, also without `%matplotlib inline`."""
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()

    def write_csv(self, writer: Any) -> None:
        """Writes a header and the numbers with a `csv.writer`."""
        writer.writerow(self.data)
        writer.writerows(zip(*self.data.values(), strict=True))
