"""Study: the trials of a search, in a SQLite file shared by processes."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_dml.recipes import Recipe, load
from keras_dml.runs.tuning.space import Space, read_space
from keras_dml.utils.arguments import import_extra

RECIPE, SPACE = "recipe.yaml", "space.yaml"
DATABASE, LOCK = "study.db", "study.lock"
TRIALS, BEST = "trials.csv", "best.yaml"

ERROR = "error"
"""Attribute of trials: why it failed."""


@dataclass(frozen=True)
class Trial:
    """A trial of a search.

    Attributes:
        number: Counted from 0, in the order in which trials began.
        state: "complete", "pruned", "failed" or "running".
        value: The best value of the monitored metric; the last value of a
            pruned trial; None if the trial failed or is running.
        settings: Values by dotted key.
        curve: The monitored metric by epoch, counted from 1.
        seconds: Duration of the trial; None while it is running.
        error: Why it failed; empty otherwise.
    """

    number: int
    state: str
    value: float | None
    settings: dict[str, Any]
    curve: dict[int, float] = field(default_factory=dict)
    seconds: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes:
        folder: The folder of the study.
        recipe: The recipe whose settings were searched.
        space: The searched settings and their values.
        trials: All trials that were not killed, by number.
    """

    folder: Path
    recipe: Recipe
    space: Space
    trials: list[Trial]

    @property
    def best(self) -> Trial | None:
        """The complete trial with the highest value; None if there is none."""
        done = [x for x in self.trials if x.state == "complete"]
        return max(done, key=lambda x: x.value or 0.0, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Returns the trials and the best one as plain values."""
        best = self.best
        return {
            "monitor": self.recipe.evaluation.monitor,
            "best": vars(best) if best else None,
            "trials": [vars(x) for x in self.trials],
        }

    @property
    def ranked(self) -> list[Trial]:
        """All trials: complete, pruned, running, failed; each best first."""
        order = {"complete": 0, "pruned": 1, "running": 2, "failed": 3}
        return sorted(
            self.trials, key=lambda x: (order[x.state], -(x.value or 0.0))
        )

    def table(self) -> list[list[str]]:
        """Returns a header and one row per trial, the best first."""
        keys = list(self.space.distributions)
        names = dict(zip(keys, short_names(keys), strict=True))
        monitor = self.recipe.evaluation.monitor
        rows = [
            [
                str(x.number),
                x.state,
                "–" if x.value is None else f"{x.value:.4f}",
                ", ".join(
                    f"{names[k]}={shown(v)}" for k, v in x.settings.items()
                ),
                str(len(x.curve)),
                "–" if x.seconds is None else f"{x.seconds:.1f}",
            ]
            for x in self.ranked
        ]
        return [
            ["trial", "state", monitor, "settings", "epochs", "seconds"],
            *rows,
        ]


def short_names(keys: list[str]) -> list[str]:
    """Last parts of dotted keys; the whole key where that says too little."""
    last = [key.rpartition(".")[2] for key in keys]
    return [
        key if name == "name" or last.count(name) > 1 else name
        for key, name in zip(keys, last, strict=True)
    ]


def shown(value: Any) -> str:
    """A setting as tables show it, such as "triplet (margin=0.2)"."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if not isinstance(value, dict):
        return str(value)
    name = str(value.get("name", ""))
    rest = ", ".join(f"{k}={shown(v)}" for k, v in value.items() if k != "name")
    return f"{name} ({rest})" if name and rest else name or rest


def open_study(folder: Path) -> Any:
    """Optuna's study in a folder, created if necessary.

    Raises:
        ImportError: If optuna is not installed.
    """
    optuna = import_extra("tune", "optuna", "tune")
    from sqlalchemy import URL

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    url = URL.create("sqlite", database=str((folder / DATABASE).resolve()))
    return optuna.create_study(
        storage=url.render_as_string(),
        study_name="study",
        direction="maximize",
        load_if_exists=True,
    )


def load_study(folder: str | os.PathLike[str]) -> Tuned:
    """Loads the search in a folder, in its current state.

    Raises:
        FileNotFoundError: If there is none.
        ImportError: If optuna is not installed.
    """
    path = Path(folder)
    if not (path / DATABASE).exists():
        raise FileNotFoundError(
            f"{os.fspath(folder)!r} is not the folder of a study: it has no "
            f"{DATABASE}. Use the folder that `keras-dml tune` prints."
        )
    recipe = load(path / RECIPE)
    space = read_space(path / SPACE, recipe)
    trials = [_read(x, space) for x in open_study(path).trials]
    return Tuned(path, recipe, space, trials)


def _read(frozen: Any, space: Space) -> Trial:
    state = frozen.state.name.lower().replace("fail", "failed")
    has_value = state in ("complete", "pruned")
    duration = frozen.duration
    return Trial(
        number=frozen.number,
        state=state,
        value=frozen.value if has_value else None,
        settings=space.values(frozen.params),
        curve=dict(sorted(frozen.intermediate_values.items())),
        seconds=duration.total_seconds() if duration else None,
        error=frozen.user_attrs.get(ERROR, ""),
    )


def importances(folder: str | os.PathLike[str]) -> dict[str, float]:
    """How much of the variance each setting explains, by fANOVA.

    Returns:
        Shares that sum to 1, the largest first; nothing where fewer than
        four trials are complete, or all are of one value.

    Reference:
        Hutter et al., "An Efficient Approach for Assessing Hyperparameter
        Importance", ICML 2014.
    """
    study = open_study(Path(folder))
    values = {x.value for x in study.trials if x.state.name == "COMPLETE"}
    if len(values) < 4:
        return {}
    import optuna

    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()}


def folder_of(folder: Path, number: int) -> Path:
    """Where the state of a trial is kept."""
    return folder / "trials" / f"{number:04}"


def as_text(settings: dict[str, Any]) -> str:
    """Settings on one line."""
    return ", ".join(f"{k}={json.dumps(v)}" for k, v in settings.items())
