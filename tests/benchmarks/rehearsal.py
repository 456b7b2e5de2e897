"""A rehearsal with a million embeddings: shards, index, database, evaluation.

    python tests/benchmarks/rehearsal.py            # 1,000,000 × 128
    python tests/benchmarks/rehearsal.py --rows 100000

Each step is a process of its own, which prints how long it took and the most
memory that it had at a time: `VmHWM` of Linux, which counts TensorFlow and
pages of mapped files, too. The model brings vectors to unit length and does
nothing else, so that what is measured is what is around it.

Needs the extras parquet and lancedb.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_dml.data import ArraySet
from keras_dml.embedding import EmbeddingShards, embed_shards
from keras_dml.evaluation import Protocol, evaluate_embeddings
from keras_dml.search import Index, open_index, push

DIM, PER_CLASS, NOISE = 128, 100, 1.6
QUERIES, CHUNK = 10_000, 50_000


def source(folder: Path, rows: int) -> ArraySet:
    """Vectors around the centre of their class, in a mapped file."""
    path = folder / "vectors.npy"
    labels = np.arange(rows) % max(1, rows // PER_CLASS)
    if not path.exists():
        random = np.random.default_rng(0)
        centres = random.normal(size=(labels.max() + 1, DIM))
        shape = rows, DIM
        x = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        for start in range(0, rows, CHUNK):
            part = slice(start, start + CHUNK)
            noise = random.normal(size=x[part].shape)
            x[part] = centres[labels[part]] + NOISE * noise
        x.flush()
    ids = [f"item-{i}" for i in range(rows)]
    return ArraySet(np.load(path, mmap_mode="r"), labels, ids=ids)


def shards(folder: Path, rows: int) -> str:
    """Makes the shards."""
    x = keras.Input((DIM,))
    model = keras.Model(x, keras.layers.UnitNormalization()(x))
    found = embed_shards(model, source(folder, rows), folder / "shards")
    size = sum(f.stat().st_size for f in (folder / "shards").iterdir())
    return f"{found!r}, {size / 1e6:,.0f} MB"


def index(folder: Path, rows: int) -> str:
    """Makes an index of faiss and saves it."""
    built = Index(EmbeddingShards(folder / "shards"))
    built.save(folder / "index")
    return repr(built)


def database(folder: Path, rows: int) -> str:
    """Pushes the shards to LanceDB, and looks for some rows."""
    uri = f"lancedb://{folder}/db/gallery"
    said = push(EmbeddingShards(folder / "shards"), uri)
    gallery = open_index(uri)
    queries = np.load(folder / "vectors.npy", mmap_mode="r")[:100]
    taken = []
    for query in queries:
        began = time.perf_counter()
        gallery.search(query, k=10)
        taken.append(1e3 * (time.perf_counter() - began))
    return f"{said}; {np.median(taken):.1f} ms a search (median)"


def evaluation(folder: Path, rows: int) -> str:
    """Measures a sample of queries against all rows, exactly."""
    gallery = EmbeddingShards(folder / "shards")
    drawn = np.random.default_rng(1).choice(rows, QUERIES, replace=False)
    mapped = gallery.array(folder)
    began = time.perf_counter()
    results = evaluate_embeddings(
        mapped,
        gallery.labels,
        protocol=Protocol(queries=np.sort(drawn)),
        metrics=("recall@1", "r_precision", "map@r"),
    )
    each = 1e9 * (time.perf_counter() - began) / (QUERIES * rows)
    values = ", ".join(f"{name} {value:.4f}" for name, value in results.items())
    return f"{values}; {each:.1f} ns a pair"


STEPS: dict[str, Callable[[Path, int], str]] = {
    step.__name__: step for step in (shards, index, database, evaluation)
}


def peak() -> float:
    """The most memory that this process had at a time, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (x for x in lines if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


def main() -> None:
    """Runs all steps, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="kept, if given")
    parser.add_argument("--step", choices=STEPS)
    given = parser.parse_args()
    if given.step:
        began = time.perf_counter()
        said = STEPS[given.step](given.folder, given.rows)
        seconds = time.perf_counter() - began
        print(f"{given.step}: {seconds:.1f} s, {peak():,.0f} MB\n  {said}")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        source(folder, given.rows)
        for step in STEPS:
            command = [sys.executable, __file__, "--step", step]
            command += ["--rows", str(given.rows), "--folder", str(folder)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
