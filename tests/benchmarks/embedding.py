"""Images a second into shards, against `embed` of the same images.

Each run has a process of its own; those of the two ways take turns. Printed
are seconds, with and without the start of TensorFlow, processor seconds, and
the peak of memory.

    python tests/benchmarks/embedding.py                # 100,000 glyphs
    python tests/benchmarks/embedding.py --count 20000 --repeats 5
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WAYS = ("embed", "shards")


def measure(way: str, count: int, rows_per_shard: int) -> dict[str, float]:
    """One way, in this process."""
    import keras
    import numpy as np

    from keras_dml import backbones, methods
    from keras_dml.data import ImageSet, concatenate, glyphs
    from keras_dml.embedding import embed, embed_shards

    keras.utils.set_random_seed(0)
    model = methods.baseline(
        backbones.small_convnet((48, 48, 1)), embedding_dim=128
    )
    splits = glyphs()
    images = concatenate([splits.train, splits.validation, splits.test])
    rows = np.arange(count) % len(images)
    images = ImageSet(images.pixels[rows], images.labels[rows])
    began, cpu = time.perf_counter(), time.process_time()
    if way == "embed":
        embed(model, images)
    else:
        with tempfile.TemporaryDirectory() as folder:
            embed_shards(model, images, folder, rows_per_shard=rows_per_shard)
    return {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows-per-shard", type=int, default=8192)
    parser.add_argument("--way", choices=WAYS)
    given = parser.parse_args()
    if given.way:
        found = measure(given.way, given.count, given.rows_per_shard)
        print(json.dumps(found))
        return
    found = {way: [] for way in WAYS}
    for _ in range(given.repeats):
        for way in WAYS:
            command = [sys.executable, *sys.argv, "--way", way]
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            found[way].append(json.loads(ran.stdout))
            print(way, found[way][-1], flush=True)
    for name in ("seconds", "cpu", "memory"):
        values = [[x[name] for x in found[way]] for way in WAYS]
        plain, shards = map(statistics.median, values)
        print(f"{name}: {plain:.1f}, {shards:.1f}: {shards / plain - 1:+.1%}")


if __name__ == "__main__":
    main()
