"""Losses on embeddings: pure functions, and thin classes over them."""

from keras_dml.losses import distances, mining, regularizers, tfa
from keras_dml.losses._angular import AngularLoss, angular
from keras_dml.losses._binomial_deviance import (
    BinomialDevianceLoss,
    binomial_deviance,
)
from keras_dml.losses._circle import CircleLoss, circle
from keras_dml.losses._contrastive import ContrastiveLoss, contrastive
from keras_dml.losses._fast_ap import FastAPLoss, fast_ap
from keras_dml.losses._get import get
from keras_dml.losses._histogram import HistogramLoss, histogram
from keras_dml.losses._lifted_structure import (
    LiftedStructureLoss,
    lifted_structure,
)
from keras_dml.losses._margin import MarginLoss, margin
from keras_dml.losses._multi_similarity import (
    MultiSimilarityLoss,
    multi_similarity,
)
from keras_dml.losses._nce import nce
from keras_dml.losses._normalized_softmax import (
    ArcFaceLoss,
    CosFaceLoss,
    NormalizedSoftmaxLoss,
    arc_face,
    cos_face,
    normalized_softmax,
)
from keras_dml.losses._nt_xent import NPairLoss, NTXentLoss, nt_xent
from keras_dml.losses._proxy_anchor import ProxyAnchorLoss, proxy_anchor
from keras_dml.losses._proxy_nca import ProxyNCALoss, proxy_nca
from keras_dml.losses._soft_triple import SoftTripleLoss, soft_triple
from keras_dml.losses._sup_con import SupConLoss, sup_con
from keras_dml.losses._triplet import TripletLoss, triplet
from keras_dml.losses.base import LOSSES, LossLike, MetricLoss
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import Pairs, PairWeights, compare, pair_masks
from keras_dml.losses.proxy_loss import ProxyLoss
from keras_dml.losses.reductions import reduce_terms, sum_terms
from keras_dml.utils.registry import import_modules

import_modules(__name__)

# A loss that has no line above is an attribute all the same.
globals().update({e.value.__name__: e.value for e in LOSSES.values()})

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
