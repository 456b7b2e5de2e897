"""The numbers of a benchmark as CSV, for other programs to read."""

import csv
import io
import math

from keras_dml.evaluation import Interval
from keras_dml.runs.benchmark.comparison import Line
from keras_dml.runs.benchmark.plan import Plan


def values(plan: Plan, found: list[Line]) -> str:
    """One row for each recipe and metric, as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        [
            "recipe", "metric", "seeds", "mean", "seeds_low", "seeds_high",
            "queries_low", "queries_high", "baseline", "shared_seeds",
            "difference", "difference_seeds_low", "difference_seeds_high",
            "p_seeds", "difference_queries_low", "difference_queries_high",
            "p_queries", "training_seconds", "images_per_second",
        ]
    )  # fmt: skip
    for line in found:
        for name in line.measured:
            writer.writerow(_row(plan, line, name))
    return file.getvalue()


def _row(plan: Plan, line: Line, name: str) -> list[object]:
    measured, gain = line.measured[name], line.gains.get(name)
    row: list[object] = [line.recipe, name, len(line.entries)]
    row += [measured.over_seeds.estimate, *_ends(measured.over_seeds)]
    row += _ends(measured.over_queries)
    row += [plan.baseline, line.shared_seeds]
    if gain is None:
        row += [""] * 7
    else:
        over_seeds, over_queries = gain.over_seeds, gain.over_queries
        row += [over_seeds.estimate, *_ends(over_seeds)]
        row += [_number(over_seeds.p_value), *_ends(over_queries)]
        row += ["" if over_queries is None else over_queries.p_value]
    return [*row, line.seconds, line.images_per_second]


def _ends(interval: Interval | None) -> list[object]:
    if interval is None:
        return ["", ""]
    return [_number(interval.low), _number(interval.high)]


def _number(value: float) -> object:
    return "" if math.isnan(value) else value
