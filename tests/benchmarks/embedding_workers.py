"""Embedding into shards, by one process, by local workers and by Ray.

20,000 glyphs of 48×48 pixels, in shards of 512, by `small_convnet` with 128
dimensions, against what `predict` of Keras takes for the same; each in a fresh
process, turn about.

    python tests/benchmarks/embedding_workers.py ways     # images a second
    python tests/benchmarks/embedding_workers.py kills    # what a death costs

With start-up is the whole process: Python, imports, the model, workers, and
Ray where it starts on this machine. Without is from the first shard that is
written to the last, and for `predict` its second call. Medians, and the least
and largest of the repetitions. Processor time is that of a process and of the
workers that it started; it says less of what else the machine does. That of
Ray's processes is not known here.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

IMAGES, ROWS, BATCH, DIM = 20_000, 512, 256, 128
SHARDS = -(-IMAGES // ROWS)

WAYS: dict[str, dict[str, Any]] = {
    "embed_shards": {},
    "2 local workers": {"workers": 2},
    "Ray, 1 actor": {"workers": 1, "ray": "local"},
    "Ray, 2 actors": {"workers": 2, "ray": "local"},
}
PREDICT = "predict"
COMPLAINTS = "complaints.txt"


def prepare(folder: Path) -> None:
    """Writes pixels and a model, which all ways read."""
    import keras

    from keras_dml import backbones, data

    found = data.glyphs()
    sets = (found.train, found.validation, found.test)
    pixels = np.concatenate([x.inputs(...) for x in sets])[:IMAGES]
    np.save(folder / "pixels.npy", pixels.reshape(-1, 48, 48, 1))
    backbone = backbones.small_convnet((48, 48, 1))
    x = keras.layers.GlobalAveragePooling2D()(backbone.output)
    x = keras.layers.UnitNormalization()(keras.layers.Dense(DIM)(x))
    keras.Model(backbone.input, x).save(folder / "model.keras")


def one(way: str, folder: Path) -> None:
    """One way, in this process; the folder "out" is gone on with."""
    import keras

    from keras_dml.embedding import embed_shards

    pixels = np.load(folder / "pixels.npy")
    if way != PREDICT:
        embed_shards(
            folder / "model.keras",
            pixels,
            folder / "out",
            rows_per_shard=ROWS,
            batch_size=BATCH,
            progress=False,
            **WAYS[way],
        )
        return
    model = keras.saving.load_model(folder / "model.keras")
    embeddings = model.predict(pixels, BATCH, verbose=0)
    np.save(folder / "predicted.npy", embeddings)
    (folder / "first").touch()
    model.predict(pixels, BATCH, verbose=0)
    (folder / "second").touch()


def start(way: str, folder: Path) -> "subprocess.Popen[bytes]":
    """A process for one way, which says in a file what it complains of."""
    command = [sys.executable, __file__, "one", "--way", way]
    with (folder / COMPLAINTS).open("wb") as file:
        return subprocess.Popen(
            [*command, "--folder", str(folder)], stderr=file
        )


def finish(process: "subprocess.Popen[bytes]") -> None:
    if process.wait() != 0:
        raise RuntimeError(f"a process ended with {process.returncode}")


def written(folder: Path) -> list[Path]:
    """Shards that are there, the earliest first."""
    shards = (folder / "out").glob("shard-*.parquet")
    return sorted(shards, key=lambda path: path.stat().st_mtime_ns)


def clear(folder: Path) -> None:
    for path in (folder / "out").glob("*"):
        path.unlink()


def processor_seconds() -> float:
    """Of this process and of those below it that have ended."""
    times = os.times()
    return sum(times[:4])


def timed(way: str, folder: Path) -> tuple[float, float, float]:
    """Images a second with start-up, and without; processor time."""
    clear(folder)
    began, before = time.time(), processor_seconds()
    finish(start(way, folder))
    whole, taken = time.time() - began, processor_seconds() - before
    if way == PREDICT:
        first, second = (
            (folder / x).stat().st_mtime for x in ("first", "second")
        )
        # The second call is no part of what one call takes.
        alone = second - first
        return IMAGES / (whole - alone), IMAGES / alone, taken
    times = [path.stat().st_mtime for path in written(folder)]
    without = (IMAGES - ROWS) / (times[-1] - times[0])
    return IMAGES / whole, without, taken


def check(folder: Path) -> float:
    """Whether each id is there once; the largest difference to `predict`."""
    from keras_dml.embedding import EmbeddingShards

    shards = EmbeddingShards(folder / "out", verify=True)
    if sorted(map(int, shards.ids)) != list(range(IMAGES)):
        raise RuntimeError("an id is not there, or more than once")
    predicted = np.load(folder / "predicted.npy")
    found = np.asarray(shards.array())
    return float(np.abs(found - predicted[np.array(shards.ids, int)]).max())


def said(values: list[float], form: str = "{:,.0f}") -> str:
    spread = [form.format(x) for x in (min(values), max(values))]
    median = form.format(statistics.median(values))
    return f"{median} ({spread[0]} to {spread[1]})"


def ways(folder: Path, repetitions: int) -> None:
    rates: dict[str, list[tuple[float, ...]]] = {}
    apart: dict[str, float] = {}
    for _ in range(repetitions):
        for way in (PREDICT, *WAYS):
            rates.setdefault(way, []).append(timed(way, folder))
            if way != PREDICT:
                apart[way] = max(apart.get(way, 0), check(folder))
    for way, found in rates.items():
        whole, without, cpu = (list(x) for x in zip(*found, strict=True))
        print(
            f"{way:16} with start-up {said(whole)}, without {said(without)}"
            + (f"; {said(cpu)} s of processors" if "Ray" not in way else "")
            + f"; furthest from predict {apart.get(way, 0):.0e}",
            flush=True,
        )


def processes(process: int, name: str) -> list[Any]:
    """Processes below another one whose command has a name in it."""
    import psutil

    below = psutil.Process(process).children(recursive=True)
    return [x for x in below if name in " ".join(x.cmdline())]


def half_done(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    while len(written(folder)) < SHARDS // 2:
        if process.poll() is not None:
            raise RuntimeError("a process ended before it was half done")
        time.sleep(0.02)


def killed(way: str, folder: Path, who: str | None) -> tuple[float, int, int]:
    """Seconds, with a kill when half is done.

    Returns:
        Them, how many shards were written twice, and how many were given to
        another worker.
    """
    clear(folder)
    began = time.perf_counter()
    process = start(way, folder)
    kept: dict[Path, int] = {}
    if who is not None:
        half_done(process, folder)
    if who == DRIVER:
        process.kill()
        process.wait()
        kept = {x: x.stat().st_mtime_ns for x in written(folder)}
        process = start(way, folder)
    elif who is not None:
        processes(process.pid, who)[0].send_signal(signal.SIGKILL)
    finish(process)
    seconds = time.perf_counter() - began
    check(folder)
    twice = sum(x.stat().st_mtime_ns != then for x, then in kept.items())
    given = (folder / COMPLAINTS).read_text().count("lost at shard")
    return seconds, twice, given


DRIVER = "driver"

KILLS = [
    ("2 local workers", "worker.py", "a worker"),
    ("Ray, 2 actors", "ray::Server", "an actor"),
    ("2 local workers", DRIVER, "the driver"),
    ("Ray, 2 actors", DRIVER, "the driver"),
]


def kills(folder: Path, repetitions: int) -> None:
    finish(start(PREDICT, folder))
    costs: dict[int, list[float]] = {i: [] for i in range(len(KILLS))}
    counts = {i: [0, 0] for i in costs}
    for _ in range(repetitions):
        undisturbed: dict[str, float] = {}
        for i, (way, who, _) in enumerate(KILLS):
            if way not in undisturbed:
                undisturbed[way] = killed(way, folder, None)[0]
            seconds, *found = killed(way, folder, who)
            costs[i].append(seconds - undisturbed[way])
            counts[i] = [x + y for x, y in zip(counts[i], found, strict=True)]
    for i, (way, _, called) in enumerate(KILLS):
        print(
            f"{way}: {called} that is killed costs "
            f"{said(costs[i], '{:.1f}')} s; of {repetitions} times, shards "
            f"written twice {counts[i][0]}, given again {counts[i][1]}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["ways", "kills", "one"])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--way")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.what == "one":
        one(given.way, given.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        print("load", *os.getloadavg(), flush=True)
        {"ways": ways, "kills": kills}[given.what](
            Path(name), given.repetitions
        )
        print("load", *os.getloadavg())


if __name__ == "__main__":
    main()
