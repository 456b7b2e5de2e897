"""The folder of a run: writing and reading its files."""

import csv
import io
import json
import logging
import os
import shlex
import shutil
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_dml.evaluation import Results
from keras_dml.recipes import Recipe, RecipeError, dump, load
from keras_dml.recipes.included import RECIPE
from keras_dml.recipes.inheritance import complete
from keras_dml.runs.outcome import Outcome
from keras_dml.utils.files import (
    LOCK,
    atomic_file,
    check_regular,
    differences,
    write_atomically,
)
from keras_dml.utils.models import read_model
from keras_dml.utils.trust import reading

logger = logging.getLogger(__name__)

METRICS = "metrics.csv"
RESULT = "result.json"
SUMMARY = "summary.md"
QUERIES = "queries.npz"
STATE = "state"

_PER_QUERY = "query/"
_MEMBER_ROWS, _MEMBER_CLASSES = "places/", "classes/"


def create_folder(
    path: str | os.PathLike[str], recipe: Recipe, overwrite: bool = False
) -> Path:
    """Creates the folder of a new run, with its complete recipe.

    Args:
        path: The folder; it may exist if it is empty.
        recipe: The recipe of the run.
        overwrite: Whether to remove an existing run.

    Raises:
        FileExistsError: See `check_output`.
    """
    folder = Path(path)
    check_output(folder, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        # The recipe stays, so that the folder remains that of a run.
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (RECIPE, LOCK):
            path.unlink()
    write_atomically(folder / RECIPE, dump(recipe))
    return folder


def free_folder(name: str, inside: str = "runs") -> Path:
    """The path `inside/name`, with a number added if it exists."""
    return next(x for x in _folders(name, inside) if not x.exists())


def last_folder(name: str, inside: str = "runs") -> Path:
    """The last existing one of these folders, or else the first."""
    existing = list(takewhile(Path.exists, _folders(name, inside)))
    return existing[-1] if existing else Path(inside) / name


def _folders(name: str, inside: str) -> Iterator[Path]:
    yield Path(inside) / name
    yield from (Path(inside) / f"{name}-{number}" for number in count(2))


def is_finished(path: str | os.PathLike[str]) -> bool:
    """Whether a run has ended and was saved completely."""
    result = Path(path) / RESULT
    if not result.exists():
        return False
    content = json.loads(result.read_text(encoding="utf-8"))
    return not (content["interrupted"] or content.get("unsaved"))


def check_same_recipe(path: str | os.PathLike[str], recipe: Recipe) -> None:
    """Checks that a folder has a run of the same recipe, or is free."""
    if not (Path(path) / RECIPE).exists():
        check_output(path)
        return
    changes = changed_settings(path, recipe)
    if changes:
        raise RecipeError(
            f"The run {os.fspath(path)!r} cannot be continued: it belongs to "
            "another recipe. These settings have changed:\n  "
            + "\n  ".join(changes)
            + "\nUse the recipe of the run, or another --output."
        )


def changed_settings(path: str | os.PathLike[str], recipe: Recipe) -> list[str]:
    """Settings that differ from a run's, as "key.key: before → after"."""
    file, before = Path(path) / RECIPE, {}
    if file.exists():
        try:
            before = load_recipe(path).model_dump(mode="json")
        except RecipeError:  # It may name a module that `recipe` does not.
            before = complete(file)
    return differences(before, recipe.model_dump(mode="json"))


def check_output(path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Checks that a run can be written to `path`, without changing anything.

    Raises:
        FileExistsError: If `path` exists, unless it is a run and `overwrite` is
            set.
    """
    folder = Path(path)
    is_run = (folder / RECIPE).exists()
    names = {x.name for x in folder.iterdir()} if folder.is_dir() else set()
    is_taken = folder.is_file() or bool(names - {LOCK})
    if is_taken and not (is_run and overwrite):
        way_out = "--overwrite to replace it, or " if is_run else ""
        if STATE in names:
            way_out = f"--resume to continue it, {way_out}"
        raise FileExistsError(
            f"The output {folder} already exists. Use {way_out}another "
            "--output."
        )


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Writes the summary, the values of each query and, last, the result."""
    write_atomically(folder / SUMMARY, outcome.summary())
    results = outcome.after
    arrays: dict[str, Any] = {
        # Enough for a bootstrap.
        _PER_QUERY + name: value.astype(np.float32)
        for name, value in results.per_query.items()
    }
    for level, (rows, classes) in results.memberships.items():
        arrays |= {_MEMBER_ROWS + level: rows, _MEMBER_CLASSES + level: classes}
    # As pairs, because keys of JSON cannot be numbers.
    names = {x: list(y.items()) for x, y in results.class_names.items()}
    with atomic_file(folder / QUERIES) as partial:
        np.savez_compressed(
            partial,
            rows=results.query_rows,
            labels=results.query_labels,
            about=np.array(json.dumps(results.to_dict())),
            names=np.array(json.dumps(names)),
            **arrays,
        )
    result = json.dumps(outcome.to_dict(), indent=2) + "\n"
    write_atomically(folder / RESULT, result)


def load_recipe(
    folder: str | os.PathLike[str], *, trust: bool = False
) -> Recipe:
    """Reads the recipe of a run.

    Args:
        folder: The folder of the run.
        trust: Whether modules that the recipe names, as "module:function", are
            imported. Otherwise they must be imported already.

    Raises:
        RecipeError: If the folder is not that of a run, or its recipe names a
            module that is neither imported nor trusted.
    """
    path = Path(folder) / RECIPE
    if not path.exists():
        raise RecipeError(
            f"{os.fspath(folder)!r} is not the folder of a run: it has no "
            f"{RECIPE}. Use the folder that `keras-dml train` prints."
        )
    with reading(folder, trust):
        return load(path)


def load_outcome(
    folder: str | os.PathLike[str], *, trust: bool = False
) -> Outcome:
    """Reads the outcome of a finished run; for `trust`, see `load_recipe`."""
    recipe = load_recipe(folder, trust=trust)
    queries, result = (Path(folder) / name for name in (QUERIES, RESULT))
    for path in (queries, result):
        if not path.exists():
            raise FileNotFoundError(
                f"The run {os.fspath(folder)!r} has no {path.name}: it ended "
                f"before it was measured. {_way_on(folder)}"
            )
        check_regular(path)
    try:
        content = json.loads(result.read_text(encoding="utf-8"))
        return Outcome(recipe, **{**content, "after": read_queries(queries)})
    # Files from strangers may hold anything, so any error may occur.
    except Exception as error:
        raise ValueError(
            f"The result of the run {os.fspath(folder)!r} is damaged: "
            f"{RESULT} and {QUERIES} cannot be read. Restore them from a "
            "copy, or measure its models with `keras-dml evaluate`. "
            f"{type(error).__name__}: {error}"
        ) from error


def load_model(
    folder: str | os.PathLike[str], which: str = "best", *, trust: bool = False
) -> keras.Model:
    """Loads the best or the last model of a run.

    If the run ended before its first epoch did, or the disk was full, there is
    no best model. In this case, the last one is returned, with a warning.

    Args:
        folder: The folder of the run.
        which: "best" or "last".
        trust: Whether code that comes with the run may be used: modules that
            its recipe names are imported, and Keras's `safe_mode` is off.
            Otherwise only what the program has imported is used.

    Raises:
        RecipeError: If the folder is not that of a run, or its recipe names a
            module that is neither imported nor trusted.
        FileNotFoundError: If the run did not save a model.
        ValueError: If the model is damaged, or has code that is not trusted.
    """
    # Keras does not know the model's layers before the module of a method that
    # is not of this package is imported.
    recipe = load_recipe(folder, trust=trust)
    for name in (which, "last"):
        path = Path(folder) / f"{name}.keras"
        if path.exists():
            if name != which and recipe.holds_out:
                message = (
                    "The run %s has no %s.keras; %s.keras is used instead."
                )
                logger.warning(message, folder, which, name)
            with reading(path, trust):
                return read_model(path)
    raise FileNotFoundError(
        f"The run {os.fspath(folder)!r} has no {which}.keras: it ended "
        f"before a model was saved. {_way_on(folder)}"
    )


def resume_command(folder: str | os.PathLike[str]) -> list[str]:
    """The words of the command that continues a run."""
    path = os.fspath(folder)
    recipe = os.path.join(path, RECIPE)
    return ["keras-dml", "train", recipe, "--output", path, "--resume"]


def _way_on(folder: str | os.PathLike[str]) -> str:
    """How to go on with an unfinished run without losing work."""
    if any((Path(folder) / STATE).glob("state-*.npz")):
        return f"Continue it: {shlex.join(resume_command(folder))}"
    return "Train it again with --overwrite."


def read_queries(path: Path) -> Results:
    """Reads results with their values for each query."""
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        values = {
            name.removeprefix(_PER_QUERY): file[name].astype(np.float64)
            for name in file.files
            if name.startswith(_PER_QUERY)
        }
        members = {
            level: (file[_MEMBER_ROWS + level], file[_MEMBER_CLASSES + level])
            for name in file.files
            if (level := name.removeprefix(_MEMBER_ROWS)) != name
        }
        rows, labels = file["rows"], file["labels"]
        names = json.loads(str(file["names"])) if "names" in file else {}
    per_seed = {k: np.array(v) for k, v in about.pop("per_seed").items()}
    return Results(
        about.pop("metrics"),
        per_query=values,
        per_seed=per_seed,
        query_rows=rows,
        query_labels=labels,
        memberships=members,
        class_names={level: dict(pairs) for level, pairs in names.items()},
        **about,
    )


class RunLog(keras.callbacks.Callback):
    """Writes a row for each epoch, as `keras.callbacks.CSVLogger` does.

    The file is written whole each time, so that it has every row once, also
    where a training continues, or the disk was full for some epochs.

    Attributes:
        error: What stopped the rows that are missing; None if none are.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.error: str | None = None
        self._rows: list[dict[str, Any]] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        row = dict(sorted((logs or {}).items()))
        self._rows.append({"epoch": epoch, **row})
        self._write()

    def on_train_end(self, logs: Any = None) -> None:
        if self.error is not None:
            self._write()

    def get_state(self) -> dict[str, Any]:
        """The state of this callback, for `Resume`."""
        return {"rows": self._rows}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the result of `get_state`."""
        self._rows = state["rows"]
        if self._rows:
            self._write()

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(self._rows[0]), restval="NA", extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(self._rows)
        try:
            write_atomically(self.path, text.getvalue())
        except OSError as error:
            if self.error is None:
                logger.error(
                    "Could not write %s: %s. Training continues.",
                    self.path,
                    error,
                )
            self.error = error.strerror or str(error)
        else:
            self.error = None
