"""Time to embed a batch of images by Keras, OpenVINO and exported files.

    python tests/benchmarks/inference.py --lite0 lite0.keras
    python tests/benchmarks/inference.py --run runs/lite0

The first compares the engines "keras" and "openvino", which needs the extra
`openvino`. Models are ResNet-50 and, with --lite0, a `.keras` file of
EfficientNet-Lite0, both of 224 × 224 pixels, with 128 dimensions of unit
length. Keras is `predict_on_batch`, as `embed` calls it.

The second exports the model of a run to each format in float32 and in int8,
calibrated on its training images, and compares all of them with a SavedModel
of the model alone; formats whose extra is not installed are left out. Recall@1
and MAP@R are those of the test classes.

Routes take turns, batch by batch. Printed are medians with the quartiles, in
ms, their ratio, that of processor seconds, which other work on the machine
distorts less, and the largest difference of a component; or the size of the
file and what it costs, with 95 % intervals over queries.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from keras_dml import backbones, methods, runs
from keras_dml.data import DataSplits, View, eval_batches
from keras_dml.embedding.engines import SUFFIXES, predict_function
from keras_dml.evaluation import compare as compare_results
from keras_dml.evaluation import evaluate
from keras_dml.export import export_model
from tests.recipes.builds import data_of

ENGINES = "keras", "openvino"
METRICS = ["recall@1", "map@r"]

SHAPE = (224, 224, 3)

Times = list[tuple[float, float]]
"""Seconds of each call, by the clock and of the processor."""

Embed = Callable[[Any], Any]


def models(lite0: str | None) -> dict[str, keras.Model]:
    keras.utils.set_random_seed(0)
    resnet = keras.applications.ResNet50(
        include_top=False, weights=None, input_shape=SHAPE
    )
    networks = {"ResNet-50": resnet}
    if lite0 is not None:
        networks["Lite0"] = backbones.get(lite0, input_shape=SHAPE)
    return {
        name: methods.baseline(network, embedding_dim=128)
        for name, network in networks.items()
    }


def timed(calls: list[Callable[[], Any]], repeats: int) -> list[Times]:
    durations: list[Times] = [[] for _ in calls]
    for _ in range(repeats):
        for call, times in zip(calls, durations, strict=True):
            began, used = time.perf_counter(), time.process_time()
            call()
            ended = time.perf_counter(), time.process_time()
            times.append((ended[0] - began, ended[1] - used))
    return durations


def compare(routes: dict[str, Embed], x: Any, repeats: int) -> None:
    """Prints the times of all routes for a batch; ratios are to the first."""
    for embed in routes.values():
        for _ in range(2):
            embed(x)
    if len(x) == 1:
        repeats *= 3
    calls = [lambda e=e: e(x) for e in routes.values()]
    each = [np.array(t).T for t in timed(calls, repeats)]
    for name, (seconds, used) in zip(routes, each, strict=True):
        low, median, high = statistics.quantiles(1e3 * seconds, n=4)
        clock = np.median(each[0][0] / seconds)
        cpu = np.median(each[0][1]) / np.median(used)
        print(
            f"batch {len(x)} {name}: {median:.1f} ms ({low:.1f} to "
            f"{high:.1f}), {1e3 * len(x) / median:.0f} images/s; ratio "
            f"{clock:.2f}, of processor seconds {cpu:.2f}",
            flush=True,
        )


def compare_engines(arguments: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    for name, model in models(arguments.lite0).items():
        print(name)
        engines = {x: predict_function(model, x) for x in ENGINES}
        for size in arguments.batches:
            x = rng.uniform(0, 255, (size, *SHAPE)).astype("float32")
            compare(engines, x, arguments.repeats)
            rows = [engine(x) for engine in engines.values()]
            print(f"difference {np.abs(rows[0] - rows[1]).max():.1e}")


def size_of(path: Path) -> int:
    """Bytes of a file, with OpenVINO's weights beside it, or of a folder."""
    if path.is_dir():
        return sum(x.stat().st_size for x in path.rglob("*") if x.is_file())
    return sum(
        x.stat().st_size
        for x in (path, path.with_suffix(".bin"))
        if x.exists() and (x == path or path.suffix == SUFFIXES["openvino"])
    )


def exports(
    model: keras.Model, data: DataSplits, folder: Path
) -> Iterator[tuple[str, Path]]:
    """Names and paths of exports, float32 first."""
    for file_format, suffix in SUFFIXES.items():
        for kind in ("float32", "int8"):
            int8 = {"quantize": "int8", "calibration": data.train}
            path = folder / f"{kind}{suffix}"
            try:
                export_model(
                    model, path, format=file_format,
                    **(int8 if kind == "int8" else {}),
                )  # fmt: skip
            except ImportError as error:
                print(f"left out: {error}")
                continue
            yield f"{file_format} {kind}", path


def compare_exports(arguments: argparse.Namespace, folder: Path) -> None:
    recipe, model = (
        runs.load_recipe(arguments.run),
        runs.load_model(arguments.run),
    )
    data = data_of(recipe)
    saved, view = folder / "saved_model", View.of(model)
    archive = keras.export.ExportArchive()
    archive.add_endpoint(
        "serve",
        lambda x: model(x, training=False),
        [tf.TensorSpec((None, *view.size, view.channels), "float32")],
    )
    archive.write_out(str(saved), verbose=False)
    loaded = tf.saved_model.load(str(saved))
    routes: dict[str, Embed] = {
        "saved_model float32": lambda x: loaded.serve(x).numpy(),
        "keras": predict_function(model),
    }
    whole = size_of(saved)
    print(f"saved_model: {whole / 1e6:.2f} MB")
    for name, path in exports(model, data, folder):
        routes[name] = predict_function(model, path)
        size = size_of(path)
        print(f"{name}: {size / 1e6:.2f} MB, {size / whole:.3f} of the former")
        if "int8" in name:
            exact, coarse = (
                evaluate(model, data.test, metrics=METRICS, engine=x)
                for x in ("keras", path)
            )
            print(compare_results(exact, coarse), flush=True)
    seen = data.test.select(np.arange(max(arguments.batches)))
    [views] = eval_batches(seen, view)
    for size in arguments.batches:
        compare(routes, views[:size].numpy(), arguments.repeats)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lite0", help="a .keras file")
    parser.add_argument("--run", help="the folder of a run")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    if arguments.run is None:
        compare_engines(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        compare_exports(arguments, Path(folder))


if __name__ == "__main__":
    main()
