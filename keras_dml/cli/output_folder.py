"""Folders that commands write."""

import os
from pathlib import Path
from typing import Any

import click

_FILES = (".csv", ".tsv", ".parquet", ".npy", ".npz", ".json", ".index")
"""Ends of names of which a folder is hardly meant."""


class OutputFolder(click.Path):
    """A folder that is new or exists, or the address of one."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path; a usage error if it is a file or named like one."""
        path = Path(value)
        if path.suffix.lower() in _FILES and not path.is_dir():
            self.fail(
                f"{os.fspath(value)!r} is named like a file, but will be a "
                f"folder. Use a name such as {path.stem!r}.",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)
