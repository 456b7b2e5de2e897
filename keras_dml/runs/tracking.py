"""Experiment trackers of a run: MLflow, TensorBoard, Weights & Biases."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras

from keras_dml import data
from keras_dml.callbacks.projector import export_projector
from keras_dml.evaluation import bootstrap
from keras_dml.recipes import Recipe
from keras_dml.runs.folder import METRICS, QUERIES, RECIPE, RESULT, SUMMARY
from keras_dml.runs.outcome import Outcome
from keras_dml.utils.arguments import check_choice, import_extra
from keras_dml.utils.files import flat, write_atomically

logger = logging.getLogger(__name__)

TRACKERS = ("mlflow", "tensorboard", "wandb")
"""Trackers of runs, by the names of their modules and extras."""

FILES = (RECIPE, METRICS, RESULT, SUMMARY, QUERIES, "best.keras")
"""Files of a run that trackers keep."""

IDS = "trackers.json"


def check_trackers(names: Sequence[str]) -> None:
    """Checks that trackers exist and can be imported."""
    for name in names:
        check_choice("runs.train", "log", name, TRACKERS)
        import_extra(f"log={name!r}", name, name)


class Trackers:
    """The trackers of a run; a context in which their runs are open.

    A tracker that fails logs a warning and does not end the training. The ids
    of the tracked runs are kept in the folder of the run, so that a training
    that is resumed continues them. `callbacks` log the epochs.
    """

    def __init__(
        self,
        names: Sequence[str],
        recipe: Recipe,
        folder: Path,
        images: data.Examples,
    ) -> None:
        self.names = names
        self.recipe = recipe
        self.folder = folder
        self.images = images
        self.callbacks: list[keras.callbacks.Callback] = []
        self._open: dict[str, tuple[Callable[..., None], ...]] = {}
        self._is_interrupted = False

    def __enter__(self) -> "Trackers":
        path = self.folder / IDS
        ids = json.loads(path.read_text()) if path.exists() else {}
        for name in dict.fromkeys(self.names):
            with _tolerate_errors(name):
                getattr(self, f"_begin_{name}")(ids)
        if ids:
            write_atomically(path, json.dumps(ids))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        status = "FINISHED"
        if kind is not None or self._is_interrupted:
            is_error = kind is not None and issubclass(kind, Exception)
            status = "FAILED" if is_error else "KILLED"
        for name, (_log, end) in self._open.items():
            with _tolerate_errors(name):
                end(status)

    def log_outcome(self, outcome: Outcome) -> None:
        """Logs final metrics with their intervals, and the files of the run."""
        self._is_interrupted = outcome.interrupted
        metrics = {f"test/{k}": float(v) for k, v in outcome.after.items()}
        if outcome.after.per_query:
            for name, interval in bootstrap(outcome.after).items():
                metrics[f"test/{name}/low"] = interval.low
                metrics[f"test/{name}/high"] = interval.high
        files = [self.folder / x for x in FILES if (self.folder / x).exists()]
        for name, (log, _end) in self._open.items():
            with _tolerate_errors(name):
                log(metrics, files)

    def _begin_mlflow(self, ids: dict[str, str]) -> None:
        import mlflow

        class Callback(mlflow.keras.MlflowCallback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                super().on_epoch_end(epoch, _with_allowed_names(logs or {}))

        def log(metrics: dict[str, float], files: list[Path]) -> None:
            mlflow.log_metrics(_with_allowed_names(metrics))
            for path in files:
                mlflow.log_artifact(str(path))

        run = mlflow.start_run(ids.get("mlflow"), run_name=self.recipe.name)
        ids["mlflow"] = run.info.run_id
        settings = flat(self.recipe.model_dump(mode="json"))
        mlflow.log_params(_with_allowed_names(settings))
        self.callbacks.append(Callback())
        self._open["mlflow"] = log, mlflow.end_run

    def _begin_tensorboard(self, ids: dict[str, str]) -> None:
        folder = self.folder / "tensorboard"
        board = keras.callbacks.TensorBoard(str(folder), write_graph=False)

        def export(logs: Any = None) -> None:
            export_projector(
                folder, board.model, self.images, seed=self.recipe.seed
            )

        projector = keras.callbacks.LambdaCallback(on_train_end=export)
        self.callbacks += [board, projector]

    def _begin_wandb(self, ids: dict[str, str]) -> None:
        import wandb
        from wandb.integration.keras import WandbMetricsLogger

        def log(metrics: dict[str, float], files: list[Path]) -> None:
            run.summary.update(metrics)
            artifact = wandb.Artifact(f"run-{run.id}", type="run")
            for path in files:
                artifact.add_file(str(path))
            run.log_artifact(artifact)

        def end(status: str) -> None:
            wandb.finish(exit_code=int(status != "FINISHED"))

        run = wandb.init(
            name=self.recipe.name,
            config=self.recipe.model_dump(mode="json"),
            id=ids.get("wandb"),
            resume="allow",
        )
        ids["wandb"] = run.id
        self.callbacks.append(WandbMetricsLogger())
        self._open["wandb"] = log, end


@contextmanager
def _tolerate_errors(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        logger.warning(
            "The run is not logged to %s: %s: %s. Training continues.",
            name,
            type(error).__name__,
            error,
        )


def _with_allowed_names(values: dict[str, Any]) -> dict[str, Any]:
    """Replaces characters that names must not have in MLflow."""
    return {
        re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_")): value
        for name, value in values.items()
    }
