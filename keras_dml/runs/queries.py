"""Queries: what was measured for each, kept in the folder of a run."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from keras_dml.evaluation import Results
from keras_dml.utils.files import atomic_file

_PREFIX = "query/"


def write_queries(path: Path, results: Results) -> None:
    """Writes results with their values for each query, whole or not at all.

    Values are kept as float32, which is what a bootstrap needs.
    """
    arrays: dict[str, Any] = {
        _PREFIX + name: value.astype(np.float32)
        for name, value in results.per_query.items()
    }
    with atomic_file(path) as partial:
        np.savez_compressed(
            partial,
            rows=results.query_rows,
            labels=results.query_labels,
            about=np.array(json.dumps(results.to_dict())),
            **arrays,
        )


def read_queries(path: Path) -> Results:
    """The results that `write_queries` wrote.

    Raises:
        FileNotFoundError: If the run kept none.
    """
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        values = {
            name.removeprefix(_PREFIX): file[name].astype(np.float64)
            for name in file.files
            if name.startswith(_PREFIX)
        }
        rows, labels = file["rows"], file["labels"]
    per_seed = {k: np.array(v) for k, v in about.pop("per_seed").items()}
    return Results(
        about.pop("metrics"),
        per_query=values,
        per_seed=per_seed,
        query_rows=rows,
        query_labels=labels,
        **about,
    )
