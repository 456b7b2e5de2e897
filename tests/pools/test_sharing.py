"""Defaults of processes that share a machine."""

import pytest
import tensorflow as tf

from keras_dml.pools.sharing import THREADS, gpu_of, sharing

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"


def test_what_the_environment_has_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*THREADS, GROWTH):
        monkeypatch.delenv(name, raising=False)
    expected = {**dict.fromkeys(THREADS, "3"), GROWTH: "true"}
    assert sharing(3) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setenv(GROWTH, "false")
    assert sharing(3) == {**expected, "OMP_NUM_THREADS": "5", GROWTH: "false"}


@pytest.mark.parametrize(
    ("count", "own", "expected"),
    [
        (0, None, [None, None, None]),
        (1, None, [None, None, None]),
        (2, None, ["0", "1", "0"]),
        (2, "3,5", ["3", "5", "3"]),
        (2, "3,5,9", ["3", "5", "3"]),  # There is no GPU 9.
    ],
)
def test_processes_take_turns_on_several_gpus(
    count: int,
    own: str | None,
    expected: list[str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [object()] * count
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if own:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", own)
    given = [gpu_of(number).get("CUDA_VISIBLE_DEVICES") for number in range(3)]
    assert given == expected
