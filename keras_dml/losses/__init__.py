"""Losses on embeddings: pure functions, and thin classes over them."""

from keras_dml.losses import distances, mining, regularizers, tfa
from keras_dml.losses.angular import AngularLoss, angular
from keras_dml.losses.base import MetricLoss
from keras_dml.losses.binomial_deviance import (
    BinomialDevianceLoss,
    binomial_deviance,
)
from keras_dml.losses.circle import CircleLoss, circle
from keras_dml.losses.contrastive import ContrastiveLoss, contrastive
from keras_dml.losses.fast_ap import FastAPLoss, fast_ap
from keras_dml.losses.get import LOSSES, get
from keras_dml.losses.histogram import HistogramLoss, histogram
from keras_dml.losses.lifted_structure import (
    LiftedStructureLoss,
    lifted_structure,
)
from keras_dml.losses.margin import MarginLoss, margin
from keras_dml.losses.multi_similarity import (
    MultiSimilarityLoss,
    multi_similarity,
)
from keras_dml.losses.nce import nce
from keras_dml.losses.normalized_softmax import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
    arc_face,
    cos_face,
    normalized_softmax,
)
from keras_dml.losses.nt_xent import NPairLoss, NTXentLoss, nt_xent
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import pair_masks
from keras_dml.losses.proxy_anchor import ProxyAnchorLoss, proxy_anchor
from keras_dml.losses.proxy_loss import ProxyLoss
from keras_dml.losses.proxy_nca import ProxyNCALoss, proxy_nca
from keras_dml.losses.soft_triple import SoftTripleLoss, soft_triple
from keras_dml.losses.sup_con import SupConLoss, sup_con
from keras_dml.losses.triplet import TripletLoss, triplet

__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "BinomialDevianceLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "FastAPLoss",
    "HistogramLoss",
    "LOSSES",
    "LiftedStructureLoss",
    "MarginLoss",
    "MetricLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "PairLoss",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "SoftTripleLoss",
    "SupConLoss",
    "TripletLoss",
    "angular",
    "arc_face",
    "binomial_deviance",
    "circle",
    "contrastive",
    "cos_face",
    "distances",
    "fast_ap",
    "get",
    "histogram",
    "lifted_structure",
    "margin",
    "mining",
    "multi_similarity",
    "nce",
    "normalized_softmax",
    "nt_xent",
    "pair_masks",
    "proxy_anchor",
    "proxy_nca",
    "regularizers",
    "soft_triple",
    "sup_con",
    "tfa",
    "triplet",
]
