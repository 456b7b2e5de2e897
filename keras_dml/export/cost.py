"""What an approximate export costs: the same queries, with and without it."""

import os
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_dml.data.as_examples import as_examples
from keras_dml.data.examples import any_labels_of
from keras_dml.evaluation import (
    Comparison,
    Interval,
    Results,
    compare,
    embed,
    evaluate_embeddings,
)
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.reranking.base import nearest_others
from keras_dml.evaluation.resampling import resampled
from keras_dml.utils.types import FloatArray, Rows


@dataclass(frozen=True)
class Cost:
    """What an export costs, compared with its model.

    Attributes:
        model: Results of the model.
        export: Results of the export, on the same queries.
        comparison: The export minus the model, for each metric.
        unchanged: Share of images whose nearest neighbor is the same.
    """

    model: Results
    export: Results
    comparison: Comparison
    unchanged: Interval


def measure_cost(
    model: keras.Model,
    path: str | os.PathLike[str],
    examples: Any,
    *,
    units: str = "queries",
    batch_size: int = 256,
) -> Cost:
    """Measures what an export with `quantize` costs in retrieval.

    All examples are queries and gallery, embedded by the model, and by the
    export.

    Args:
        model: The model.
        path: Its export, a file that ends in .onnx, .tflite or .xml.
        examples: Examples with labels, best of classes that the model was not
            trained on; see `evaluation.embed`.
        units: What the bootstrap draws for the 95 % intervals, "queries" or
            "classes"; see `evaluation.bootstrap`.
        batch_size: Number of examples to embed at a time.

    Returns:
        Recall@1 and MAP@R of both, their differences, and the share of
        unchanged nearest neighbors.

    Raises:
        ValueError: If there are no labels, or no query has another image of
            its class.
        FileNotFoundError: If there is no such file.
        ImportError: If its runtime is not installed.

    Example:
        ```python
        path = dml.export.export_model(
            model, "model.onnx", format="onnx",
            quantize="int8", calibration=data.train,
        )
        cost = dml.export.measure_cost(model, path, data.validation)
        print(cost.comparison, cost.unchanged)
        ```
    """
    examples = as_examples(examples, "examples", "measure_cost")
    labels = any_labels_of(examples, "examples", "measure_cost")
    rows = [
        embed(model, examples, batch_size, engine=engine)
        for engine in ("keras", path)
    ]
    first, second = (
        evaluate_embeddings(x, labels, metrics=("recall@1", "map@r"))
        for x in rows
    )
    same = np.equal(*map(_nearest, rows)).astype(float)
    named, weights = {"same": same}, {"same": np.ones(len(same))}
    found = resampled(
        "measure_cost", named, weights, np.arange(len(same)), units=units
    )
    unchanged, _ = found["same"]
    difference = compare(first, second, units=units)
    return Cost(first, second, difference, unchanged)


def _nearest(embeddings: FloatArray) -> Rows:
    """The row of the nearest neighbor of each, (N,)."""
    scores = Scores(embeddings, embeddings, "cosine")
    return nearest_others(scores, np.arange(len(embeddings)), 1)[:, 0]
