"""Meta-classes: a sub-task on randomly grouped classes, as in DREML."""

from typing import Any

import numpy as np
from keras import ops

from keras_dml.losses.variables import check_class_ids, nan_outside, take_rows
from keras_dml.model.objective import Objective
from keras_dml.utils.arguments import check_count
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Shape, Tensor


@register
class MetaClasses(Objective):
    """A task whose classes are random groups of the training classes.

    The relabelling of DREML: L̃ = {l_r(i)}, r a random map of the classes
    to meta-classes of about the same size. The map is a weight, saved with
    the model.

    Args:
        objective: The objective that is given meta-classes for labels.
        num_classes: Classes of the training set.
        num_meta_classes: Meta-classes that they are grouped into.
        seed: Seed of the groups; different for every learner.
        **kwargs: As for `Objective`.

    Call arguments:
        outputs: As the objective needs them.
        targets: Dict with `"label"`, (B,), in [0, num_classes). Another
            label is an error, or NaN inside a compiled graph.

    Returns:
        The terms of the objective.

    Raises:
        ValueError: If there are fewer than two meta-classes, or more than
            classes.

    Reference:
        Xuan et al., "Deep Randomized Ensembles for Metric Learning", ECCV
        2018.
    """

    def __init__(
        self,
        objective: Objective,
        num_classes: int,
        num_meta_classes: int,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_count(
            "MetaClasses", "num_meta_classes", num_meta_classes, least=2
        )
        check_count(
            "MetaClasses", "num_classes", num_classes, least=num_meta_classes
        )
        self.objective = objective
        self.num_classes = num_classes
        self.num_meta_classes = num_meta_classes
        self.seed = seed
        self.terms = objective.terms

    def build(self, outputs_shape: dict[str, Shape]) -> None:
        order = np.random.default_rng(self.seed).permutation(self.num_classes)
        self.meta_class = self.add_weight(
            shape=(self.num_classes,),
            initializer=lambda _, dtype=None: ops.cast(
                order % self.num_meta_classes, dtype
            ),
            dtype="int32",
            trainable=False,
            name="meta_class",
        )
        self.objective.build(outputs_shape)

    def call(
        self, outputs: dict[str, Tensor], targets: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        labels = ops.convert_to_tensor(targets["label"])
        check_class_ids("MetaClasses", labels, self.num_classes)
        values = self.objective(outputs, self._relabeled(targets))
        return {
            name: nan_outside(value, labels, self.num_classes)
            for name, value in values.items()
        }

    def after_step(
        self, outputs: dict[str, Tensor], targets: dict[str, Tensor]
    ) -> None:
        self.objective.after_step(outputs, self._relabeled(targets))

    def _relabeled(self, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        labels = ops.convert_to_tensor(targets["label"])
        return {**targets, "label": take_rows(self.meta_class, labels)}
