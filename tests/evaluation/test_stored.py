"""Embeddings in files give the same digits in less memory."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from keras_dml.evaluation import calibrate, evaluate_embeddings, kmeans
from tests.evaluation.naive import assert_same

METRICS = (
    "recall@1",
    "map@r",
    "map",
    "macro/map@r",
    "ndcg@4",
    "nmi",
    "ami",
    "density",
    "spectral_decay",
    "pcf@0.9",
    "fnmr@fmr=0.1",
)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 30, 300)
    x = rng.standard_normal((30, 6))[labels] + rng.standard_normal((300, 6))
    return x, labels


@pytest.fixture
def in_file(tmp_path):
    """Writes an array; opens it as a map."""

    def write(x: np.ndarray) -> np.memmap:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npy"
        np.save(path, x)
        return np.load(path, mmap_mode="r")

    return write


@pytest.mark.parametrize(
    ("dtype", "distance"),
    [("float16", "cosine"), ("float32", "euclidean"), ("float64", "dot")],
)
def test_stored_embeddings_give_equal_results(data, in_file, dtype, distance):
    x, labels = data[0].astype(dtype), data[1]
    options = {"metrics": METRICS, "distance": distance, "prefixes": (3,)}
    expected = evaluate_embeddings(x, labels, **options)
    assert_same(evaluate_embeddings(in_file(x), labels, **options), expected)


def test_zero_row_in_a_file_is_named(data, in_file):
    x, labels = data[0].copy(), data[1]
    x[299] = 0
    with pytest.raises(
        ValueError, match=r"can hold. Received: embeddings\[299"
    ):
        calibrate(in_file(x), labels)


def test_clusters_can_be_found_in_a_sample(data, in_file):
    x = data[0].astype("f4")
    expected = kmeans(x, 5, sample=100)
    assert len(np.unique(expected)) == 5
    np.testing.assert_array_equal(kmeans(in_file(x), 5, sample=100), expected)
    assert (kmeans(x, 5) != expected).any()
    # A sample of all of them is all of them.
    np.testing.assert_array_equal(kmeans(x, 5, sample=300), kmeans(x, 5))


@pytest.mark.parametrize("sample", [4, 0, True, 10.0])
def test_sample_must_have_a_row_for_each_cluster(data, sample):
    with pytest.raises(ValueError, match="`sample` of kmeans must be"):
        kmeans(data[0], 5, sample=sample)


def test_cluster_sample_is_required_beyond_memory(data, in_file):
    labels = np.arange(5000) % 10
    x = np.random.default_rng(0).standard_normal((5000, 64), np.float32)
    x = in_file(x)
    with pytest.raises(ValueError, match="`cluster_sample` .* must give"):
        evaluate_embeddings(x, labels, metrics="nmi", memory="1MB")
    results = evaluate_embeddings(
        x, labels, metrics="nmi", memory="1MB", cluster_sample=500
    )
    assert results.cluster_sample == 500
    assert results.to_dict()["cluster_sample"] == 500
    assert "centroids of 500 rows" in str(results)
    results = evaluate_embeddings(x, labels, metrics="nmi", memory="2MB")
    assert results.cluster_sample is None
    assert "centroids" not in str(results)


@pytest.mark.parametrize("sample", [29, 0, True, 10.0])
def test_samples_are_checked_before_anything_is_searched(data, sample):
    with pytest.raises(ValueError, match="`cluster_sample` .* at least 30"):
        evaluate_embeddings(*data, metrics="nmi", cluster_sample=sample)


OUT_OF_MEMORY = """
    import resource, sys
    import numpy as np
    from keras_dml.evaluation import evaluate_embeddings, kmeans

    def measure(x, labels):
        evaluate_embeddings(
            x,
            labels,
            metrics=("recall@1", "map@r", "pcf@0.9", "nmi"),
            protocol=protocol(len(x)),
            cluster_sample=1000,
            memory="16MB",
        )

    def protocol(count):
        from keras_dml.evaluation import Protocol

        return Protocol(np.arange(0, count, count // 50))

    # What imports, threads and buffers take.
    measure(np.random.default_rng(0).random((5000, 128), np.float32),
            np.arange(5000) % 200)
    x = np.load(sys.argv[1], mmap_mode="r")
    used = next(
        int(line.split()[1]) * 1024
        for line in open("/proc/self/status")
        if line.startswith("VmData")
    )
    # Memory of its own; pages of files that are mapped do not count.
    limit = used + x.nbytes // 2
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    if sys.argv[2] == "copy":
        x = np.array(x)
    measure(x, np.arange(len(x)) % 200)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Limits are of Linux.")
def test_stored_embeddings_need_little_memory(tmp_path):
    path = tmp_path / "x.npy"
    x = np.lib.format.open_memmap(path, "w+", np.float32, (400_000, 128))
    rng = np.random.default_rng(0)
    for start in range(0, len(x), 50_000):
        x[start : start + 50_000] = rng.random((50_000, 128), np.float32)
    x.flush()

    def run(kind: str) -> subprocess.CompletedProcess:
        script = textwrap.dedent(OUT_OF_MEMORY)
        command = [sys.executable, "-c", script, str(path), kind]
        return subprocess.run(command, capture_output=True, text=True)

    mapped = run("map")
    assert mapped.returncode == 0, mapped.stderr
    # The limit is one that a copy would meet.
    copied = run("copy")
    assert copied.returncode and "MemoryError" in copied.stderr, copied.stderr
