"""Defaults of processes that share a machine."""

import pytest

from keras_dml.pools.sharing import THREADS, sharing

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
