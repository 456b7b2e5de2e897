"""Errors of recipes name the wrong key."""

import os
from pathlib import Path

import pytest

from keras_dml.recipes import RecipeError, load, validate

GOOD = """
name: good
data: {name: glyphs}
method: {name: baseline, loss: contrastive}
"""
DECAY = "optimizer={name: adam, weight_decay: 0.1, decay: coupled}"


def write(path: Path, text: str = GOOD) -> Path:
    path.write_text(text)
    return path


def schedule(text: str) -> str:
    return f"optimizer.schedule={{{text}}}"


KEYS = [
    (["epoch=3"], "`epoch` is not a key of a recipe. Did you mean 'ep"),
    (["optimizer.learningrate=3"], "`optimizer.learningrate` is not a key of "
     "optimizer. Did you mean 'learning_rate'"),
    (["method.embeding_dim=3"], "`method.embeding_dim` is not a key of method. "
     "Did you mean 'embedding_dim'"),
    (["view.size=8"], "`view.size` is not a key of view"),
    (["data={name: sop, path: x, cropped: true}"], "`data.cropped` is not a k"),
    (["data={name: image_folder}"], "`data.path` is missing"),
    (["data={name: cub2000, path: x}"], "`data.name` must be one of .*cub200"),
    (["data={name: vehicleid, path: x, test: tiny}"], "`data.test`.*small"),
    (["data={name: image_folder, path: x, validation: 1}"],
     "`data.validation`.*less than 1"),
    (["method.name=dcmll"], "`method.name` must be one of .*'abe'.* Received: "
     "'dcmll'. Did you mean 'dcml'?"),
    ([schedule("name: step")], "`optimizer.schedule.name` must be one of "
     "'steps', 'cosine'. Received: 'step'. Did you mean 'steps'"),
    ([schedule("name: steps")], "`optimizer.schedule.epochs` is missing"),
    ([schedule("name: steps, epoch: [2]")], "schedule.epoch` is not a key of "
     "optimizer.schedule. Did you mean 'epochs'"),
]  # fmt: skip
"""Keys that are unknown or missing."""

VALUES = [
    (["epochs=many"], "`epochs`: .*integer.*'many'"),
    (["epochs=true"], "`epochs`: .*valid integer.*Received: 'true'"),
    (["epochs=1:30"], "`epochs`: .*valid integer.*Received: '1:30'"),
    (["epochs=.inf"], "`epochs`"),
    (["optimizer.learning_rate=on"], "`optimizer.learning_rate`: .*'true'"),
    (["optimizer.learning_rate=1:3.5"], "valid number.*'1:3.5'"),
    (["optimizer.learning_rate=.inf"], "finite number"),
    (["optimizer.learning_rate=.nan"], "finite number"),
    ([schedule("name: steps, epochs: [yes]")], "`optimizer.schedule.epochs.0`"),
    ([schedule("name: steps, epochs: []")], "epochs`.*least 1"),
    (["rate_multipliers={head: true}"], "`rate_multipliers.head`"),
    (["rate_multipliers={head: -2}"], "greater than or equal to 0"),
    (["rate_multipliers={'(': 2.0}"], "must be regular expressions"),
    (["backbone.freeze=1:1"], "`backbone.freeze`"),
    (["backbone.input_shape=[-1, 8, 3]"], "greater than or equal to 1"),
    (["augmentation.crop=centre"], "'random', 'random_resized' or 'center'"),
    (["augmentation.augment={random_hu: {}}"], "mean 'random_hue'"),
    (["evaluation.metrics=[recal@1]"], "`evaluation.metrics`: .*'recal@1'. "
     "Did you mean 'recall@1'"),
    *(([f"evaluation.{x}"], x.split("=")[0]) for x in (
        "protocol=offical", "distance=l2", "prefixes=[0]", "metrics=[ndcg@x]",
        "relevance=some", "levels=genus", "rerank=reciprocal",
        "rerank={name: k_reciprocal, k3: 1}",
    )),
    (["optimizer.name=adagard"], "an optimizer of Keras.*'adagrad'"),
    (["method.loss=margins"], "`method.loss`.*margin"),
    (["method.loss={name: margin, bta: 1}"], "`method.loss`.*bta"),
    (["method.loss=proxy_nca"], "`num_classes: auto` is how many"),
    (["method.loss={name: contrastive, num_classes: auto}"],
     "argument.*num_classes"),
    (["method.loss={name: margin, num_classes: auto}"], "`learn_beta`"),
    (["method.loss={name: proxy_nca, num_classes: all}"], "classes.*'all'"),
    *(([f"method.loss={{name: arc_face, num_classes: auto, class_share: {x}}}"],
       "class_share") for x in (0.0, 1e-9, 2.0)),
    (["method.loss={class_name: system, module: os, config: {}}"], "`loss` "
     "must be the config of an object that Keras can make"),
    (["method.loss={name: triplet, mining: {class_name: X,config: {}}}"],
     "`mining` must be the config"),
]  # fmt: skip
"""Values outside the type of their key."""

TOGETHER = [
    (["augmentation={crop: center, pad: 2}"], "`augmentation`: .*`pad` of "
     "Augment requires crop=\"random\""),
    (["augmentation.pad=9",
      "backbone={name: small_convnet, input_shape: [8, 9, 1]}"],
     "`augmentation`: .*less than the image's short side.*side 9"),
    (["batches={steps_per_epoch: 1000000, images_per_class: 300}"],
     "at most 268,435,456 images"),
    (["backbone={name: small_convnet, freeze: true}",
      "augmentation.flip=true"], "set `backbone.feature_views`"),
    (["epochs=3", "stop_after=4"], "`stop_after`: must be at most the 3 `ep"),
    (["optimizer.momentum=0.9"], "'adam' has no `momentum`; leave it out"),
    ([schedule("name: steps, epochs: [3, 2]")], "must ascend"),
    ([schedule("name: steps, epochs: [2, 2]")], "must ascend"),
    ([schedule("name: steps, epochs: [8]")], "`epochs`: .*after 8 epochs, when "
     "the run has ended.*Received: 8"),
    ([schedule("name: cosine, warmup: 8")], "`epochs`.*ended"),
    (["epochs=3", schedule("name: steps, epochs: [2, 5]")], "`epochs`: .*after "
     "5 epochs.*`optimizer.schedule` to null"),
    (["optimizer.decay=coupled"], "`optimizer.decay`.*which is not set"),
    (["optimizer={name: lion, weight_decay: 1, decay: coupled}"],
     "'lion' does not support coupled decay; use adam"),
    (["optimizer.decay_multipliers={head: 0.5}"], "require `decay: coup"),
    ([DECAY, "optimizer.decay_multipliers={'(': 1}"], "must be regular"),
    (["method={name: abe, pairs: constructed}"], "`method.*pair_batches: true"),
    (["method={name: diva}"], "num_views: 2"),
    (["method={name: diva, momentum_scale: 0.5, tasks: [shared, intra]}"],
     "requires a momentum network"),
    (["method={name: diva, auxiliary_loss: margn}"], "auxiliary_loss.*margin"),
]  # fmt: skip
"""Values that do not fit each other."""


@pytest.mark.parametrize(
    ("settings", "message"), [*KEYS, *VALUES, *TOGETHER], ids=str
)
def test_wrong_settings_raise(settings, message, tmp_path) -> None:
    with pytest.raises(RecipeError, match=message):
        load(write(tmp_path / "good.yaml"), settings)


def test_all_wrong_keys_are_listed(tmp_path) -> None:
    settings = ("epochz=3", "seed=-1", "method.loss=proxy_anchor")
    with pytest.raises(RecipeError) as error:
        load(write(tmp_path / "good.yaml"), settings)
    for message in ("'epochs'?", "`seed`", "`num_classes: auto`"):
        assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["epochs"], "key.key=value. Received: 'epochs'"),
        (["epochs=["], "not YAML"),
    ],
)
def test_unreadable_settings_raise(settings, message, tmp_path) -> None:
    with pytest.raises(RecipeError, match=message):
        load(write(tmp_path / "good.yaml"), settings)


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        *((x, False) for x in ("../x", "/etc/x", "a/b", "", ".", "-x", " a")),
        *((x, False) for x in ("a.", "a\nb", "a\x00b", "a:b", "x" * 101)),
        *((x, True) for x in ("Größe-2", "_x", "cars (2)", "margin, β=1.2")),
    ],
)
def test_name_must_be_a_valid_folder_name(name, is_valid) -> None:
    content = {"name": name, "data": {"name": "glyphs"}}
    content["method"] = {"name": "baseline"}
    if is_valid:
        assert validate(content, "it").name == name
        return
    with pytest.raises(RecipeError, match="`name`: must be a valid folder"):
        validate(content, "it")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("- a\n- b", "must be a mapping"),
        ("", "must be a mapping"),
        ("base: nowhere.yaml", "nowhere.yaml cannot be read"),
        ("base: itself.yaml", "a cycle of bases"),
        ("base: [itself.yaml]", "a cycle of bases"),
        ("base: 3", "must be a path"),
        ("base: .", "it is a folder"),
        ("base: pipe", "a pipe or a device"),
        (" " * 2**21, "more than 1,048,576 bytes"),
        ("a: !!python/object/apply:os.system [ls]", "not YAML"),
    ],
)
def test_unfit_files_raise(text, message, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecipeError, match=message):
        load(write(tmp_path / "itself.yaml", text))
