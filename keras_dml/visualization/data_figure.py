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
"""A table: for each column its values, equally many."""


class DataFigure(Figure):
    """A `matplotlib.figure.Figure` with its numbers, by column, as `data`.

    It belongs to no window and to no global state of matplotlib.
    """

    def __init__(self, data: Columns, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data = dict(data)

    def save(self, path: str | os.PathLike[str], dpi: int = 200) -> Path:
        """Writes the figure, and its numbers beside it as CSV.

        Args:
            path: Where to; the suffix says the format, such as ".png",
                ".svg" or ".pdf". The CSV has the same name otherwise.
            dpi: Dots per inch, where the format has dots.

        Returns:
            The path of the CSV.
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
        """What a notebook shows, also without `%matplotlib inline`."""
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()

    def write_csv(self, writer: Any) -> None:
        """Writes the numbers with a `csv.writer`, a header first."""
        writer.writerow(self.data)
        writer.writerows(zip(*self.data.values(), strict=True))
