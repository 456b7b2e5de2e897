"""MLflowTracker: tracks training as an MLflow run."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_dml.callbacks.tracker import Status, Tracker
from keras_dml.utils.arguments import import_extra

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure

_STATUSES: dict[Status, str] = {
    "finished": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
_PARAMETERS_AT_ONCE = 100
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""Settings of MLflow's client, which by default retries for many minutes."""


class MLflowTracker(Tracker):
    """Logs training to MLflow.

    See `Tracker` for what is logged, and what happens if MLflow fails. The
    destination is set by the arguments, or by MLflow's environment variables
    `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME`. Unless the environment
    says otherwise, requests to an unreachable server fail after two retries.

    MLflow does not allow "@" in names, so `val_recall@1` becomes
    `val_recall_at_1`.

    Args:
        config, name, images, every, num_queries, seed, finish: As for
            `Tracker`.
        uri: The tracking store: an address, or `sqlite:///` and a path.
        experiment: The name of the experiment, which is created if needed.

    Raises:
        ImportError: If mlflow is not installed.
        ValueError: If `images` is not a set with labels, or a number is
            invalid.

    Example:

    ```python
    tracker = MLflowTracker({"loss": "triplet"}, uri="sqlite:///runs.db")
    model.fit(batches, epochs=4, callbacks=[tracker])
    ```
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        uri: str | None = None,
        experiment: str | None = None,
        **options: Any,
    ) -> None:
        import_extra("MLflowTracker", "mlflow", "mlflow")
        super().__init__(config, **options)
        self.uri = uri
        self.experiment = experiment
        self._client: Any = None

    def _open(self) -> None:
        import mlflow

        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        self._client = mlflow.MlflowClient(self.uri)
        if self.run_id is None:
            run = self._client.create_run(
                self._experiment_id(), run_name=self.name
            )
            self.run_id = run.info.run_id
        else:
            self._client.update_run(self.run_id, status="RUNNING")
        parameters = [
            mlflow.entities.Param(_allowed(key), value)
            for key, value in _flat(self.config)
        ]
        for first in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            some = parameters[first : first + _PARAMETERS_AT_ONCE]
            self._client.log_batch(self.run_id, params=some)

    def _experiment_id(self) -> str:
        name = self.experiment or os.environ.get(
            "MLFLOW_EXPERIMENT_NAME", "Default"
        )
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name))

    def _write_metrics(self, metrics: dict[str, float], epoch: int) -> None:
        for name, value in metrics.items():
            self._client.log_metric(
                self.run_id, _allowed(name), value, step=epoch
            )

    def _write_results(self, metrics: dict[str, float]) -> None:
        self._write_metrics(metrics, 0)

    def _write_figure(
        self, name: str, figure: "DataFigure", epoch: int
    ) -> None:
        path = f"figures/{name}_{epoch:04}.png"
        self._client.log_figure(self.run_id, figure, path)

    def _write_files(self, paths: list[Path]) -> None:
        for path in paths:
            folder = "model" if path.suffix == ".keras" else None
            self._client.log_artifact(self.run_id, str(path), folder)

    def _close(self, status: Status) -> None:
        self._client.set_terminated(self.run_id, _STATUSES[status])


def _allowed(name: str) -> str:
    """A name without characters that MLflow does not allow."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_"))


def _flat(value: Any, *keys: str) -> Iterator[tuple[str, str]]:
    """Settings as pairs of "key.key" and string."""
    if isinstance(value, Mapping) and (value or not keys):
        for key, below in value.items():
            yield from _flat(below, *keys, str(key))
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield ".".join(keys), text
