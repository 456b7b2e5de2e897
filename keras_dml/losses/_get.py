"""Losses by name."""

from typing import Any

import keras

from keras_dml.losses._angular import AngularLoss
from keras_dml.losses._binomial_deviance import BinomialDevianceLoss
from keras_dml.losses._circle import CircleLoss
from keras_dml.losses._contrastive import ContrastiveLoss
from keras_dml.losses._fast_ap import FastAPLoss
from keras_dml.losses._histogram import HistogramLoss
from keras_dml.losses._lifted_structure import LiftedStructureLoss
from keras_dml.losses._margin import MarginLoss
from keras_dml.losses._multi_similarity import MultiSimilarityLoss
from keras_dml.losses._normalized_softmax import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
)
from keras_dml.losses._nt_xent import NPairLoss, NTXentLoss
from keras_dml.losses._proxy_anchor import ProxyAnchorLoss
from keras_dml.losses._proxy_nca import ProxyNCALoss
from keras_dml.losses._soft_triple import SoftTripleLoss
from keras_dml.losses._sup_con import SupConLoss
from keras_dml.losses._triplet import TripletLoss
from keras_dml.losses.base import MetricLoss, argument_names
from keras_dml.utils.lookup import from_name

LOSSES: dict[str, type[MetricLoss]] = {
    "angular": AngularLoss,
    "arc_face": ArcFaceLoss,
    "binomial_deviance": BinomialDevianceLoss,
    "circle": CircleLoss,
    "contrastive": ContrastiveLoss,
    "cos_face": CosFaceLoss,
    "fast_ap": FastAPLoss,
    "histogram": HistogramLoss,
    "lifted_structure": LiftedStructureLoss,
    "margin": MarginLoss,
    "multi_similarity": MultiSimilarityLoss,
    "n_pair": NPairLoss,
    "normalized_softmax": NormalizedSoftmaxLoss,
    "nt_xent": NTXentLoss,
    "proxy_anchor": ProxyAnchorLoss,
    "proxy_nca": ProxyNCALoss,
    "soft_triple": SoftTripleLoss,
    "sup_con": SupConLoss,
    "triplet": TripletLoss,
}
"""Every loss by the name that `get` and recipes take."""


def get(identifier: Any) -> MetricLoss:
    """The loss that `identifier` stands for.

    Args:
        identifier: A loss; a name in `LOSSES`; a dict with such a name and
            arguments, `{"name": "margin", "beta": 1.1}`; or a loss as
            serialized by Keras.

    Raises:
        ValueError: If there is no such loss or argument; the error names
            the nearest known one.
    """
    if isinstance(identifier, MetricLoss):
        return identifier
    if isinstance(identifier, str):
        identifier = {"name": identifier}
    if isinstance(identifier, dict) and "class_name" in identifier:
        return get(keras.saving.deserialize_keras_object(identifier))
    if isinstance(identifier, dict) and "name" in identifier:
        return from_name(
            "loss",
            identifier,
            LOSSES,
            lambda name: argument_names(LOSSES[name]),
        )
    raise ValueError(
        "`loss` must be a loss of `keras_dml.losses`, its name, or a dict "
        f"with its name and arguments. Received: loss={identifier!r}. Use "
        f"one of {tuple(LOSSES)}."
    )
