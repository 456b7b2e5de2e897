"""What a run says in words: before training, what it does; after, a verdict."""

import math

import keras

from keras_dml.data import DataSplits, Examples
from keras_dml.evaluation import Results, compare
from keras_dml.recipes import Recipe
from keras_dml.utils.provenance import hardware

VERDICTS = (
    "Verdicts: better or worse if the 95 % interval of the change, over test "
    "classes, excludes zero; otherwise within the noise of so few classes. "
    "Another seed may still change a result."
)


def before_training(
    recipe: Recipe, splits: DataSplits, model: keras.Model, replicas: int = 1
) -> list[str]:
    """Lines on the data, the network, the device and what is measured."""
    evaluation, method = recipe.evaluation, recipe.method
    roles = ("train", "validation", "test")
    parts = [f"{x} {_counted(getattr(splits, x))}" for x in roles]
    every = "each epoch"
    if evaluation.every != 1:
        every = f"every {evaluation.every} epochs"
    chosen = (
        f"val_{evaluation.monitor} on the validation images after {every}, "
        "to choose the epoch"
        if len(splits.validation)
        else "nothing while training, as no classes are held out"
    )
    dim = model.compute_output_shape(model.input_shape)[-1]
    devices = f", {replicas} replicas" if replicas > 1 else ""
    return [
        f"Data: {recipe.source}; {'; '.join(parts)}",
        f"Network: {recipe.backbone.name} with {method.name}, "
        f"{model.count_params():,} weights, embeddings of "
        f"{dim} dimensions",
        f"Device: {hardware()}{devices}, {recipe.precision}",
        f"Measured: {chosen}; {', '.join(evaluation.metrics)} on the test "
        "images, which are never trained on, before and after training",
    ]


def _counted(examples: Examples) -> str:
    if not len(examples):
        return "none"
    count = examples.num_classes
    things = "classes" if count > 1 else "class"
    if examples.has_label_sets:
        things = "labels"
    return f"{count:,} {things}, {len(examples):,} examples"


def verdicts(before: Results, after: Results) -> dict[str, str]:
    """Whether training changed each metric, in words.

    Metrics that have no value for each query have no interval: of these it
    says which is higher.

    Args:
        before: Results of the untrained model; without values for each query
            if they were not kept.
        after: Results of the trained model, on the same queries.
    """
    found = {}
    if before.per_query and after.per_query:
        differences = compare(before, after, units="classes")
        for name, difference in differences.items():
            found[name] = verdict_of(difference.low, difference.high)
    for name, value in after.items():
        if name not in found:
            way = (value > before[name]) - (value < before[name])
            found[name] = ("equal", "higher", "lower")[way] + ", no interval"
    return {name: found[name] for name in after}


def verdict_of(low: float, high: float) -> str:
    """What a 95 % interval of a change says, in words."""
    if math.isnan(low):
        return "too few classes to tell"
    if low > 0:
        return "better"
    return "worse" if high < 0 else "within the noise"
