"""Errors of constructors of losses, miners and functions."""

import math

import numpy as np
import pytest

from keras_dml import losses
from keras_dml.losses import distances, mining, regularizers
from tests.losses.oracle import batch

X = batch([0] * 8, dim=6).astype("float32")
PARTS = np.ones((3, 4, 5), "float32")
CLOSE = {"name": "squared", "power": 2}
REFUSED = [
    # By name and configuration.
    *(
        (lambda argument=argument: losses.get(argument), message)
        for argument, message in [
            ("marign", "Did you mean 'margin'"),
            ("multisimilarity", "Did you mean 'multi_similarity'"),
            ("zzz", "Known are: .*triplet"),
            ({"name": "margin", "betta": 1.1}, "Did you mean 'beta'"),
            (losses.TripletLoss, "`loss` must be"),
            (None, "`loss` must be"),
            (3, "`loss` must be"),
            ({"beta": 1.0}, "`loss` must be"),
            ({"contrastive": 1.0, "proxy_anchor": 0.5},
             "`num_classes` of loss 'proxy_anch"),
            ({"contrastiv": 1.0}, "`loss` must be.*mean 'contrastive'"),
            ({"triplet": 1.0, "nonsense": 2.0}, "no loss 'nonsense'"),
            ([], "must not be empty"),
            ({"triplet": {"weight": "lerned"}}, "`weights`.*'lerned'"),
            ({"a/b": {"name": "triplet"}}, "names of letters.*'a/b'"),
            ({"loss": {"name": "triplet"}}, "names of letters.*'loss'"),
        ]
    ),
    *(
        (lambda argument=argument: mining.get(argument), message)
        for argument, message in [
            ({"name": "distance_weighted", "cut_off": 0.4}, "mean 'cutoff'"),
            ("semi-hard", "Did you mean 'semihard'"),
            (None, "`mining` must be"),
            (3, "`mining` must be"),
            ({"beta": 1.0}, "`mining` must be"),
        ]
    ),
    (lambda: losses.CrossBatchMemory("proxy_anchor", size=8),
     "`num_classes` of loss 'proxy_anch"),
    (lambda: losses.CrossBatchMemory("dynamic_soft_margin", size=9),
     "a memory of its own"),
    # Distances, reductions, miners.
    (lambda: distances.get("manhattan"), "no distance 'manhattan'"),
    (lambda: losses.TripletLoss(distance=3), "`distance` must be a name"),
    (lambda: losses.TripletLoss(distance=CLOSE), "and takes no arguments"),
    (lambda: losses.TripletLoss(reduction="average"),
     "`reduction` of TripletLoss must be"),
    (lambda: losses.CircleLoss(distance="euclidean"),
     "CircleLoss must be a similarity"),
    (lambda: regularizers.divergence(PARTS, reduction="none"),
     "`reduction` of divergence"),
    (lambda: regularizers.diversity(PARTS, reduction="none"),
     "`reduction` of diversity"),
    (lambda: regularizers.correlation(PARTS[0], PARTS[1], "none"),
     "`reduction` of correlation"),
    *(
        (lambda bound=bound: mining.DistanceWeighted(**bound),
         "`cutoff` of DistanceWeighted")
        for bound in ({"cutoff": 0.0}, {"cutoff": 1.5}, {"max_distance": 0.4})
    ),
    (lambda: mining.Selection(positive="harder"), "`positive` of Selection"),
    (lambda: mining.Selection(negative="harder"), "`negative` of Selection"),
    # Arguments of one loss or function.
    (lambda: losses.ArcFaceLoss(3, margin=28.6), "use margin=0.4992"),
    (lambda: losses.SubCenterArcFaceLoss(3, margin=28.6), "margin=0.4992"),
    (lambda: losses.DynamicArcFaceLoss(3, [1, 2]), "Received: 2 counts"),
    (lambda: losses.DynamicArcFaceLoss(2, [1, 0]), "smallest of which is 0"),
    (lambda: losses.DynamicArcFaceLoss(2, [1, 9], b=3.0),
     "an angle in radians"),
    # At least two classes, and at most all.
    *(
        (lambda share=share: losses.ArcFaceLoss(10, class_share=share),
         "`class_share` of ArcFaceLoss must")
        for share in (0, -0.5, 1.5, 0.1, math.nan, "1e-1")
    ),
    (lambda: losses.HISTLoss(10, class_share=0.5),
     "`class_share` of HISTLoss must be 1"),
    (lambda: losses.FunctionLoss(3), "`function` of FunctionLoss must be"),
    *(
        (lambda sizes=sizes: losses.MatryoshkaLoss("triplet", **sizes)(
            np.arange(8) // 4, X), message)
        for sizes, message in [
            ({"dims": ()}, "`dims` of MatryoshkaLoss must not be empty"),
            ({"dims": (4, 2)}, r"must be ascending.*Use \(2, 4\)"),
            ({"dims": (0, 2)}, "`dims` of MatryoshkaLoss must be an integer"),
            ({"dims": (2, 4), "weights": (1,)}, "`weights` of MatryoshkaLoss"),
            ({"dims": (2, 4)}, r"must end with.* 6\..*dims=\(2, 4, 6\)"),
        ]
    ),
    (lambda: losses.RecallAtKLoss(()), "`k` of RecallAtKLoss must not be emp"),
    (lambda: losses.RecallAtKLoss((1, 2), (1,)), "or one for each k of"),
    (lambda: losses.nce(X, X, X, weighting="papers"), "`weighting` of nce"),
    (lambda: losses.nce(X, X, X, weighting="paper"), "`limit` of nce"),
    (lambda: losses.relations(X > 0, rule="some"), "`rule` of relations"),
    (lambda: losses.relations(X[:, 0] > 0), r"must be a matrix.*\(8,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_unfit_arguments_raise(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
