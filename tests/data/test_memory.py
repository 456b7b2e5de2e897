"""Tests of how much memory is said to be there, by what a system may say."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from keras_dml.data import caching as memory
from keras_dml.data.caching import available_memory

MB = 2**20
V1, V2 = "memory/memory.limit_in_bytes", "memory.max"
USE = {V1: "memory/memory.usage_in_bytes", V2: "memory.current"}

System = Callable[..., None]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """Sets a system's memory, and writes the files of its control groups."""
    root = str(tmp_path / "cgroup")
    groups = [
        [path.replace("/sys/fs/cgroup", root) for path in group]
        for group in memory._GROUPS
    ]
    assert [group[0] for group in groups] == [f"{root}/{x}" for x in (V2, V1)]
    monkeypatch.setattr(memory, "_GROUPS", groups)

    def write(megabytes: int, **limits: tuple[str, str]) -> None:
        found = SimpleNamespace(available=megabytes * MB)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: found)
        for version, texts in limits.items():
            limit = {"v1": V1, "v2": V2}[version]
            for name, text in zip((limit, USE[limit]), texts, strict=True):
                path = tmp_path / "cgroup" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    return write


def test_what_the_system_says_is_available(system: System) -> None:
    system(300)
    assert available_memory() == 300 * MB


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_limit_of_a_container_counts(system: System, version: str) -> None:
    system(300, **{version: (f"{200 * MB}\n", f"{150 * MB}\n")})
    assert available_memory() == 50 * MB
    # Of what is left of a larger limit, the system does not have so much.
    system(300, **{version: (f"{900 * MB}\n", f"{150 * MB}\n")})
    assert available_memory() == 300 * MB


def test_the_smaller_of_two_limits_counts(system: System) -> None:
    system(300, v1=(str(90 * MB), "0"), v2=(str(80 * MB), str(MB)))
    assert available_memory() == 79 * MB
    system(300, v1=(str(70 * MB), "0"))
    assert available_memory() == 70 * MB


def test_more_than_the_limit_leaves_nothing(system: System) -> None:
    system(300, v2=(str(100 * MB), str(120 * MB)))
    assert available_memory() == 0


def test_a_container_without_a_limit(system: System) -> None:
    system(300, v2=("max\n", f"{150 * MB}\n"))
    assert available_memory() == 300 * MB


def test_a_limit_without_its_use_does_not_count(
    system: System, tmp_path: Path
) -> None:
    system(300, v2=(str(100 * MB), "0"))
    (tmp_path / "cgroup" / USE[V2]).unlink()
    assert available_memory() == 300 * MB


def test_of_this_system(monkeypatch: pytest.MonkeyPatch) -> None:
    total = psutil.virtual_memory().total
    assert 0 <= available_memory() <= total
    monkeypatch.setattr(memory, "_GROUPS", ())
    assert 0 < available_memory() <= total
