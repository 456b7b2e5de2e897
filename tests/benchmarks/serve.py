"""Speed of the embedded server beside bare `model.predict`.

Run from the root of the project:

    python tests/benchmarks/serve.py --quick    # 64 clients only
    python tests/benchmarks/serve.py --backbone lite0.keras
    python tests/benchmarks/serve.py --backbone lite0.keras --only lite0 \
        --rounds 5

The second also measures a model with that backbone, a `.keras` file such as
that of EfficientNet-Lite0, or a name. The third compares the engines, which 64
clients ask in turns, with an image a request.

The server runs in a process of its own, as `keras-dml serve` starts it, and
so do the clients, which send image files (JPEG, PNG of glyphs) to the
signature "encoded" or pixels to "serving_default", as soon as they have the
answer to the request before. They ask for --seconds, and until each has three
answers; the rate is that of the answers until then, after a first one each
that does not count. `model.predict` gets full batches of 64 decoded images
before and after. "cpu" is the share of the images
a processor second of the server embeds, of those that one of `model.predict`
does: other work on the machine distorts it less.
"""

import argparse
import asyncio
import base64
import io
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import psutil
from PIL import Image

BATCH = 64

CALL = 2**25
"""Bytes of the images in a call of `model.predict`, which has costs of its own:
they are a third of the time of 512 small images."""

LEAST = 3
"""Answers that each client must have had."""


LARGEST = 2**22
"""Bytes of the largest body that is sent: sixteen photographs as pixels in JSON
exceed it, and with 64 clients also the server's time for a request."""

OPTIONS = ("--port", "0", "--queue", "2048", "--request-timeout", "120")
"""Of the server: 64 clients with sixteen pictures each fill the default queue,
and a large network takes longer for them than the default timeout."""


def models(backbone: str | None) -> dict[str, Any]:
    """Models, by name: small_convnet, and one with another backbone."""
    from keras_dml import backbones, methods

    small = methods.baseline("small_convnet", embedding_dim=64)
    if backbone is None:
        return {"small_convnet": small}
    network = backbones.get(backbone, input_shape=(224, 224, 3))
    large = methods.baseline(network, embedding_dim=128)
    return {"small_convnet": small, Path(backbone).stem: large}


def pictures(shape: tuple[int, int, int], count: int) -> list[Any]:
    """As smooth as photographs, (H, W, C) uint8."""
    height, width, channels = shape
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((width, height), Image.BICUBIC)
        image = image.convert("L" if channels == 1 else "RGB")
        made.append(np.asarray(image).reshape(shape))
    return made


def file_of(pixels: Any) -> bytes:
    """PNG of gray pictures, JPEG of others."""
    file = io.BytesIO()
    kind = "PNG" if pixels.shape[-1] == 1 else "JPEG"
    Image.fromarray(pixels.squeeze()).save(file, kind, quality=90)
    return file.getvalue()


def body_of(images: list[Any], signature: str) -> bytes:
    if signature == "serving_default":
        instances: Any = [x.tolist() for x in images]
    else:
        files = [base64.b64encode(file_of(x)).decode() for x in images]
        instances = [{"b64": x} for x in files]
    request = {"signature_name": signature, "instances": instances}
    return json.dumps(request, separators=(",", ":")).encode()


def predicted(model: Any, images: list[Any], seconds: float) -> list[float]:
    """Images a second, and a processor second, of `model.predict`."""
    x = np.stack(images * (BATCH // len(images))).astype("float32")
    x = np.concatenate([x] * max(8, CALL // x.nbytes))
    model.predict(x, batch_size=BATCH, verbose=0)
    began, used, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        model.predict(x, batch_size=BATCH, verbose=0)
        count += len(x)
    taken = time.perf_counter() - began
    return [count / taken, count / (time.process_time() - used)]


class Client(asyncio.Protocol):
    """Asks again as soon as it has an answer.

    Args:
        request: What it asks.
        on_answer: Called with its number and the seconds that an answer took;
            returns whether to ask again.
        number: Its number.

    Attributes:
        over: Done after the last answer.
    """

    def __init__(
        self,
        request: bytes,
        on_answer: Callable[[int, float], bool],
        number: int,
    ) -> None:
        self._request, self._on_answer = request, on_answer
        self._number = number
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._received = b""
        self._asked = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, content = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if length is None or len(content) < int(length[1]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.over.set_exception(RuntimeError(content[:300]))
            self._transport.close()
            return
        took = time.perf_counter() - self._asked
        if self._on_answer(self._number, took):
            self._ask()
        else:
            self.over.set_result(None)
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(error or RuntimeError("it was closed"))


class Clients:
    """Clients in one event loop, which costs less than a thread for each.

    Args:
        port: Where the server is.
        path: What is asked.
        body: The body of each request.
        count: How many there are.
    """

    def __init__(self, port: int, path: str, body: bytes, count: int) -> None:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._port, self._request = port, head.encode() + body
        self._answers: list[list[tuple[float, float]]] = [
            [] for _ in range(count)
        ]
        self._end: float | None = None

    async def run(self, seconds: float) -> dict[str, Any]:
        """Asks for some seconds, and until each has `LEAST` answers.

        Returns:
            "times", the seconds of each answer that came until then, and
            "seconds", when the last of them came, both from the moment on
            when each client had an answer; and "answered", all answers.
        """
        await self._ask(lambda number, took: False)
        # New connections: the server closes those idle for five seconds.
        began = time.perf_counter()

        def on_answer(number: int, took: float) -> bool:
            now = time.perf_counter()
            self._answers[number].append((now, took))
            if self._end is None and now - began >= seconds:
                has_enough = all(len(x) >= LEAST for x in self._answers)
                self._end = now if has_enough else None
            return self._end is None

        await self._ask(on_answer)
        answers = [x for one in self._answers for x in one]
        counted = [x for x in answers if self._end and x[0] <= self._end]
        return {
            "times": [took for _, took in counted],
            "seconds": max(at for at, _ in counted) - began,
            "answered": len(answers) + len(self._answers),
        }

    async def _ask(self, on_answer: Callable[[int, float], bool]) -> None:
        loop = asyncio.get_running_loop()
        clients = [
            Client(self._request, on_answer, i)
            for i in range(len(self._answers))
        ]
        for client in clients:
            await loop.create_connection(
                lambda client=client: client, "127.0.0.1", self._port
            )
        await asyncio.gather(*(client.over for client in clients))


def be_clients(port: int, name: str, clients: int, seconds: float) -> None:
    """What the clients' process does: it reads a body and prints times."""
    body = sys.stdin.buffer.read()
    path = f"/v1/models/{name}:predict"
    found = asyncio.run(Clients(port, path, body, clients).run(seconds))
    print(json.dumps(found))


def clients_of(
    port: int, name: str, body: bytes, clients: int, seconds: float
) -> dict[str, Any]:
    command = [sys.executable, __file__, "--clients", str(port), name]
    command += [str(clients), str(seconds)]
    done = subprocess.run(command, input=body, stdout=-1, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def start(
    file: Path, log: Any, engine: str = "keras"
) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-c", "from keras_dml.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "serve", str(file), "--engine", engine, *OPTIONS],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the server did not start")
    return process, int(line.split(":")[3].partition("/")[0])


def measure(name: str, model: Any, seconds: float, counts: list[int]) -> None:
    shape = model.input_shape[1:]
    images = pictures(shape, 16)
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, f"{name}.keras"), Path(folder, "log")
        model.save(file)
        bare = [predicted(model, images, seconds)]
        process, port = start(file, log.open("w"))
        try:
            rows = measure_server(
                process.pid, port, name, images, seconds, counts
            )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        bare.append(predicted(model, images, seconds))
    rate, cpu_rate = (statistics.mean(x) for x in zip(*bare, strict=True))
    print(f"\n{name} {shape}: model.predict of {BATCH}: {rate:,.0f} images/s,")
    print(f"{cpu_rate:,.0f} a processor second\n")
    print(
        "| signature | images per request | clients | requests/s | images/s "
        "| p50 ms | p99 ms | of predict | cpu |"
    )
    print("|---" * 9 + "|")
    for *what, found, per_cpu in rows:
        per_request = int(what[1])
        times = np.array(found["times"]) * 1000
        each = len(times) / found["seconds"]
        p50, p99 = np.percentile(times, [50, 99])
        print(
            "|", " | ".join(map(str, what)),
            f"| {each:,.0f} | {each * per_request:,.0f}",
            f"| {p50:.1f} | {p99:.1f}",
            f"| {each * per_request / rate:.0%} | {per_cpu / cpu_rate:.0%} |",
        )  # fmt: skip


def compare(name: str, model: Any, seconds: float, rounds: int) -> None:
    """Prints medians and ranges of the engines, whose servers both run."""
    body = body_of(pictures(model.input_shape[1:], 1), "encoded")
    found: dict[str, list[Any]] = {"keras": [], "openvino": []}
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder, f"{name}.keras"), Path(folder, "log")
        model.save(file)
        servers = [start(file, log.open("a"), x) for x in found]
        try:
            for _ in range(rounds):
                for rows, (server, port) in zip(
                    found.values(), servers, strict=True
                ):
                    cpu = psutil.Process(server.pid).cpu_times
                    used = sum(cpu()[:2])
                    got = clients_of(port, name, body, 64, seconds)
                    used = sum(cpu()[:2]) - used
                    tails = np.percentile(got["times"], [50, 99]) * 1000
                    rate = len(got["times"]) / got["seconds"]
                    rows.append([rate, *tails, got["answered"] / used])
                    print(*rows[-1], flush=True)
        finally:
            for server, _ in servers:
                server.send_signal(signal.SIGTERM)
            for server, _ in servers:
                server.wait(60)
        if "Keras embeds" in log.read_text():
            raise RuntimeError("OpenVINO does not embed: see its log")
    names = "images/s", "p50 ms", "p99 ms", "images per processor second"
    each = [np.array(rows).T for rows in found.values()]
    for what, *values in zip(names, *each, strict=True):
        said = [
            f"{np.median(x):.1f} ({x.min():.1f} to {x.max():.1f})"
            for x in values
        ]
        ratio = np.median(values[1]) / np.median(values[0])
        print(f"{what}: {', '.join(said)}; ratio {ratio:.2f}")


def measure_server(
    pid: int,
    port: int,
    name: str,
    images: list[Any],
    seconds: float,
    counts: list[int],
) -> list[list[Any]]:
    server = psutil.Process(pid)
    rows = []
    for signature in ("encoded", "serving_default"):
        for per_request in (1, 16):
            body = body_of(images[:per_request], signature)
            if len(body) > LARGEST:
                continue
            for clients in counts:
                before = server.cpu_times()
                found = clients_of(port, name, body, clients, seconds)
                after = server.cpu_times()
                used = after.user + after.system - before.user - before.system
                rate = found["answered"] * per_request / used
                rows.append([signature, per_request, clients, found, rate])
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--clients"]:
        port, name, clients, seconds = sys.argv[2:]
        return be_clients(int(port), name, int(clients), float(seconds))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--backbone", help="also a model with this one")
    parser.add_argument("--rounds", type=int, help="compare the engines")
    parser.add_argument("--only", help="the name of one model")
    arguments = parser.parse_args()
    counts = [64] if arguments.quick else [1, 8, 64]
    for name, model in models(arguments.backbone).items():
        if arguments.only not in (None, name):
            continue
        if arguments.rounds:
            compare(name, model, arguments.seconds, arguments.rounds)
        else:
            measure(name, model, arguments.seconds, counts)


if __name__ == "__main__":
    main()
