"""What was measured: the journals of docs/results, and measured.csv for what
has no journal."""

import csv
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

RESULTS = Path(__file__).parents[1] / "results"
JOURNALS = RESULTS / "journals"

METHODS = [
    "baseline", "attentive grouping", "ABE", "BIER", "DCML", "DiVA",
    "divide and conquer", "DREML", "ensemble", "HDC", "MIC", "S2SD",
]  # fmt: skip


class Number(NamedTuple):
    """A mean or a difference, with its 95 % interval if there is one."""

    mean: float
    low: float = float("nan")
    high: float = float("nan")
    minus: str = ""

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def slug(name: str, space: str = "-") -> str:
    return name.lower().replace(" ", space)


def title(name: str) -> str:
    """The name of a recipe as a person writes it."""
    return {slug(x): x for x in METHODS}.get(name, name.replace("-", " "))


class Row(NamedTuple):
    """The means of a recipe by metric, and its differences from another."""

    name: str
    means: dict[str, Number]
    differences: dict[str, Number]


@cache
def journal(name: str) -> dict[str, dict[str, list[float]]]:
    """By recipe, without what all names begin with, and metric: its seeds."""
    lines = (JOURNALS / f"{name}.jsonl").read_text().splitlines()
    entries = sorted(map(json.loads, lines), key=lambda entry: entry["seed"])
    shared = os.path.commonprefix([entry["recipe"] for entry in entries])
    start = shared.rfind("-") + 1
    found: dict[str, dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for entry in entries:
        for metric, value in entry["metrics"].items():
            found[entry["recipe"][start:]][metric].append(value)
        found[entry["recipe"][start:]]["training, s"].append(entry["seconds"])
    return found


def mean(name: str, row: str, metric: str) -> Number:
    values = journal(name)[row][metric]
    test = stats.ttest_1samp(values, 0)
    ends = np.mean(values), *test.confidence_interval()
    return Number(*map(float, ends))


def difference(name: str, row: str, minus: str, metric: str) -> Number:
    """Paired by seed."""
    first, second = (np.array(journal(name)[x][metric]) for x in (row, minus))
    test = stats.ttest_rel(first, second)
    ends = np.mean(first - second), *test.confidence_interval()
    return Number(*map(float, ends), minus)


def rows_of_journal(name: str, minus: str) -> list[Row]:
    """The best first."""
    rows = [
        Row(
            row,
            {metric: mean(name, row, metric) for metric in values},
            {}
            if row == minus
            else {
                metric: difference(name, row, minus, metric)
                for metric in ("map@r", "recall@1")
            },
        )
        for row, values in journal(name).items()
    ]
    return sorted(rows, key=lambda row: -row.means["map@r"].mean)


@cache
def measured() -> dict[tuple[str, str], dict[str, Row]]:
    """Rows by name, by data and experiment; of intervals, those over seeds."""
    found: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    with (RESULTS / "measured.csv").open() as file:
        for line in csv.DictReader(file):
            if line["over"] == "queries":
                continue
            rows = found[line["data"], line["experiment"]]
            row = rows.setdefault(line["row"], Row(line["row"], {}, {}))
            if line["mean"] and " " not in line["mean"]:
                row.means[line["metric"]] = number(line, "mean", "low", "high")
            if line["difference"]:
                row.differences[line["metric"]] = number(
                    line, "difference", "difference_low", "difference_high"
                )
    return found


def number(line: dict[str, str], *columns: str) -> Number:
    ends = (float(line[column] or "nan") for column in columns)
    return Number(*ends, line["minus"])


def differences() -> Iterator[list[str]]:
    """Each pair of recipes of each journal, the better one first."""
    yield [
        "journal", "row", "minus", "metric", "difference", "low", "high", "p",
    ]  # fmt: skip
    for path in sorted(JOURNALS.glob("*.jsonl")):
        rows = journal(path.stem)
        order = sorted(rows, key=lambda row: -sum(rows[row]["map@r"]))
        pairs = list(combinations(order, 2))
        for metric in ("map@r", "recall@1"):
            first, second = (
                np.array([rows[pair[side]][metric] for pair in pairs])
                for side in (0, 1)
            )
            tests = stats.ttest_rel(first, second, axis=1)
            numbers = np.mean(first - second, 1), *tests.confidence_interval()
            for pair, p, *ends in zip(
                pairs, tests.pvalue, *numbers, strict=True
            ):
                yield [
                    path.stem, *pair, metric,
                    *(f"{x:+.4f}" for x in ends),
                    "< 0.001" if p < 0.001 else f"{p:.3f}",
                ]  # fmt: skip
