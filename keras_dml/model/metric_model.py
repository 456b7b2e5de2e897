"""MetricModel: backbone, head and objective, and the one train step."""

import re
from itertools import zip_longest
from typing import Any

import keras
import tensorflow as tf

from keras_dml.data.view import View
from keras_dml.model.head import Head
from keras_dml.model.loss_weighting import LossWeighting
from keras_dml.model.momentum import MomentumEncoder
from keras_dml.model.objective import Objective
from keras_dml.model.update import RestrictedUpdate, exempt_loss_variables
from keras_dml.utils.serialization import register
from keras_dml.utils.types import Config, Shape, Tensor, Tensors


@register
class MetricModel(keras.Model):
    """A Keras model from images to unit embeddings, ready for `fit`.

    `model(x)` and `model.predict(x)` return the unit embedding and
    nothing else. Training uses all outputs of the head: the objective
    turns them into named terms, `loss_weights` sum them, and the update
    moves what the objective allows in this step.

    Targets are a dict with `"label"` (and what the sampler sends along),
    as `keras_dml.data.pipeline` makes them, or just the labels, (B,).

    Args:
        backbone: From images to features; see `keras_dml.backbones.get`.
        head: From features to named outputs.
        objective: From named outputs and targets to named terms, (B,).
        loss_weights: Weight of each term: a number, a
            `LearningRateSchedule`, or "learned"; see `LossWeighting`. By
            default that which several losses have among each other, else 1.
        rate_multipliers: Learning-rate multiplier for every variable
            whose path matches a regular expression, the first match
            counts: `{"backbone": 0.1, "/loss/": 100.0}`. Variables that a
            loss owns match "/loss/" (β is `objective/loss/beta`); they
            have no weight decay unless `decay_loss_variables` is set.
            Learned weights of terms are `weighting/loss_weights_{term}`.
            Other paths start with "backbone/", "head/" or "objective/".
        decay_loss_variables: Whether the optimizer's weight decay also
            applies to the variables that losses own.
        view: What evaluation, clustering and export make of an image, a
            `keras_dml.data.View` of the backbone's input size and
            channels. By default it is resized no more than they need.
        ema_momentum: μ of the `MomentumEncoder` that embeds the second view of
            an image, for objectives that compare two. None: there is none.
        copy_statistics: As for `MomentumEncoder`.
        **kwargs: Passed to `keras.Model`.

    Call arguments:
        inputs: Images, (B, H, W, C), pixels in 0 to 255.

    Returns:
        Unit embeddings, (B, D), float32.

    Raises:
        ValueError: If a loss weight does not name a term, or the view has
            not the size and channels of the backbone's input.
    """

    def __init__(
        self,
        backbone: keras.Model,
        head: Head,
        objective: Objective,
        loss_weights: dict[str, Any] | None = None,
        rate_multipliers: dict[str, float] | None = None,
        decay_loss_variables: bool = False,
        view: View | None = None,
        ema_momentum: float | None = None,
        copy_statistics: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.backbone = backbone
        self.head = head
        self.objective = objective
        self.rate_multipliers = dict(rate_multipliers or {})
        self.decay_loss_variables = decay_loss_variables
        self.view = view
        _check_view(view, backbone)
        self.ema_momentum = ema_momentum
        self.copy_statistics = copy_statistics
        self.momentum_encoder: MomentumEncoder | None = None
        _check_terms(objective.terms)
        self.weighting = LossWeighting(
            objective.terms,
            {**objective.term_weights, **(loss_weights or {})},
            name="weighting",
        )
        self._build_parts()
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.term_trackers = {
            name: keras.metrics.Mean(name=name) for name in objective.terms
        }
        self._update: Any = None  # Made with the train function.

    def _build_parts(self) -> None:
        # Everything is built here, before any optimizer: an optimizer
        # refuses variables that it has not seen.
        features_shape = self.backbone.output_shape
        if not self.head.built:
            self.head.build(features_shape)
        outputs_shape = self.head.compute_output_shape(features_shape)
        if not self.objective.built:
            self.objective.build(outputs_shape)
        if self.ema_momentum is not None:
            self.momentum_encoder = MomentumEncoder(
                self.backbone,
                self.head,
                self.ema_momentum,
                self.copy_statistics,
            )
        self.head.built = self.objective.built = self.built = True

    @property
    def input_shape(self) -> Shape:
        """(None, H, W, C) of the images."""
        shape: Shape = self.backbone.input_shape
        return shape

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        return self.outputs_of(inputs, training=training)["embedding"]

    def outputs_of(
        self, inputs: Tensor | Tensors, training: bool = False
    ) -> Tensors:
        """All outputs of the head, by name; `"embedding"` among them.

        Two views, `{"image": ..., "image2": ...}`, give those of the first,
        and of the second those of the momentum network.
        """
        if isinstance(inputs, dict) and "image2" in inputs:
            first = self.outputs_of(inputs["image"], training=training)
            if self.momentum_encoder is None:
                return first
            return {**first, **self.momentum_encoder(inputs["image2"])}
        # A frozen backbone is as in a test: its dropout, too, is off.
        trains = training and self.backbone.trainable
        features = self.backbone(inputs, training=trains)
        outputs: Tensors = self.head(features, training=training)
        return outputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        features_shape = self.backbone.compute_output_shape(input_shape)
        shapes = self.head.compute_output_shape(features_shape)
        shape: Shape = shapes["embedding"]
        return shape

    def compile(self, optimizer: Any = "adam", **kwargs: Any) -> None:
        """Configures training, as `keras.Model.compile` does.

        Args:
            optimizer: A Keras optimizer or its name.
            **kwargs: As for `keras.Model.compile`, without losses and
                metrics: the objective has the losses, and metrics of
                embeddings need the whole test set.

        Raises:
            ValueError: If `loss`, `loss_weights` or metrics are given.
        """
        for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"`{name}` is not for MetricModel.compile: its objective "
                    "holds the losses, `loss_weights` is an argument of its "
                    "constructor, and `callbacks.RetrievalEvaluation` "
                    f"measures it. Received: {name}={kwargs[name]!r}. Use "
                    "`methods.baseline(backbone, loss=…)` and "
                    "`model.compile(optimizer)`."
                )
        optimizer = keras.optimizers.get(optimizer)
        if not self.decay_loss_variables and not optimizer.built:
            exempt_loss_variables(optimizer, self.trainable_variables)
        super().compile(optimizer=optimizer, **kwargs)
        self._update = None

    def compile_from_config(self, config: Config) -> None:
        config = keras.saving.deserialize_keras_object(config)
        self.compile(**config)
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def fit(self, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Trains the model; see `keras.Model.fit`.

        A `tf.data.Dataset` comes in the order that its sampler planned, so
        `shuffle`, which Keras would warn about, is off for it.
        """
        if isinstance(x, tf.data.Dataset):
            kwargs.setdefault("shuffle", False)
        return super().fit(x, *args, **kwargs)

    def make_train_function(self, force: bool = False) -> None:
        if self._update is None or force:
            self._update = self._restricted_update()
        super().make_train_function(force)

    def _restricted_update(self) -> RestrictedUpdate:
        variables = self.trainable_variables
        if not self.optimizer.built:
            self.optimizer.build(variables)
        learners = zip_longest(
            self.head.learner_variables(),
            self.objective.learner_variables(),
            fillvalue=(),
        )
        return RestrictedUpdate(
            self.optimizer,
            variables,
            learners=[[*a, *b] for a, b in learners],
            multipliers=[
                (v, m) for v in variables if (m := self._multiplier(v)) != 1.0
            ],
        )

    def _multiplier(self, variable: keras.Variable) -> float:
        # Layers of a functional backbone do not carry its name in theirs.
        in_backbone = any(v is variable for v in self.backbone.variables)
        path = f"backbone/{variable.path}" if in_backbone else variable.path
        for pattern, multiplier in self.rate_multipliers.items():
            if re.search(pattern, path):
                return multiplier
        return 1.0

    def train_step(self, data: Any) -> Tensors:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        targets = y if isinstance(y, dict) else {"label": y}
        with tf.GradientTape() as tape:
            outputs = self.outputs_of(x, training=True)
            terms = self.objective(outputs, targets)
            per_example = self.weighting(terms, self.optimizer.iterations)
            if sample_weight is not None:
                per_example *= tf.cast(sample_weight, per_example.dtype)
            loss = tf.reduce_mean(per_example) + tf.add_n(
                [tf.zeros(()), *(tf.cast(x, "float32") for x in self.losses)]
            )
            # Gradients are summed over replicas: each adds its share.
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            scaled_loss = self.optimizer.scale_loss(loss / replicas)
        variables = self.trainable_variables
        gradients = tape.gradient(scaled_loss, variables)
        self._update(
            gradients, variables, self.objective.active_learner(targets)
        )
        if self.momentum_encoder:
            self.momentum_encoder.update(self.backbone, self.head)
        self.objective.after_step(outputs, targets)
        return self._log(loss, terms)

    def _log(self, loss: Tensor, terms: Tensors) -> Tensors:
        size = tf.shape(next(iter(terms.values())))[0]
        self.loss_tracker.update_state(loss, sample_weight=size)
        for name, value in terms.items():
            self.term_trackers[name].update_state(value)
        return {metric.name: metric.result() for metric in self.metrics}

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.loss_tracker, *self.term_trackers.values()]

    def test_step(self, data: Any) -> Tensors:
        raise ValueError(
            "MetricModel has no loss on validation data: its classes are not "
            "those of training. Leave out `validation_data` and `evaluate`, "
            "and use `keras_dml.callbacks.RetrievalEvaluation(images)` or "
            "`keras_dml.evaluation.evaluate(model, examples)`."
        )

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "dtype": serialize(self.dtype_policy),
            "backbone": serialize(self.backbone),
            "head": serialize(self.head),
            "objective": serialize(self.objective),
            "loss_weights": self.weighting.serialized_weights(),
            "rate_multipliers": self.rate_multipliers,
            "decay_loss_variables": self.decay_loss_variables,
            "view": serialize(self.view),
            "ema_momentum": self.ema_momentum,
            "copy_statistics": self.copy_statistics,
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: Any = None
    ) -> "MetricModel":
        restored = {
            key: keras.saving.deserialize_keras_object(value, custom_objects)
            for key, value in config.items()
            if key != "name"
        }
        return cls(**{**config, **restored})


def _check_terms(terms: tuple[str, ...]) -> None:
    repeated = {name for name in terms if terms.count(name) > 1}
    if repeated or "loss" in terms:
        raise ValueError(
            "Terms of an objective must have different names, none of them "
            f'"loss", the name of their sum. Received: {list(terms)}. Give '
            "the losses other names."
        )


def _check_view(view: View | None, backbone: keras.Model) -> None:
    if view is None:
        return
    shape = backbone.input_shape
    expected = shape[1:] if isinstance(shape, tuple) else shape
    if (*view.size, view.channels) != expected:
        raise ValueError(
            "`view` of MetricModel must have the size and channels of its "
            f"backbone's input. Received: view={view}, input {expected}. "
            "Use View((height, width), channels, …), or leave it out where "
            "the input is no image."
        )
