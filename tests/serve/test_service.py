"""Batches of concurrent requests: joining, rejecting, timeouts."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from keras_dml.serve.current import Current
from keras_dml.serve.predict import parts_of
from keras_dml.serve.service import Busy, Service
from keras_dml.serve.settings import Settings
from tests.serve.conftest import EMPTY

FIRST, SECOND = (replace(EMPTY, version=x) for x in (1, 2))


class Recorded:
    """Doubles its items and records its batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []
        self.gate = threading.Event()

    def __call__(self, current: Current, items: Any) -> list[int]:
        self.gate.wait(5)
        self.batches.append((current.version, list(items)))
        if 13 in items:
            raise ArithmeticError("13")
        return [2 * x for x in items]


async def released(work: Recorded, *waiting: Any) -> list[Any]:
    tasks = [asyncio.ensure_future(x) for x in waiting]
    await asyncio.sleep(0.05)
    work.gate.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_waiting_items_are_batched_by_key_and_version() -> None:
    work = Recorded()

    async def requests() -> list[Any]:
        service = Service(FIRST, Settings(max_batch=4))
        blockers = [service.submit(f"block {i}", work, i) for i in range(2)]
        tasks = [asyncio.ensure_future(x) for x in blockers]
        await asyncio.sleep(0)
        same = [service.submit("a", work, x) for x in range(10, 13)]
        other = [service.submit("b", work, x) for x in range(20, 23)]
        large = [service.submit("a", work, 30, size=3)]
        tasks += [asyncio.ensure_future(x) for x in same]
        await asyncio.sleep(0)
        service.current = SECOND
        newer = [service.submit("a", work, 40)]
        results = await released(work, *other, *large, *newer)
        results = await asyncio.gather(*tasks) + results
        service.close()
        return results

    results = asyncio.run(requests())
    assert results == [0, 2, 20, 22, 24, 40, 42, 44, 60, 80]
    joined = sorted((v, x) for v, x in work.batches if x[0] >= 10)
    assert joined == [(1, [10, 11, 12]), (2, [20, 21, 22]), (2, [30, 40])]


def test_failing_item_harms_no_other() -> None:
    work = Recorded()

    async def requests() -> list[Any]:
        service = Service(FIRST, Settings())
        return await released(
            work, *(service.submit("a", work, x) for x in (1, 2, 3, 13, 4))
        )

    results = asyncio.run(requests())
    assert [x for x in results if isinstance(x, int)] == [2, 4, 6, 8]
    assert isinstance(results[3], ArithmeticError)


def test_full_queue_is_busy_and_late_answers_time_out() -> None:
    work = Recorded()

    async def requests() -> list[Any]:
        service = Service(FIRST, Settings(queue=3))
        asked = [service.submit(f"{x}", work, x) for x in range(7)]
        waiting = [asyncio.wait_for(x, 0.02) for x in asked]
        results = await released(work, *waiting)
        # What timed out is not run, and leaves its place.
        await asyncio.sleep(0.05)
        assert await service.submit("after", work, 50) == 100
        return results

    results = asyncio.run(requests())
    kinds = [type(x).__name__ for x in results]
    assert kinds == ["TimeoutError"] * 5 + ["Busy"] * 2
    ran = [x for _, batch in work.batches for x in batch]
    assert sorted(ran) == [0, 1, 50]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_body", 0), ("max_pixels", 0), ("max_batch", 1.5), ("queue", -1),
        ("port", 65536), ("port", -1), ("request_timeout", 0),
        ("max_connections", 0), ("stop_timeout", float("nan")), ("poll", -1),
        ("token", ""), ("token", "two words"),
    ],
)  # fmt: skip
def test_settings_are_checked(setting: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"`{setting}` of Settings"):
        Settings(**{setting: value})


class Weighed(Recorded):
    """Records how many items are in work at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.now = self.most = 0

    def __call__(self, current: Current, items: Any) -> list[int]:
        with self.lock:
            self.now += sum(items)
            self.most = max(self.most, self.now)
        self.gate.wait(5)
        with self.lock:
            self.now -= sum(items)
            self.batches.append((0, list(items)))
        return list(items)


@pytest.mark.parametrize(
    ("pixels", "max_pixels"),
    [([60] * 6, 60), ([30] * 6, 90), ([40, 70, 20, 20], 90), ([100, 1], 100)],
)
def test_pixels_in_work_stay_within_the_budget(pixels, max_pixels) -> None:
    """Tries one key each and one key for all."""
    for keys in (range(len(pixels)), [0] * len(pixels)):
        work = Weighed()
        work.gate.set()

        async def requests(work=work, keys=keys) -> list[Any]:
            service = Service(FIRST, Settings(max_pixels=100))
            asked = [
                service.submit(f"{key}", work, x, pixels=x)
                for key, x in zip(keys, pixels, strict=True)
            ]
            return await asyncio.gather(*asked)

        assert asyncio.run(requests()) == pixels
        assert work.most <= 100
        assert work.most <= max_pixels


def test_work_without_pixels_passes_what_waits_for_the_budget() -> None:
    work, other = Recorded(), Recorded()
    other.gate.set()

    async def requests() -> tuple[int, list[Any]]:
        service = Service(FIRST, Settings(max_pixels=100))
        large = [
            asyncio.ensure_future(service.submit("a", work, x, pixels=x))
            for x in (100, 90, 1)
        ]
        await asyncio.sleep(0)
        passed = await service.submit("b", other, 5)
        # A small picture does not pass the large one before it.
        assert work.batches == []
        work.gate.set()
        return passed, await asyncio.gather(*large)

    assert asyncio.run(requests()) == (10, [200, 180, 2])
    assert [items for _, items in work.batches] == [[100], [90, 1]]


def test_timed_out_request_holds_its_pixels_until_done() -> None:
    work = Recorded()

    async def requests() -> None:
        service = Service(FIRST, Settings(max_pixels=100))
        with pytest.raises(TimeoutError):
            first = service.submit("a", work, 1, pixels=80)
            await asyncio.wait_for(first, 0.02)
        with pytest.raises(TimeoutError):
            second = service.submit("b", work, 2, pixels=30)
            await asyncio.wait_for(second, 0.02)
        assert work.batches == []
        work.gate.set()
        assert await service.submit("c", work, 3, pixels=30) == 6

    asyncio.run(requests())
    assert work.batches == [(1, [1]), (1, [3])]


def test_too_many_waiting_pixels_are_rejected() -> None:
    work = Recorded()

    async def requests() -> list[Any]:
        service = Service(FIRST, Settings(max_pixels=100))
        asked = [service.submit("a", work, x, pixels=100) for x in range(12)]
        return await released(work, *asked)

    results = asyncio.run(requests())
    refused = [x for x in results if isinstance(x, Busy)]
    # One runs and eight wait.
    assert len(refused) == 3
    assert "large pictures wait" in str(refused[0])
    assert refused[0].headers == {"retry-after": "5"}


def test_request_is_split_to_fit_the_budget() -> None:
    assert parts_of([0] * 9, 100, 9) == [slice(0, 9)]
    assert parts_of([0] * 9, 100, 4) == [slice(0, 4), slice(4, 8), slice(8, 9)]
    parts = parts_of([60, 30, 20, 100, 70, 70], 100, 9)
    assert [(x.start, x.stop) for x in parts] == [
        (0, 2), (2, 3), (3, 4), (4, 5), (5, 6),
    ]  # fmt: skip
