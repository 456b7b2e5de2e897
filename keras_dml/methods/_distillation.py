"""Distillation: a small model learns from the embeddings of a larger one."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import keras
import numpy as np

from keras_dml import backbones, losses
from keras_dml.losses.base import LossLike
from keras_dml.losses.distillation import RELATIONS
from keras_dml.methods._baseline import EmbeddingHead
from keras_dml.methods.declaration import declare
from keras_dml.model.metric_model import MetricModel
from keras_dml.model.objective import LossObjective
from keras_dml.model.teacher import Source, Teacher
from keras_dml.utils.arguments import check_not_empty
from keras_dml.utils.serialization import register
from keras_dml.utils.types import (
    Config,
    Pooling,
    Positive,
    Tensor,
    Tensors,
    Units,
)

Relation: TypeAlias = Literal["similarity", "distance", "angle"]

TEACHER = "teacher"
"""The target that holds the embeddings of the teacher."""

WEIGHTS = {"similarity": 50.0, "distance": 1.0, "angle": 2.0}
"""The default weight of each relation."""


@register
class DistillationObjective(LossObjective):
    """A metric loss, and relations of the batch as a teacher sees them.

    Args:
        loss: See `LossObjective`.
        relation: See `distillation`.
        temperature: See `distillation`.
        teacher: See `learn_from`. A path is saved with the objective, and read
            when training begins. The weights of a teacher are never saved.
        **kwargs: See `LossObjective`.

    Call arguments:
        outputs: Dict with `"embedding"`, (B, D).
        targets: Dict with `"label"`, (B,), and `"teacher"`, (B, D'), which
            `completed` adds.

    Returns:
        (B,) tensors: `"metric"` (with several losses, each under its own
        name), and one for every relation.

    Raises:
        ValueError: If a relation is unknown, or there is no teacher.
    """

    def __init__(
        self,
        loss: losses.MetricLoss,
        relation: Relation | Sequence[Relation] = "similarity",
        temperature: float = 1.0,
        teacher: Source | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(loss, **kwargs)
        self.relation = relation
        names = [relation] if isinstance(relation, str) else list(relation)
        check_not_empty("distillation", "relation", names)
        self.temperature = temperature
        self.relations = names
        self.terms = (*self.terms, *names)
        self.split_terms()
        self._teacher: Teacher | None = None
        if teacher is not None:
            self.learn_from(teacher)

    def learn_from(self, teacher: Source) -> None:
        """Sets the teacher; for a compiled model, compile it again after.

        Args:
            teacher: See `distillation`.
        """
        self._teacher = Teacher(teacher)

    @property
    def term_weights(self) -> dict[str, Any]:
        weights = {str(x): WEIGHTS[x] for x in self.relations}
        return {**super().term_weights, **weights}

    def get_config(self) -> Config:
        config = self.serialized_arguments(without=(TEACHER,))
        path = self._teacher.path if self._teacher else None
        return {**keras.layers.Layer.get_config(self), **config, TEACHER: path}

    def prepare(self) -> None:
        if self._teacher is not None:
            self._teacher.load()

    def completed(self, inputs: Any, targets: Tensors) -> Tensors:
        if TEACHER in targets or self._teacher is None:
            return targets
        return {**targets, TEACHER: self._teacher(inputs)}

    def call(self, outputs: Tensors, targets: Tensors) -> Tensors:
        embedding = outputs["embedding"]
        if TEACHER not in targets:
            raise ValueError(
                "`teacher` of distillation must be given for training, unless "
                'the targets have the embeddings of a teacher, "teacher". '
                f"Received: teacher=None and the targets {sorted(targets)}. "
                "Use, for example, distillation(backbone, "
                "teacher='runs/large'); for a model that was loaded, "
                "model.objective.learn_from(teacher)."
            )
        teacher = targets[TEACHER]
        terms = self.loss.term_values(targets["label"], embedding)
        for name in self.relations:
            arguments = (self.temperature,) if name == "similarity" else ()
            terms[name] = RELATIONS[name](embedding, teacher, *arguments)
        return terms


def check_takes(objective: DistillationObjective, model: keras.Model) -> None:
    """Checks a teacher by one example of zeros, as a model takes it."""

    def zeros(spec: keras.KerasTensor) -> Tensor:
        shape = [1 if size is None else size for size in spec.shape]
        return keras.ops.zeros(shape, spec.dtype)

    example = keras.tree.map_structure(zeros, model.input)
    try:
        objective.completed(example, {})
    # A model of a stranger may fail in any way.
    except Exception as error:
        shapes = keras.tree.map_structure(np.shape, example)
        raise ValueError(
            "`teacher` of distillation must embed what the backbone takes. "
            f"Received: a teacher that fails on an example of shape {shapes}. "
            f"Use another teacher or `input_shape`. {type(error).__name__}: "
            f"{error}"
        ) from error


@declare(
    "distillation",
    "one embedding that also learns from the relations a larger model sees",
    examples={
        "relation": ["similarity", "distance", "angle"],
        "temperature": 0.5,
        "pooling": "max",
        "loss_weights": {"distance": 2.0},
    },
)
def distillation(
    backbone: str | keras.Model = "small_convnet",
    *,
    teacher: Source | None = None,
    embedding_dim: Units = 128,
    loss: LossLike = "multi_similarity",
    relation: Relation | Sequence[Relation] = "similarity",
    temperature: Positive = 1.0,
    pooling: Pooling = "avg",
    **kwargs: Any,
) -> MetricModel:
    r"""Distillation of relations from a larger model (Park et al., 2019).

    What it computes: the embedding of `baseline`, the student, trained by a
    metric loss and by how a trained model, the teacher, relates the examples
    of each batch. For embeddings s of the student and t of the teacher,

    $$
    \mathcal{L} = \mathcal{L}_{metric}(s) +
    \lambda \, \mathcal{L}_{relation}(s, t) .
    $$

    `relation` is any of the following:

    - "distance", RKD-D: distances, relative to their mean in the batch; the
      Huber loss between them (Eq. 5 to 8). λ = 1.
    - "angle", RKD-A: cosines of the angles of all triplets; the Huber loss
      between them (Eq. 9 and 10). λ = 2. It needs memory for B³ numbers.
    - "similarity": the Kullback-Leibler divergence of each row of cosine
      similarities, after a softmax, as in `s2sd`. λ = 50.

    Student and teacher may differ in everything but what they embed: in the
    network, the method and the dimensions. The teacher embeds each batch that
    the student is trained on, with the same augmentation, in inference mode.
    It is neither trained, saved nor exported with the student, and embedding
    an image costs as much as with `baseline`.

    Args:
        backbone: See `baseline`.
        teacher: A `MetricModel` or another Keras model that returns
            embeddings, (B, D'); or a path: the folder of a run, whose best
            model it is, a `.keras` file, or the folder of a SavedModel.
            Images are resized to what a Keras model takes; a SavedModel
            prepares them in its own view. None: batches have the teacher's
            embeddings as the target "teacher", (B, D').
        embedding_dim: Dimensions of the embedding, D.
        loss: See `baseline`. `loss_weights={"metric": 0}` leaves the student
            to the teacher alone, as in the paper.
        relation: One or several names; each is a term, whose weight λ is in
            `loss_weights`.
        temperature: T of "similarity".
        pooling: See `Head`: "avg", "max", "avg_max", "gem", "cls" or "none".
        **kwargs: Passed to `MetricModel`.

    Returns:
        A `MetricModel`, see `baseline`.

    Raises:
        ValueError: If a relation is unknown, or the teacher does not embed
            what the backbone takes.
        OSError: If there is no teacher at the path.

    Deviations:
        - Means over pairs and triplets, as in the released code; the paper
          sums.
        - The student's embedding is unit, like the teacher's. The paper gives
          better results for a student without this constraint, which a search
          by cosine similarity does not have.
        - The paper trains students for retrieval by relations alone; the
          default here adds a metric loss.

    Reference:
        Park et al., "Relational Knowledge Distillation", CVPR 2019,
        https://arxiv.org/abs/1904.05068; numbers of equations not verified.
    """
    student = backbones.get(backbone)
    objective = DistillationObjective(
        losses.get(loss), relation, temperature, teacher, name="objective"
    )
    if teacher is not None:
        objective.prepare()
        check_takes(objective, student)
    return MetricModel(
        backbone=student,
        head=EmbeddingHead(embedding_dim, pooling=pooling, name="head"),
        objective=objective,
        **kwargs,
    )
