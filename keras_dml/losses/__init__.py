"""Losses on embeddings: classes, and the pure function of each."""

from keras_dml.losses import distances, mining, regularizers, tfa
from keras_dml.losses._all_pairs import (
    CircleLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
)
from keras_dml.losses._angular import AngularLoss
from keras_dml.losses._contrastive import BinomialDevianceLoss, ContrastiveLoss
from keras_dml.losses._functional import functional
from keras_dml.losses._histogram import FastAPLoss, HistogramLoss
from keras_dml.losses._margin import MarginLoss
from keras_dml.losses._nce import nce
from keras_dml.losses._normalized_softmax import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
)
from keras_dml.losses._proxies import (
    ProxyAnchorLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)
from keras_dml.losses._softmax import NPairLoss, NTXentLoss, SupConLoss
from keras_dml.losses._triplet import TripletLoss
from keras_dml.losses.base import LOSSES, LossLike, MetricLoss, get
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import (
    Batch,
    Pairs,
    PairWeights,
    compare,
    pair_masks,
)
from keras_dml.losses.proxy_loss import ProxyLoss
from keras_dml.losses.reductions import reduce_terms, sum_terms
from keras_dml.utils.registry import import_modules

angular = functional("angular", AngularLoss)
arc_face = functional("arc_face", ArcFaceLoss)
binomial_deviance = functional("binomial_deviance", BinomialDevianceLoss)
circle = functional("circle", CircleLoss)
contrastive = functional("contrastive", ContrastiveLoss)
cos_face = functional("cos_face", CosFaceLoss)
fast_ap = functional("fast_ap", FastAPLoss)
histogram = functional("histogram", HistogramLoss)
lifted_structure = functional("lifted_structure", LiftedStructureLoss)
margin = functional("margin", MarginLoss)
multi_similarity = functional("multi_similarity", MultiSimilarityLoss)
normalized_softmax = functional("normalized_softmax", NormalizedSoftmaxLoss)
nt_xent = functional("nt_xent", NTXentLoss)
proxy_anchor = functional("proxy_anchor", ProxyAnchorLoss)
proxy_nca = functional("proxy_nca", ProxyNCALoss)
soft_triple = functional("soft_triple", SoftTripleLoss)
sup_con = functional("sup_con", SupConLoss)
triplet = functional("triplet", TripletLoss)

import_modules(__name__)

# A loss that has no line above is an attribute all the same.
globals().update({e.value.__name__: e.value for e in LOSSES.values()})

__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "Batch",
    "BinomialDevianceLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "FastAPLoss",
    "HistogramLoss",
    "LOSSES",
    "LiftedStructureLoss",
    "LossLike",
    "MarginLoss",
    "MetricLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "PairLoss",
    "PairWeights",
    "Pairs",
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
    "compare",
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
    "reduce_terms",
    "regularizers",
    "soft_triple",
    "sum_terms",
    "sup_con",
    "tfa",
    "triplet",
]
