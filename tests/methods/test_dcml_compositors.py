"""The compositors of a DCML model: whom they teach, and what they cost."""

import numpy as np
import tensorflow as tf

from tests.methods.test_contract import batch
from tests.methods.test_dcml import model_of


def reached(model, term: str) -> set[str]:
    """Paths of the variables to which a term's gradient comes."""
    x, targets = batch()
    with tf.GradientTape() as tape:
        terms = model.objective(model.outputs_of(x, training=True), targets)
        loss = tf.reduce_sum(terms[term])
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    return {
        v.path
        for v, g in zip(variables, gradients, strict=True)
        if g is not None and np.any(g)
    }


def test_sub_tasks_teach_everything_and_j_dis_all_but_compositors(
    tiny_backbone,
) -> None:
    """min over θ and ψ, over θ, and over ψ alone, in Eq. 8."""
    model = model_of(tiny_backbone)
    psi = {v.path for v in model.objective.compositor.trainable_variables}
    everything = {v.path for v in model.trainable_variables}
    assert reached(model, "task_metric") == everything
    assert reached(model, "metric") == everything - psi
    assert reached(model, "reinforcement") == psi


def test_more_compositors_are_no_more_operations(tiny_backbone) -> None:
    """One kernel and one product, whatever their number."""
    sizes = set()
    for num_compositors in (2, 16):
        layer = model_of(
            tiny_backbone, num_compositors=num_compositors
        ).objective.compositor
        graph = tf.function(layer.__call__, autograph=False)
        traced = graph.get_concrete_function(tf.TensorSpec((None, 3, 4)))
        sizes.add(len(traced.graph.get_operations()))
    assert len(sizes) == 1
