"""Unfit arguments of every method."""

import re
from typing import Any

import pytest

from keras_dml import backbones, methods

PROXIES = {"name": "proxy_nca", "num_classes": 4}
WHOLE = {"split_embedding": False}
GIVEN: dict[str, dict[str, Any]] = {
    "abe": {
        "num_learners": 3, "branch": "relu_0", "attention_end": "relu_1",
    },
    "dcml": {"num_learners": 3, "num_compositors": 4},
    "diva": {"auxiliary_loss": "triplet", "queue_size": 30, "psi_units": 8},
    "dreml": {"num_classes": 40, "num_learners": 3, "loss": None},
    "ensemble": {"num_learners": 2, "embedding_dim": 6, "loss": PROXIES},
    "hdc": {"branches": ["relu_0", "relu_1"], "hard_shares": (1, 0.5, 0.2)},
}  # fmt: skip
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("abe", {"variant": "ensemble"}, "`variant` of abe.*variant='ensemble'"),
    ("abe", {"pairs": "some"}, "`pairs` of abe.*pairs='some'"),
    ("abe", {"num_learners": 5}, "divisible by `num_learners`, 5"),
    ("abe", {"branch": "relu0"}, "There is no layer 'relu0'.*mean 'relu_0'"),
    ("abe", {"pooling": "sum"}, "`pooling`.*pooling='sum'"),
    ("attentive_grouping", {"grouping": "B"}, "`grouping`.*one of.*ing='B'"),
    ("attentive_grouping", {"grouping": "N", "num_groups": 2},
     'num_groups=2. Use "M"'),
    ("attentive_grouping", {"grouping": "G", "key_dim": 3},
     "key_dim=3, grouping='G'"),
    ("attentive_grouping", {"scales": "printed"}, "`scales`.*='printed'"),
    ("attentive_grouping", {"diversity_reduction": "max"},
     "`diversity_reduction`.*'max'"),
    ("attentive_grouping", {"num_groups": 0},
     "`num_groups` of attentive_grouping.*num_groups=0"),
    ("baseline", {"loss_input": "raw"}, "`loss_input` of baseline must be"),
    ("bier", {"slope": "steep"}, "`slope` of bier"),
    ("bier", {"independence": "none"}, "`independence` of bier"),
    ("bier", {"embedding_dim": 8, "group_sizes": (1, 100)},
     "`group_sizes` of bier"),
    ("bier", {"group_sizes": ()}, "`group_sizes` of bier"),
    *(
        ("bier", {"loss": loss}, "`loss` of bier must be computed from p")
        for loss in (
            PROXIES,
            {"name": "cross_batch_memory", "loss": "contrastive", "size": 8},
            ["contrastive", PROXIES],
        )
    ),
    ("dcml", {"num_learners": 5}, "divisible by `num_learners`, 5.*=10 or 15"),
    ("dcml", {"num_learners": 0}, "`num_learners` of dcml.*num_learners=0"),
    ("dcml", {"num_compositors": -1}, "num_compositors=-1"),
    ("dcml", {"tasks": "cluster"}, '"metric", "clusters".*tasks=\'cluster\''),
    ("distillation", {"relation": "angles"}, "`relation` of distillation"),
    ("distillation", {"relation": []}, "`relation` of distillation"),
    ("diva", {"tasks": ["dicriminative"]}, "`tasks` of diva.*'dicriminative'"),
    ("diva", {"tasks": []}, "`tasks` of diva"),
    ("diva", {"shared": "loose"}, "`shared` of diva.*'loose'"),
    ("diva", {"embedding_dim": 3}, "diva .* tasks, 4.*Use embedding_dim=4"),
    ("diva", {"auxiliary_loss": "fast_ap"}, 'must accept `mining`.*"shared"'),
    ("diva", {"test_weights": [1, 1]}, "`test_weights` of diva"),
    ("diva", {"test_weights": [0, 0, 0, 0]}, "`test_weights` of diva"),
    ("diva", {"test_weights": [1, 1, 1, -1]}, "`test_weights` of diva"),
    ("divide_and_conquer", {**WHOLE, "num_learners": 4},
     "Received: num_learners=4. Omit `num_le"),
    ("divide_and_conquer", {**WHOLE, "update": "active"},
     "Received: update='active'. Omit `update`"),
    ("divide_and_conquer", {**WHOLE, "num_learners": 2, "update": "all"},
     "`num_learners` and `update`;"),
    ("divide_and_conquer", {**WHOLE, "merged_start": "learned"},
     "Omit `merged_start`"),
    ("divide_and_conquer", {"merged_start": "mean"},
     "`merged_start` of divide_and_conq"),
    ("divide_and_conquer", {"update": "some"}, "`update`.*update='some'"),
    ("dreml", {"num_classes": "auto"}, "only recipes can resolve"),
    ("dreml", {"num_meta_classes": 5}, "num_meta_classes=5 for 4"),
    ("dreml", {"num_classes": 3, "num_meta_classes": 4}, "num_classes"),
    ("ensemble", {"num_learners": 4},
     "divisible by `num_learners`, 4.*=4 or 8"),
    ("ensemble", {"start": "zero"}, "start"),
    *(
        ("ensemble", {"start": "same", **more}, "only for several backbones")
        for more in ({"shared_trunk": True}, {"num_learners": 1})
    ),
    ("hdc", {"embedding_dim": 2}, "hdc .* models, 3.*=2. Use embedding_dim=3"),
    ("hdc", {"hard_shares": (1.0, 0.5)}, "one more than the branches"),
    ("hdc", {"hard_shares": (1.0, 0.2, 0.5)}, "none larger"),
    ("hdc", {"hard_shares": (0.5, 0.5, 0.2)}, "1 for the first"),
    ("hdc", {"branches": ["relu_0", "relu_9"]}, "no layer 'relu_9'"),
    ("hdc", {"loss": PROXIES}, "computed from p"),
    ("mic", {"reduction": "max"}, "reduction"),
    *(
        ("s2sd", {"target_dims": dims}, "`target_dims` of s2sd")
        for dims in ((), (8, 0), (2.5,))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "message"), REFUSED)
def test_unfit_arguments_raise(name, arguments, message) -> None:
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 6, 8))
    options = {"embedding_dim": 12, "loss": "contrastive"}
    with pytest.raises(ValueError, match=message):
        methods.METHODS[name].value(
            backbone, **{**options, **GIVEN.get(name, {}), **arguments}
        )


@pytest.mark.parametrize("dim", [130, 131])
@pytest.mark.parametrize("name", [*methods.METHODS])
def test_embedding_has_the_asked_dimensions_or_an_error_names_others(
    name, dim
) -> None:
    """Otherwise the error names two that the method can have."""
    make = methods.METHODS[name].value
    more_arguments = {"num_classes": 40} if name == "dreml" else {}
    try:
        model = make(
            backbones.small_convnet((32, 32, 1)),
            embedding_dim=dim,
            **more_arguments,
        )
    except ValueError as error:
        match = re.search(
            r"divisible .* Use embedding_dim=(\d+) or (\d+)", str(error)
        )
        assert match, error
        for other in map(int, match.groups()):
            model = make(
                backbones.small_convnet((32, 32, 1)),
                embedding_dim=other,
                **more_arguments,
            )
            assert model.compute_output_shape((1, 32, 32, 1)) == (1, other)
        return
    assert model.compute_output_shape((1, 32, 32, 1)) == (1, dim)
