"""Outcome: the results of a run with verdicts, and a one-page summary."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from keras_dml.evaluation import Interval, Results, bootstrap, compare
from keras_dml.evaluation.metrics import parse_metric
from keras_dml.recipes import Recipe, dump

NOTHING = "–"
"""Shown in tables where there is no value."""

Table: TypeAlias = list[list[str]]
"""A header and rows."""

_DURATIONS = {
    "data": "to read the data and build the model",
    "features": "to compute the features of the frozen layers",
    "start": "to measure the test images before training",
    "training": "to train",
    "division": "of these to divide the training images",
    "evaluation": "of these to measure the validation images",
    "test": "to measure the test images after training",
}

VERDICTS = (
    "Verdicts: better or worse if the 95 % interval of the change, over test "
    "classes, excludes zero; otherwise within the noise, too small to tell "
    "with so few classes. Another seed may still change a result."
)


@dataclass(frozen=True)
class Outcome:
    """The results of a run.

    Attributes:
        recipe: The recipe that ran.
        images: Number of images by role: "train", "validation", "test".
        before: Metrics on the test set without training: of the model with
            random weights; of a pretrained network, of the projection of its
            features that `baseline` names.
        after: Metrics of the best model on the test set, also for each query.
        best_epoch: The epoch of the best model, counted from 1; None if there
            is none, so that `after` belongs to another model.
        share: How much of the way from the start to that epoch the best model
            is, if a guard went back; see `callbacks.Guard`.
        monitored: The best value of the recipe's monitor.
        divisions: Reports of the data divisions, if the method divides the
            data.
        seconds: Durations by name: "training" in total, of which "evaluation"
            and "division" are parts; before that, "data", "features" of a
            frozen backbone, and "start", the measurement of what training is
            compared with and the start of the head; and "test", after it.
        images_per_second: Training images per second, not counting these two
            parts; None if no epoch was completed.
        interrupted: Whether Ctrl-C ended the training.
        test_set: Digest of the test images, see `data.hashing.digest`.
        environment: Hardware and versions, see `provenance.environment`.
        measured: The model that `after` belongs to.
        refit: Metrics of the model that was trained again on all training
            classes, if the recipe has `refit`.
        verdicts: Whether training changed each metric, in words.
        baseline: Of a pretrained network: the `projection` of its features to
            `dim` numbers that `before` belongs to, and the metrics of all
            `num_features` `features` as they are; see `runs.baselines`.
        unsaved: Files that are missing or incomplete because they could not be
            saved, and the reasons; see `Checkpoint`.
    """

    recipe: Recipe
    images: dict[str, int]
    before: dict[str, float]
    after: Results
    best_epoch: int | None
    monitored: float | None
    divisions: list[dict[str, Any]]
    seconds: dict[str, float]
    images_per_second: float | None
    interrupted: bool
    test_set: str
    environment: dict[str, str]
    measured: str = "best.keras"
    share: float | None = None
    refit: dict[str, float] | None = None
    verdicts: dict[str, str] = field(default_factory=dict)
    baseline: dict[str, Any] | None = None
    unsaved: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything but the recipe, as plain values."""
        content = {**vars(self), "after": dict(self.after)}
        del content["recipe"]
        return content

    def metrics_table(self) -> Table:
        """A table of the metrics on the test classes."""
        columns: dict[str, Mapping[str, float]]
        columns = {self.before_title(): self.before, "after": self.after}
        if self.refit is not None:
            columns["refit"] = self.refit
        table = [["metric", *columns]]
        for name in self.after:
            values = (x.get(name) for x in columns.values())
            table.append([name, *map(_number, values)])
        if self.verdicts:
            words = {"metric": "verdict", **self.verdicts}
            table = [[*row, words.get(row[0], NOTHING)] for row in table]
        return table

    def before_title(self) -> str:
        """The name of the baseline that training is compared with."""
        if self.baseline is None:
            return "before"
        return str(self.baseline["projection"]).split(" with ")[0]

    def baseline_lines(self) -> list[str]:
        """Sentences on the untouched network, if it is the baseline."""
        if self.baseline is None:
            return []
        dim, count = (self.baseline[x] for x in ("dim", "num_features"))
        metrics = " and ".join(
            f"{name} {value:.4f}"
            for name, value in self.baseline["features"].items()
        )
        lines = [
            f"The untouched network with its {count:,} numbers has {metrics}. "
            f"The verdicts compare with {self.baseline['projection']} of "
            f"these to {dim:,}, the size of the embedding, without training."
        ]
        if self.recipe.method.name == "whitening":
            return lines
        verdict = self.verdicts.get(self.recipe.evaluation.monitor, "")
        if verdict.startswith(("worse", "within", "lower", "equal")):
            lines.append(
                f"Training did not beat {self.before_title()} of the same "
                "size. Use `method: whitening`, which takes a second; or try "
                "a tenth of the learning rate, fewer epochs, or more classes."
            )
        return lines

    def cost_lines(self) -> list[str]:
        """Lines on the duration of the run and its parts."""
        words = dict(_DURATIONS)
        if self.images_per_second is not None:
            speed = f"{self.images_per_second:.0f}"
            images = "image" if speed == "1" else "images"
            words["training"] += f", at {speed} {images} per second"
        took = [(self.seconds.get(x), text) for x, text in words.items()]
        return ["Time:", *(f"{x:.1f} s {text}" for x, text in took if x)]

    def choice_line(self) -> str:
        """A sentence on how the measured model was chosen."""
        if self.best_epoch is None:
            if self.unsaved:
                start = "There is no best.keras; these"
            elif not self.images["validation"]:
                start = (
                    "Trained on all training classes: none was held out to "
                    "choose an epoch, and these"
                )
            else:
                return (
                    "No epoch was completed; these metrics belong to the last "
                    "model."
                )
            return f"{start} metrics belong to {self.measured}."
        if self.best_epoch == 0 and self.images_per_second is None:
            return "No epoch was completed; these metrics belong to the start."
        if self.best_epoch == 0:
            return (
                "No epoch was better than the start, which is kept: on "
                f"{self.images['validation']:,} validation images none gained "
                "more than one standard error."
            )
        monitor = self.recipe.evaluation.monitor
        missed = "best.keras" in self.unsaved
        best = f"Best epoch{' of those saved' if missed else ''}: "
        if self.share is not None:
            best = f"Best: {self.share:g} of the way from the start to epoch "
        return (
            f"{best}{self.best_epoch} of {self.recipe.epochs}, by "
            f"val_{monitor} = {self.monitored:.4f} on "
            f"{self.images['validation']:,} validation images. The table "
            "is on the test images."
        )

    def unsaved_lines(self) -> list[str]:
        """Lines on files that could not be saved, if any."""
        items = self.unsaved.items()
        return [f"{x} could not be saved at {why}" for x, why in items]

    def protocol_phrase(self) -> str:
        """A phrase on which test images are queries and gallery."""
        results = self.after
        if results.num_draws > 1:
            return (
                "a random image of each class the gallery and the others the "
                f"queries, the mean of {results.num_draws} draws"
            )
        if results.gallery_size < self.images["test"]:
            return f"queries among a gallery of {results.gallery_size}"
        return "each image in turn the query among all others"

    def summary(self) -> str:
        """Returns the one-page summary in Markdown."""
        parts = [
            f"# {self.recipe.name}",
            "Interrupted before its last epoch." if self.interrupted else "",
            f"{self.images['train']} training images. Metrics on "
            f"{self.images['test']} test images, "
            f"{self.protocol_phrase()}:",
            markdown(self.metrics_table()),
            "\n".join(self.baseline_lines()),
            "\n".join(f"- {line}" for line in definitions(self.after)),
            VERDICTS if self.verdicts else "",
            self.choice_line(),
            "\n".join(f"- {line}" for line in self.unsaved_lines()),
            markdown(divisions_table(self.divisions)) if self.divisions else "",
            ", ".join(self.cost_lines()).replace(":,", ":") + ".",
            f"## Recipe\n\n```yaml\n{dump(self.recipe)}```",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def verdicts(before: Results, after: Results) -> dict[str, str]:
    """Whether training changed each metric, in words.

    Metrics without a value for each query have no interval; for these, the
    words tell which value is higher.
    """
    differences: Mapping[str, Interval] = {}
    if before.per_query and after.per_query:
        differences = compare(before, after, units="classes")
    words = {}
    for name, value in after.items():
        if name not in before:
            continue
        interval = differences.get(name)
        if interval is None:
            way = (value > before[name]) - (value < before[name])
            words[name] = ("equal", "higher", "lower")[way] + ", no interval"
        elif math.isnan(interval.low):
            words[name] = "too few classes to tell"
        elif interval.low > 0:
            words[name] = "better"
        else:
            is_worse = interval.high < 0
            words[name] = "worse" if is_worse else "within the noise"
    return words


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def divisions_table(divisions: list[dict[str, Any]]) -> Table:
    """One row for every division of the training set."""
    rows = [
        [
            str(x["epoch"] + 1),
            ", ".join(map(str, x["sizes"])),
            NOTHING if x["kept"] is None else f"{x['kept']:.0%}",
            f"{x['seconds_embedding']:.1f} embedding + "
            f"{x['seconds_clustering']:.1f} clustering",
        ]
        for x in divisions
    ]
    header = ["before epoch", "images of each cluster", "kept", "seconds"]
    return [header, *rows]


def markdown(table: Table) -> str:
    """A table in Markdown."""
    header, *rows = table
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_interval(interval: Interval | None, sign: str = "") -> str:
    """The ends of an interval, if it has any."""
    if interval is None or math.isnan(interval.low):
        return NOTHING
    return f"[{interval.low:{sign}.4f}, {interval.high:{sign}.4f}]"


def plus_minus(interval: Interval | None) -> str:
    """The estimate ± half the length of its interval, if it has one."""
    if interval is None:
        return NOTHING
    text = f"{interval.estimate:.4f}"
    half = interval.high - interval.estimate
    return text if math.isnan(half) else f"{text} ± {half:.4f}"


def p_value(value: float) -> str:
    """A p value to three digits, if there is one."""
    if math.isnan(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def metric_rows(results: Results, title: str, units: str | None) -> Table:
    """Metrics with their values, and with intervals over `units` if given."""
    table = [["metric", title]]
    table += [[name, f"{value:.4f}"] for name, value in results.items()]
    if units:
        intervals = bootstrap(results, units=units)
        table[0].append(f"95 % interval over {units}")
        for row in table[1:]:
            row.append(format_interval(intervals.get(row[0])))
    return table


def definitions(metrics: Iterable[str]) -> list[str]:
    """A line for each metric; see `definition`."""
    return [f"{name}: {definition(name)}" for name in metrics]


def definition(name: str) -> str:
    """The definition of a metric."""
    entry = parse_metric(name)
    return entry.definition if entry else "a metric that is not registered here"
