"""Time of a training step on TensorFlow, JAX and PyTorch: steps take turns.

    python tests/benchmarks/backends.py
    python tests/benchmarks/backends.py --backbone efficientnet_b0 --size 96 \
        --batch 16
    python tests/benchmarks/backends.py --backbone resnet50 --size 224 \
        --policy mixed_bfloat16 --steps 20 \
        jax:cross-entropy jax:baseline jax:dcml torch torch:compiled

What is named, BACKEND:METHOD, has a process of its own, and all the same
network and batch. "cross-entropy" is a plain Keras classifier. "torch" is the
baseline in PyTorch with pytorch-metric-learning, whose miner is the same, and
"torch:cross-entropy" the classifier; with "compiled" in the name its network is
compiled. Printed are the medians of a step,
their quartiles, in ms, and the ratio to the first. Of networks, PyTorch has
"resnet50", with the strides of Keras', and "vit".
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))


def steps_on_jax(method: str, options: argparse.Namespace) -> Callable[[], Any]:
    import jax

    from tests.benchmarks import compiled

    step, state, data = compiled.step_of(method, options)
    step_function = step.lower(state, data).compile()

    def run() -> None:
        nonlocal state
        for _ in range(options.steps):
            _, state = step_function(state, data)
        jax.block_until_ready(state)

    return run


def steps_on_tensorflow(
    method: str, options: argparse.Namespace
) -> Callable[[], Any]:
    from tests.benchmarks import methods

    step = methods.step_of(methods.model_of(method, options), options.batch)
    return lambda: [step() for _ in range(options.steps)]


def steps_on_torch(
    variant: str, options: argparse.Namespace
) -> Callable[[], Any]:
    """The baseline as users of PyTorch Metric Learning write it."""
    import torch
    from pytorch_metric_learning import losses, miners

    device = "cuda" if torch.cuda.is_available() else "cpu"
    classes, size = 32, options.size
    network, features = network_of_torch(options.backbone, size)
    model = torch.nn.Sequential(network, torch.nn.Linear(features, 512))
    model.to(device, memory_format=torch.channels_last).train()
    loss = losses.MarginLoss(learn_beta=True, num_classes=classes).to(device)
    mine = miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4)
    optimizer = torch.optim.Adam(
        [*model.parameters(), *loss.parameters()], 1e-5, fused=device == "cuda"
    )
    run_model = torch.compile(model) if "compiled" in variant else model
    x = torch.rand(options.batch, 3, size, size, device=device)
    x = (x - 0.45).contiguous(memory_format=torch.channels_last)
    y = torch.arange(options.batch, device=device) % classes

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        mixed = options.policy == "mixed_bfloat16"
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            outputs = run_model(x)
        loss_of(outputs.float()).backward()
        optimizer.step()

    def loss_of(outputs: Any) -> Any:
        if "cross-entropy" in variant:
            return torch.nn.functional.cross_entropy(outputs, y)
        embeddings = torch.nn.functional.normalize(outputs)
        return loss(embeddings, y, mine(embeddings, y))

    def run() -> None:
        for _ in range(options.steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def network_of_torch(name: str, size: int) -> tuple[Any, int]:
    if name == "vit":
        import timm

        network = timm.create_model(
            "vit_small_patch16_224",
            num_classes=0,
            class_token=False,
            global_pool="avg",
            img_size=size,
        )
        return network, 384
    import torch
    import torchvision

    network = torchvision.models.resnet50()
    network.fc = torch.nn.Identity()
    for block in network.modules():  # Keras has strides in the 1 × 1.
        if isinstance(block, torchvision.models.resnet.Bottleneck):
            first, second = block.conv1, block.conv2
            first.stride, second.stride = second.stride, first.stride
    return network, 2048


STEPS = {
    "tensorflow": steps_on_tensorflow,
    "jax": steps_on_jax,
    "torch": steps_on_torch,
}


def work(options: argparse.Namespace) -> None:
    """Takes steps, and prints the milliseconds of one, for each line."""
    backend, _, method = options.worker.partition(":")
    if backend != "torch":
        import keras

        keras.config.set_dtype_policy(options.policy)
    run = STEPS[backend](method or "baseline", options)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        run()
        spent = time.perf_counter() - began
        print(1e3 * spent / options.steps, flush=True)


def begun(name: str) -> Any:
    worker: Any = subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], "--worker", name],
        env={
            **os.environ,
            "KERAS_BACKEND": name.partition(":")[0],
            "TF_CPP_MIN_LOG_LEVEL": "3",
            # Several share the memory of a GPU.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # One after the other: compilers time what they choose from.
    began = time.perf_counter()
    if not worker.stdout.readline():
        print(f"{name} failed, see above", flush=True)
        return None
    spent = time.perf_counter() - began
    print(f"{name}: the first steps after {spent:.0f} s", flush=True)
    return worker


def milliseconds(worker: Any) -> float:
    worker.stdin.write("\n")
    worker.stdin.flush()
    return float(worker.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["tensorflow", "jax"])
    parser.add_argument("--backbone", default="small_convnet")
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--policy", default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=1, help="in a round")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.frozen = False
    options.jit = True  # What JAX does; TensorFlow's default is "auto".
    if options.worker:
        work(options)
        return
    workers = {
        name: worker
        for name in options.names
        if (worker := begun(name)) is not None
    }
    rounds = [
        list(map(milliseconds, workers.values())) for _ in range(options.rounds)
    ]
    for worker in workers.values():
        worker.stdin.close()
    report(dict(zip(workers, zip(*rounds, strict=True), strict=True)), options)


def report(times: dict[str, Any], options: argparse.Namespace) -> None:
    print(options.backbone, options.size, options.batch, options.policy)
    first = next(iter(times.values()))
    for name, column in times.items():
        low, middle, high = statistics.quantiles(column, n=4)
        ratio = statistics.median(
            ours / base for ours, base in zip(column, first, strict=True)
        )
        print(f"{name}: {middle:.1f} ms ({low:.1f}–{high:.1f}), {ratio:.3f}")


if __name__ == "__main__":
    main()
