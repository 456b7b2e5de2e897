"""What XLA makes of a training step on JAX, of every method: no times.

Operations (FLOPs) and bytes accessed as `cost_analysis` counts them in the
compiled step, for the baseline and over it, and over the step of a plain Keras
classifier of the same network. The body of a loop counts once.

    python tests/benchmarks/compiled.py              # all, as CSV
    python tests/benchmarks/compiled.py dcml bier    # names with these
    python tests/benchmarks/compiled.py --backbone resnet50 --size 224 \
        --batch 32 attentive dcml bier
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import keras

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks import methods

PLAIN = "cross-entropy"


def classifier(backbone: keras.Model) -> keras.Model:
    """The network as it is trained without metric learning."""
    x = keras.layers.GlobalAveragePooling2D()(backbone.output)
    x = keras.layers.Dense(methods.CLASSES)(x)
    model = keras.Model(backbone.inputs, x)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-5), loss)
    return model


def step_of(
    name: str, options: argparse.Namespace
) -> tuple[Callable[..., Any], Any, Any]:
    """A step of training, the state that it changes, and a batch."""
    model = methods.model_of("baseline" if name == PLAIN else name, options)
    data: Any = methods.batch_of(model, options.batch)
    if name == PLAIN:
        model = classifier(model.backbone)
        data = data[0], data[1]["label"]
    model._symbolic_build(data_batch=data)
    model.make_train_function()
    model.optimizer.build(model.trainable_variables)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([v.value for v in group] for group in groups)
    return jax.jit(model.train_step, donate_argnums=0), state, data


def cost_of(name: str, options: argparse.Namespace) -> tuple[float, float]:
    """FLOPs and bytes accessed of a step."""
    step, *arguments = step_of(name, options)
    cost = step.lower(*arguments).compile().cost_analysis()
    return cost["flops"], cost["bytes accessed"]


def main() -> None:
    options = methods.parser_of(__doc__).parse_args()
    first, *rest = methods.chosen(options)
    base = cost_of(first, options)
    print("network,step,gigaflops,gigabytes,flops_ratio,bytes_ratio")
    for name in (first, PLAIN, *rest):
        flops, size = base if name == first else cost_of(name, options)
        print(
            f"{options.backbone} {options.size},{name},{flops / 1e9:.4g},"
            f"{size / 1e9:.4g},{flops / base[0]:.3f},{size / base[1]:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
