"""MetricModel: backbone, head and objective, and the only train step.

It is one class and therefore one file; half of it is the signatures of Keras
methods.
"""

import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import keras

from keras_dml.data.view import View
from keras_dml.distribution.batches import rows_of_replicas
from keras_dml.distribution.strategies import strategy_of
from keras_dml.losses.base import METRIC
from keras_dml.losses.labels import Rule
from keras_dml.model.checks import (
    check_backend,
    check_compiled,
    check_momentum,
    check_shape,
    check_terms,
    check_view,
)
from keras_dml.model.embedding_model import EmbeddingModel
from keras_dml.model.fit_callbacks import (
    any_measures_embeddings,
    check_readers,
    measured_epochs_only,
    restores_state,
    resuming_fit,
    with_callback,
)
from keras_dml.model.fit_data import (
    FitData,
    named_errors,
    prepare_data,
    split_rows,
)
from keras_dml.model.head import Head
from keras_dml.model.head_start import (
    KINDS,
    HeadInit,
    class_vectors,
    fingerprint,
    needs_start,
    receive,
    start_head,
    training_batches,
)
from keras_dml.model.loss_weighting import LossWeighting, weights_with
from keras_dml.model.momentum import MomentumEncoder
from keras_dml.model.objective import Objective, check_objective
from keras_dml.model.replicas import (
    check_jit,
    check_one_worker,
    one_batch,
    prepare_for_replicas,
    replicate,
)
from keras_dml.model.update import (
    SampledRows,
    check_multipliers,
    exempt_loss_variables,
    restricted_update,
)
from keras_dml.model.warnings import NoticeCollapse, warn_model_of_pixels
from keras_dml.utils.arguments import Checked
from keras_dml.utils.serialization import deserialize_part, register
from keras_dml.utils.types import (
    Config,
    Count,
    HalfToWhole,
    NonNegativeInt,
    Share,
    Tensor,
    Tensors,
)

logger = logging.getLogger(__name__)

Gather: TypeAlias = Literal["replicas", "none"]


@register
class MetricModel(Checked, EmbeddingModel):
    """A Keras model from images to unit embeddings, ready for `fit`.

    `model(x)` and `model.predict(x)` return only the unit embedding. Training
    uses all outputs of the head: the objective turns them into named terms,
    `loss_weights` weight their sum, and the update changes the variables that
    the objective allows to change in this step.

    The logs have `loss`, and every term under its name; a single term
    "metric" only where the loss is not the same number, as it has another
    weight than 1, or a regularizer adds to it.

    Targets are a dict with `"label"` (and any other values that the sampler
    provides), as made by `keras_dml.data.pipeline`, or only the labels, (B,).

    Args:
        backbone: Model from images to features; see `keras_dml.backbones.get`.
        head: Layer from features to named outputs.
        objective: Layer from named outputs and targets to named terms, (B,).
        loss_weights: Weight of each term: a number, a `LearningRateSchedule`,
            or "learned"; see `LossWeighting`. The default is the relative
            weights of the losses if there are several, otherwise 1. Where the
            default is a schedule, a number scales it to end there.
        rate_multipliers: Learning-rate multiplier for every variable whose
            path matches a regular expression; the first match counts:
            `{"backbone": 0.1, "/loss/": 100.0}`. Variables that a loss owns
            match "/loss/" (β is `objective/loss/beta`); they have no weight
            decay unless `decay_loss_variables` is set. Learned weights of
            terms are `weighting/loss_weights_{term}`. Other paths start with
            "backbone/", "head/" or "objective/".
        decay_loss_variables: Whether the optimizer's weight decay also applies
            to the variables that losses own.
        view: How evaluation, clustering and export prepare an image: a
            `keras_dml.data.View` with the size and channels of the backbone's
            input. By default, images are resized no more than the input
            requires.
        ema_momentum: μ of the `MomentumEncoder` that embeds the second view of
            an image, for objectives that compare two views. None for no
            momentum encoder.
        copy_statistics: See `MomentumEncoder`.
        momentum_scale: `scale` of the `MomentumEncoder`: 0.5 embeds second
            views at half their height and width.
        relation_rule: See `Objective`; replaces that of the objective. None
            keeps it.
        gather: What an example is compared with under a `tf.distribute`
            strategy with several replicas: "replicas" compares the examples of
            all replicas, which together compute the same result as a single
            replica would and share the statistics of batch normalization;
            "none" compares only the examples of the same replica.
        accumulate: Number of parts in which a batch is embedded one after the
            other, if embedding it whole needs too much memory. Loss and
            gradients are those of the whole batch; see `PartsOfBatch`. Each
            part is embedded twice, and batch normalization, unless frozen,
            uses the statistics of a part. With several replicas, each embeds
            its share in this number of parts, and moving statistics are
            averaged.
        head_init: How the last linear layers of the head start, in the first
            `fit`, if their weights are as they were built: from a projection of
            the features of at most 10,000 training examples, which keeps what a
            pretrained backbone knows of other classes. "pca" and "whitening"
            are the projections of `methods.whitening`; "auto" takes the better
            one on held-out classes where the backbone is trained, and otherwise
            "random", the initializers of the layers. The layers are those of
            `Head.linear_layers`. Class vectors of cosine classifiers then start
            at the means of their classes.
        freeze_steps: Number of updates at the beginning of training that change
            only head and loss, not the weights of the backbone. Statistics of
            batch normalization change unless they are frozen.
        **kwargs: Passed to `keras.Model`.

    Attributes:
        label_names: Names of classes by number, if `fit` was given labels that
            are strings. They are saved with the model.

    Call arguments:
        inputs: Images, (B, H, W, C), with pixels from 0 to 255.

    Returns:
        Unit embeddings, (B, D), float32.

    Example:
        ```python
        model = dml.MetricModel(
            dml.backbones.get("small_convnet", input_shape=(28, 28, 1)),
            dml.methods.EmbeddingHead(64),
            dml.methods.EmbeddingObjective("triplet"),
        )
        model.compile(keras.optimizers.Adam(1e-3))
        model.fit(images, labels, epochs=5)
        embeddings = model.predict(images)
        ```

    Also known as:
        - TF Similarity: `SimilarityModel` and `ContrastiveModel`, which any
          Keras model can be here, too.

    Raises:
        ValueError: If a loss weight does not name a term, the size or channels
            of the view differ from those of the backbone's input, or there is
            a `momentum_scale` without `ema_momentum`.
    """

    jit_compile: bool

    def __init__(
        self,
        backbone: keras.Model,
        head: Head,
        objective: Objective,
        loss_weights: dict[str, Any] | None = None,
        rate_multipliers: dict[str, float] | None = None,
        decay_loss_variables: bool = False,
        view: View | None = None,
        ema_momentum: Share | None = None,
        copy_statistics: bool = False,
        momentum_scale: HalfToWhole = 1.0,
        relation_rule: Rule | None = None,
        gather: Gather = "replicas",
        accumulate: Count = 1,
        freeze_steps: NonNegativeInt = 0,
        head_init: HeadInit = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, head, **kwargs)
        self.head_init = head_init
        self.built_head = fingerprint(head.weights)
        self.gather = gather
        self.accumulate = accumulate
        self.freeze_steps = freeze_steps
        self.objective = check_objective("MetricModel", "objective", objective)
        if relation_rule is not None:  # It is saved with the objective.
            objective.relation_rule = relation_rule
        self.rate_multipliers = dict(rate_multipliers or {})
        self.decay_loss_variables = decay_loss_variables
        self.view = view
        check_view(view, backbone)
        check_momentum(ema_momentum, momentum_scale)
        self.ema_momentum = ema_momentum
        self.copy_statistics = copy_statistics
        self.momentum_scale = momentum_scale
        self.momentum_encoder: MomentumEncoder | None = None
        check_terms(objective.terms)
        self.weighting = LossWeighting(
            objective.terms,
            weights_with(objective.term_weights, loss_weights),
            name="weighting",
        )
        self._build_parts()
        self.built_vectors = fingerprint(class_vectors(objective))
        self.sampled_rows = [
            SampledRows(v)
            for v in self.objective.trainable_variables
            if hasattr(v, "rows_a_step")
        ]
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.term_trackers = {
            name: keras.metrics.Mean(name=name)
            for name in objective.terms
            if not (name == METRIC and self._is_plain_loss())
        }
        self.apply_update: Any = None  # Made with the train function.
        self._has_logged = False
        self._resumer: Any = None  # Takes the iterator of `fit`.
        self.label_names: Mapping[int, str] = {}
        self._label_ranks: dict[str, int | None] = {}

    def _build_parts(self) -> None:
        # Everything is built here, before any optimizer: an optimizer
        # rejects variables that it has not seen.
        if not self.objective.built:
            shape = self.backbone.output_shape
            self.objective.build(self.head.compute_output_shape(shape))
        if self.ema_momentum is not None:
            self.momentum_encoder = MomentumEncoder(
                self.backbone,
                self.head,
                self.ema_momentum,
                self.copy_statistics,
                self.momentum_scale,
            )
        self.objective.built = True

    def _is_plain_loss(self) -> bool:
        """Whether the loss is the only term, unweighted and alone."""
        added = [v.regularizer for v in self.variables]
        added += [
            getattr(x, "activity_regularizer", None)
            for x in self._flatten_layers()
        ]
        return self.weighting.term_weights == {METRIC: 1.0} and not any(added)

    def outputs_of(
        self, inputs: Tensor | Tensors, training: bool = False
    ) -> Tensors:
        """Returns all outputs of the head by name, including `"embedding"`.

        For two views, `{"image": ..., "image2": ...}`, these are the outputs
        for the first view, and those of the momentum network for the second.
        """
        if not (isinstance(inputs, dict) and "image2" in inputs):
            return super().outputs_of(inputs, training=training)
        first = super().outputs_of(inputs["image"], training=training)
        if self.momentum_encoder is None:
            return first
        return {**first, **self.momentum_encoder(inputs["image2"])}

    def compile(self, optimizer: Any = "adam", **kwargs: Any) -> None:
        """Configures training, as `keras.Model.compile` does.

        Args:
            optimizer: A Keras optimizer or its name.
            **kwargs: See `keras.Model.compile`, except for losses, which
                belong to the objective. `metrics` are Keras metrics or
                functions of labels and embeddings. Each is logged per batch,
                whereas `callbacks.RetrievalEvaluation` measures a whole set.

        Raises:
            ValueError: If `loss` or `loss_weights` is given, a metric is given
                by name, or a pattern of `rate_multipliers` matches no
                variable.
            RuntimeError: If the backend is neither TensorFlow nor JAX.
        """
        check_backend()
        check_multipliers(self)
        check_compiled(kwargs)
        optimizer = keras.optimizers.get(optimizer)
        if not self.decay_loss_variables and not optimizer.built:
            exempt_loss_variables(optimizer, self._updated_variables())
        super().compile(optimizer=optimizer, **kwargs)
        check_jit(self)
        self.apply_update = None

    def compile_from_config(self, config: Config) -> None:
        if keras.backend.backend() not in ("tensorflow", "jax"):
            return  # It can embed; `fit` raises the error.
        config = keras.saving.deserialize_keras_object(config)
        # What was trained can be loaded, whatever its patterns.
        patterns, self.rate_multipliers = self.rate_multipliers, {}
        self.compile(**config)
        self.rate_multipliers = patterns

    def load_own_variables(self, store: Any) -> None:
        # Keras loads the optimizer next, and skips one that has no slots.
        self._build_optimizer()
        super().load_own_variables(store)

    def _build_optimizer(self) -> None:
        """Creates the optimizer's slots for all that is trainable by then."""
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            with strategy_of(self).scope():
                optimizer.build(self._updated_variables())

    def _updated_variables(self) -> list[keras.Variable]:
        """The variables that an optimizer is built for."""
        rows = [sampled.rows for sampled in self.sampled_rows]
        return [*self.trainable_variables, *rows]

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        balanced: bool | None = None,
    ) -> Any:
        """Trains the model; see `keras.Model.fit`.

        Arrays are trained on in class-balanced batches of `batch_size`
        examples, 32 by default, with up to four examples per class. Validation
        data also come in class-balanced batches, the same after every epoch,
        so that the training and validation losses can be compared. A
        `tf.data.Dataset` keeps the order that its sampler planned.

        Args:
            x: Inputs; or batches (x, y) from `keras_dml.data.pipeline`,
                another `tf.data.Dataset`, a generator or a `PyDataset`.
            y: Class ids of arrays, (N,) or (N, 1), integers or strings; or
                several labels per example, (N, C) booleans or N sets.
            batch_size: Number of examples per batch of arrays.
            epochs: See `keras.Model.fit`.
            verbose: See `keras.Model.fit`.
            callbacks: See `keras.Model.fit`.
            validation_split: Share of the rows of arrays to hold out, taken
                from the end: whole classes if rows are sorted by class.
            validation_data: (x, y) or batches. The terms of the objective on
                them are logged as `val_loss` and so on.
            shuffle: False keeps arrays in their order, in plain batches.
            class_weight: Weight of each class in the loss, by class id.
            sample_weight: Weights of the examples in arrays, (N,).
            initial_epoch: See `keras.Model.fit`.
            steps_per_epoch: See `keras.Model.fit`; not for batches planned by
                a sampler.
            validation_steps: See `keras.Model.fit`.
            validation_batch_size: See `keras.Model.fit`.
            validation_freq: See `keras.Model.fit`.
            balanced: Whether batches of arrays are class-balanced. By default
                they are if some class has two examples and `shuffle` is on.

        Returns:
            A `keras.callbacks.History`, as `keras.Model.fit` does.

        Raises:
            ValueError: If labels are not class ids, or are out of range for a
                loss that has a weight per class; if inputs are not batched; if
                `steps_per_epoch` is given with a pipeline.
        """
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = split_rows(
                (x, y, sample_weight), validation_split
            )
        is_validated = validation_data is not None
        check_readers(self, callbacks, is_validated)
        readers = measured_epochs_only(self, callbacks, is_validated)
        balanced = balanced if shuffle else False
        data = prepare_data(
            self, "fit", (x, y, sample_weight), batch_size, steps_per_epoch,
            balanced, shuffle, class_weight,
        )  # fmt: skip
        self.label_names = data.names or self.label_names
        self._trace_anew(data)
        self._log_balancing(data, verbose)
        if not any_measures_embeddings(callbacks):
            watch = NoticeCollapse(self, data.checks)
            callbacks = with_callback(watch, callbacks)
        if not restores_state(callbacks) and needs_start(self):
            with named_errors(self):
                self.start_head(x, y)
        self._initial_epoch = None  # It may be of an earlier `fit`.
        resumer = resuming_fit(
            self, data, callbacks, initial_epoch, shuffle, class_weight,
            sample_weight, verbose=verbose, epochs=epochs, steps=None,
        )  # fmt: skip
        held_out = FitData(None)
        if is_validated:
            held_out = self._held_out(
                validation_data, validation_batch_size or batch_size,
                validation_steps, balanced,
            )  # fmt: skip
        # The order of a dataset is its sampler's, or the user's.
        shuffle = shuffle and data.y is not None
        data = replicate(self, data, shuffle)
        with named_errors(self, data, held_out), readers, resumer as callbacks:
            return super().fit(
                x=data.x,
                y=data.y,
                batch_size=data.batch_size,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_data=held_out[:3] if is_validated else None,
                shuffle=shuffle,
                sample_weight=data.sample_weight,
                initial_epoch=initial_epoch,
                steps_per_epoch=data.steps,
                validation_steps=held_out.steps,
                validation_batch_size=held_out.batch_size,
                validation_freq=validation_freq,
            )

    def start_head(self, x: Any, y: Any = None) -> None:
        """Starts the head from projected features; see `head_init`.

        The first `fit` does so by itself. After this, it does not.

        Args:
            x: As for `fit`; or examples with labels, such as an `ImageSet`.
            y: As for `fit`.
        """
        batches = training_batches(self, x, y)
        if batches is not None:
            received = partial(receive, self, batches)
            start_head(self, received, KINDS[self.head_init])
            return
        logger.warning(
            "The head starts at random: its start requires reading the data "
            "once before training. For a start from features, fit arrays, a "
            "tf.data.Dataset or a PyDataset."
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        balanced: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Computes the terms on held-out batches; see `keras.Model.evaluate`.

        The model is left unchanged. Arrays come in class-balanced batches,
        always the same. To measure retrieval, use
        `keras_dml.evaluation.evaluate(model, examples)`.

        Args:
            x: See `fit`.
            y: See `fit`.
            batch_size: Number of examples per batch of arrays.
            verbose: See `keras.Model.evaluate`.
            sample_weight: Weights of the examples in arrays, (N,).
            steps: See `keras.Model.evaluate`.
            callbacks: See `keras.Model.evaluate`.
            return_dict: See `keras.Model.evaluate`.
            balanced: See `fit`.
            **kwargs: See `keras.Model.evaluate`.

        Raises:
            ValueError: See `fit`; also if the loss has a weight per class and
                a label is outside these classes.
        """
        if kwargs:  # Keras calls in `fit`, whose data are prepared.
            return super().evaluate(
                x, y, batch_size, verbose, sample_weight, steps, callbacks,
                return_dict, **kwargs,
            )  # fmt: skip
        data = self._held_out(
            (x, y, sample_weight), batch_size, steps, balanced
        )
        with named_errors(self, data):
            return super().evaluate(
                data.x, data.y, data.batch_size, verbose,
                data.sample_weight, data.steps, callbacks, return_dict,
            )  # fmt: skip

    def _held_out(self, data: Any, *how: Any) -> FitData:
        held_out = prepare_data(self, "evaluate", data, *how)
        self._trace_anew(held_out)
        return replicate(self, held_out)

    def _trace_anew(self, data: FitData) -> None:
        """Forgets a step that was traced for labels of another rank.

        TensorFlow would trace it again for labels of any rank, of which
        nothing can be computed.
        """
        use, rank = data.checks.use, data.checks.label_rank
        if rank and self._label_ranks.setdefault(use, rank) != rank:
            self._label_ranks[use] = rank
            if use == "fit":
                self.train_function = None
            else:
                self.test_function = None

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Returns embeddings, (N, D); see `keras.Model.predict`.

        Raises:
            ValueError: With several workers; `evaluation.embed` works there,
                on each worker separately.
        """
        check_one_worker(self, "predict")
        check_shape(self.input_shape, x, "MetricModel.predict")
        warn_model_of_pixels(self, x, "MetricModel.predict")
        data = FitData(x, batch_size=batch_size, steps=steps)
        data = replicate(self, data)
        with named_errors(self):
            return super().predict(
                data.x, data.batch_size, verbose, data.steps, callbacks
            )

    def predict_on_batch(self, x: Any) -> Any:
        """Returns the embeddings of a batch, (B, D).

        See `keras.Model.predict_on_batch`.
        """
        check_one_worker(self, "predict_on_batch")
        x = rows_of_replicas(x, strategy_of(self))
        return super().predict_on_batch(x)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
        return_dict: bool = False,
    ) -> Any:
        """Performs one update on a batch; see `keras.Model.train_on_batch`."""
        batch = one_batch(self, "fit", (x, y, sample_weight), class_weight)
        return super().train_on_batch(*batch, return_dict=return_dict)

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """Computes the terms on a batch; see `keras.Model.test_on_batch`."""
        batch = one_batch(self, "evaluate", (x, y, sample_weight))
        return super().test_on_batch(*batch, return_dict=return_dict)

    def _log_balancing(self, data: FitData, verbose: Any) -> None:
        """Logs once that arrays come in balanced batches."""
        sampler = data.sampler
        is_logged = self._has_logged or not verbose
        if not data.is_balanced or is_logged or sampler is None:
            return
        self._has_logged = True
        logger.warning(
            "fit draws class-balanced batches from your arrays: %s examples, "
            "%s steps of %d per epoch. Use balanced=False for random batches.",
            f"{len(sampler.labels):,}",
            f"{sampler.steps:,}",
            sampler.batch_size,
        )

    def _symbolic_build(
        self, iterator: Any = None, data_batch: Any = None
    ) -> None:
        """Does nothing: the constructor builds the model."""
        metrics = self._compile_metrics
        if metrics is not None and not metrics.built:
            # A graph of replicas or of XLA cannot create their variables.
            with strategy_of(self).scope():
                metrics.build(keras.KerasTensor((None,), "int64"), self.output)
        if self._resumer is not None:  # It may begin within an epoch.
            self._resumer.take_iterator(iterator)

    def _get_jax_state(self, **kinds: bool) -> tuple[list[Tensor], ...]:
        """The values that a step takes, kept in case it fails.

        Keras removes them from the variables until the first step returns.
        """
        state: tuple[list[Tensor], ...] = super()._get_jax_state(**kinds)
        self._jax_state = dict(zip(kinds, state, strict=False))
        return state

    _maybe_symbolic_build = _symbolic_build  # As TensorFlow's trainer calls it.

    def make_train_function(self, force: bool = False) -> None:
        if self.apply_update is None or force:
            self._prepare_objective()
            prepare_for_replicas(self)
            self.apply_update = restricted_update(self)
        super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> None:
        self._prepare_objective()
        super().make_test_function(force)

    def _prepare_objective(self) -> None:
        with strategy_of(self).scope():
            self.objective.prepare()

    def train_step(self, *args: Any) -> Any:
        """An update, by a batch; on JAX, by the state and a batch."""
        return self._step.train(self, *args)

    def test_step(self, *args: Any) -> Any:
        """The terms of a batch; on JAX, of the state and a batch."""
        return self._step.test(self, *args)

    @property
    def _step(self) -> Any:
        if keras.backend.backend() == "jax":
            from keras_dml.model import jax_step

            return jax_step
        from keras_dml.model import tensorflow_step

        return tensorflow_step

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        trackers = [self.loss_tracker, *self.term_trackers.values()]
        # Keras has a mean of its own for a loss from `compile`.
        rest = [m for m in super().metrics if m.name != "loss"]
        return trackers + [m for m in rest if all(m is not x for x in trackers)]

    def get_config(self) -> Config:
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "dtype": serialize(self.dtype_policy),
            "backbone": serialize(self.backbone),
            "head": serialize(self.head),
            "objective": serialize(self.objective),
            "loss_weights": {
                name: serialize(weight)
                for name, weight in self.weighting.term_weights.items()
            },
            "rate_multipliers": self.rate_multipliers,
            "decay_loss_variables": self.decay_loss_variables,
            "view": serialize(self.view),
            "ema_momentum": self.ema_momentum,
            "copy_statistics": self.copy_statistics,
            "momentum_scale": self.momentum_scale,
            "gather": self.gather,
            "accumulate": self.accumulate,
            "freeze_steps": self.freeze_steps,
            "head_init": self.head_init,
            # Pairs, as keys of JSON would be strings.
            "label_names": [[k, v] for k, v in self.label_names.items()],
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: Any = None
    ) -> "MetricModel":
        config = dict(config)
        names = config.pop("label_names", [])
        # A default name is replaced: a model cannot contain two of one name.
        if re.fullmatch(r"metric_model(_\d+)?", config["name"]):
            del config["name"]
        restored = {
            key: deserialize_part(key, value, custom_objects)
            for key, value in config.items()
            if key != "name"
        }
        model = cls(**{**config, **restored})
        model.label_names = dict(names)
        return model
