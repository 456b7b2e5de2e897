"""Runs that are killed and go on, each in a process of its own.

    python -m tests.runs.killed RECIPE FOLDER

The processes are forks of one that has imported everything and computed
nothing. What is the same in the end is in `FOLDER/report.json`.
"""

import csv
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

import keras_dml
from keras_dml import recipes, runs
from keras_dml.runs.folder import RunLog
from tests.forks import exit_status, forked

Action = Callable[[], None]


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def fill_disk() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))


def free_disk() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


RESULTS = ("before", "after", "verdicts", "best_epoch", "monitored", "unsaved")

# What happens in each process, before which step of which epoch.
LEGS: list[dict[tuple[int, int], Action]] = [
    {(0, 3): kill},
    {(1, 0): fill_disk, (1, 2): free_disk, (1, 3): terminate},
    {},
]


def act(actions: dict[tuple[int, int], Action]) -> None:
    """Has actions done by a callback that every run has."""

    def on_train_batch_begin(self: Any, batch: int, logs: Any = None) -> None:
        steps = self.model.optimizer.iterations.numpy()
        epoch = int(steps) // self.params["steps"]
        actions.get((epoch, batch), lambda: None)()

    RunLog.on_train_batch_begin = on_train_batch_begin


def values_of(path: Path) -> list[bytes]:
    model = keras.models.load_model(path)
    variables = [*model.variables, *model.optimizer.variables]
    return [keras.ops.convert_to_numpy(v).tobytes() for v in variables]


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of the log, without columns of seconds."""
    with (folder / "metrics.csv").open() as file:
        return [
            {k: v for k, v in row.items() if not k.endswith("seconds")}
            for row in csv.DictReader(file)
        ]


def report(whole: Path, killed: Path, statuses: list[int]) -> dict[str, Any]:
    results = [
        json.loads((x / "result.json").read_text()) for x in (whole, killed)
    ]
    return {
        "statuses": statuses,
        "rows": rows(whole) == rows(killed),
        "number of rows": len(rows(killed)),
        **{
            name: values_of(whole / name) == values_of(killed / name)
            for name in ("best.keras", "last.keras")
        },
        **{key: results[0][key] == results[1][key] for key in RESULTS},
        "left": sorted(x.name for x in killed.iterdir()),
    }


def main(recipe: str, folder: str) -> None:
    keras_dml.import_parts()
    checked = recipes.load(recipe)
    whole, killed = Path(folder) / "whole", Path(folder) / "killed"

    def go_on(actions: dict[tuple[int, int], Action]) -> Action:
        def work() -> None:
            act(actions)
            if killed.exists():  # What a kill while a model is saved leaves.
                (killed / f".last.keras.{'0' * 16}.keras").touch()
            runs.train(checked, killed, 0, resume=True, save_every=1)

        return work

    statuses = [exit_status(forked(runs.train, checked, whole, 0))]
    statuses += [exit_status(forked(go_on(actions))) for actions in LEGS]
    text = json.dumps(report(whole, killed, statuses))
    (Path(folder) / "report.json").write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
