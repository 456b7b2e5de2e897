"""Losses on embeddings, as classes and as pure functions.

Open first: `_contrastive`, a whole loss in a few lines, then `pair_loss` and
`proxy_loss`, from which most are derived, and `base` for the rules that all
share. `pairs` computes masks and distances of the pairs in a batch, `mining`
selects pairs, `reductions` averages over them, and `combined` has `get` and
sums of losses.

Imports: `utils`, and the memory of `layers`.

Also known as:
    - pytorch-metric-learning: `reducers`, the argument `reduction` of a loss.
"""

from typing import TYPE_CHECKING

from keras_dml.losses import distances, mining, regularizers
from keras_dml.losses._all_pairs import (
    CircleLoss,
    LiftedStructureLoss,
    MultiSimilarityLoss,
    RankedListLoss,
)
from keras_dml.losses._angular import AngularLoss
from keras_dml.losses._angular_margins import (
    DynamicArcFaceLoss,
    P2SGradLoss,
    SphereFaceLoss,
    SubCenterArcFaceLoss,
)
from keras_dml.losses._contrastive import BinomialDevianceLoss, ContrastiveLoss
from keras_dml.losses._cross_batch_memory import CrossBatchMemory
from keras_dml.losses._hist import HISTLoss
from keras_dml.losses._histogram import FastAPLoss, HistogramLoss
from keras_dml.losses._hyperbolic import (
    HyperbolicContrastiveLoss,
    poincare_distance,
)
from keras_dml.losses._margin import MarginLoss
from keras_dml.losses._matryoshka import MatryoshkaLoss
from keras_dml.losses._nce import nce
from keras_dml.losses._neighbors import (
    DecoupledContrastiveLoss,
    InstanceLoss,
    NCALoss,
)
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
from keras_dml.losses._ranking import PNPLoss, RecallAtKLoss, SmoothAPLoss
from keras_dml.losses._redundancy import BarlowTwinsLoss, VICRegLoss
from keras_dml.losses._softmax import (
    MultiSupConLoss,
    NPairLoss,
    NTXentLoss,
    SupConLoss,
)
from keras_dml.losses._triplet import (
    DynamicSoftMarginLoss,
    SelectivelyContrastiveLoss,
    TripletLoss,
)
from keras_dml.losses._tuplet import IntraPairVarianceLoss, TupletMarginLoss
from keras_dml.losses.base import COMPOSITES, LOSSES, LossLike, MetricLoss
from keras_dml.losses.combined import (
    FunctionLoss,
    WeightedSum,
    functional,
    get,
)
from keras_dml.losses.composite import CompositeLoss
from keras_dml.losses.labels import relations
from keras_dml.losses.pair_loss import PairLoss
from keras_dml.losses.pairs import (
    Batch,
    Pairs,
    PairWeights,
    compare,
    pair_masks,
)
from keras_dml.losses.proxy_loss import ProxyLoss
from keras_dml.losses.reductions import REDUCTIONS, reduce_terms, sum_terms
from keras_dml.utils.registry import attribute_hints, import_modules

angular = functional("angular", AngularLoss)
arc_face = functional("arc_face", ArcFaceLoss)
barlow_twins = functional("barlow_twins", BarlowTwinsLoss)
binomial_deviance = functional("binomial_deviance", BinomialDevianceLoss)
circle = functional("circle", CircleLoss)
contrastive = functional("contrastive", ContrastiveLoss)
cos_face = functional("cos_face", CosFaceLoss)
decoupled_contrastive = functional(
    "decoupled_contrastive", DecoupledContrastiveLoss
)
fast_ap = functional("fast_ap", FastAPLoss)
histogram = functional("histogram", HistogramLoss)
hyperbolic = functional("hyperbolic", HyperbolicContrastiveLoss)
instance = functional("instance", InstanceLoss)
intra_pair_variance = functional("intra_pair_variance", IntraPairVarianceLoss)
lifted_structure = functional("lifted_structure", LiftedStructureLoss)
margin = functional("margin", MarginLoss)
multi_similarity = functional("multi_similarity", MultiSimilarityLoss)
nca = functional("nca", NCALoss)
normalized_softmax = functional("normalized_softmax", NormalizedSoftmaxLoss)
nt_xent = functional("nt_xent", NTXentLoss)
p2s_grad = functional("p2s_grad", P2SGradLoss)
pnp = functional("pnp", PNPLoss)
proxy_anchor = functional("proxy_anchor", ProxyAnchorLoss)
proxy_nca = functional("proxy_nca", ProxyNCALoss)
ranked_list = functional("ranked_list", RankedListLoss)
recall_at_k = functional("recall_at_k", RecallAtKLoss)
selectively_contrastive = functional(
    "selectively_contrastive", SelectivelyContrastiveLoss
)
smooth_ap = functional("smooth_ap", SmoothAPLoss)
soft_triple = functional("soft_triple", SoftTripleLoss)
sphere_face = functional("sphere_face", SphereFaceLoss)
sub_center_arc_face = functional("sub_center_arc_face", SubCenterArcFaceLoss)
sup_con = functional("sup_con", SupConLoss)
triplet = functional("triplet", TripletLoss)
tuplet_margin = functional("tuplet_margin", TupletMarginLoss)
vicreg = functional("vicreg", VICRegLoss)

import_modules(__name__)

# Losses that are not imported above become attributes, too.
globals().update({e.value.__name__: e.value for e in LOSSES.values()})

if not TYPE_CHECKING:
    __getattr__ = attribute_hints(__name__)


__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "BarlowTwinsLoss",
    "Batch",
    "BinomialDevianceLoss",
    "COMPOSITES",
    "CircleLoss",
    "CompositeLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "DecoupledContrastiveLoss",
    "DynamicArcFaceLoss",
    "DynamicSoftMarginLoss",
    "FastAPLoss",
    "FunctionLoss",
    "HISTLoss",
    "HistogramLoss",
    "HyperbolicContrastiveLoss",
    "InstanceLoss",
    "IntraPairVarianceLoss",
    "LOSSES",
    "LiftedStructureLoss",
    "LossLike",
    "MarginLoss",
    "MatryoshkaLoss",
    "MetricLoss",
    "MultiSimilarityLoss",
    "MultiSupConLoss",
    "NCALoss",
    "NPairLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "P2SGradLoss",
    "PNPLoss",
    "PairLoss",
    "PairWeights",
    "Pairs",
    "ProxyAnchorLoss",
    "ProxyLoss",
    "ProxyNCALoss",
    "REDUCTIONS",
    "RankedListLoss",
    "RecallAtKLoss",
    "SelectivelyContrastiveLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SubCenterArcFaceLoss",
    "SupConLoss",
    "TripletLoss",
    "TupletMarginLoss",
    "VICRegLoss",
    "WeightedSum",
    "angular",
    "arc_face",
    "barlow_twins",
    "binomial_deviance",
    "circle",
    "compare",
    "contrastive",
    "cos_face",
    "decoupled_contrastive",
    "distances",
    "fast_ap",
    "get",
    "histogram",
    "hyperbolic",
    "instance",
    "intra_pair_variance",
    "lifted_structure",
    "margin",
    "mining",
    "multi_similarity",
    "nca",
    "nce",
    "normalized_softmax",
    "nt_xent",
    "p2s_grad",
    "pair_masks",
    "pnp",
    "poincare_distance",
    "proxy_anchor",
    "proxy_nca",
    "ranked_list",
    "recall_at_k",
    "reduce_terms",
    "regularizers",
    "relations",
    "selectively_contrastive",
    "smooth_ap",
    "soft_triple",
    "sphere_face",
    "sub_center_arc_face",
    "sum_terms",
    "sup_con",
    "triplet",
    "tuplet_margin",
    "vicreg",
]
