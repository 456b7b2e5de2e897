"""Comments and settings of the recipe files."""

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from keras_dml.methods import METHODS
from keras_dml.recipes.inheritance import merge, parse_setting
from tests.recipes.library import (
    ALL,
    FILES,
    LAYERS,
    MORE,
    QUICK,
    RECIPES,
    name_of,
    recipe,
)

DATA_SETS = ("cub200", "cars196", "sop", "inshop", "vehicleid")
PUBLISHED = [path for path in FILES if path.parent.name in DATA_SETS]
PAPERS = r"et al\., (ICCV|CVPR|ECCV|ICML|NeurIPS)? ?20\d\d"


@functools.cache
def content_of(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


def bases_of(path: Path) -> list[Path]:
    bases = content_of(path).get("base", [])
    names = bases if isinstance(bases, list) else [bases]
    return [(path.parent / name).resolve() for name in names]


def own(path: Path) -> dict[str, Any]:
    return {k: v for k, v in content_of(path).items() if k != "base"}


def inherited(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for base in bases_of(path):
        content = merge(content, merge(inherited(base), own(base)))
    return content


def leaves(content: Any, *keys: str) -> Iterator[tuple[str, ...]]:
    if not isinstance(content, dict):
        yield keys
        return
    for key, value in content.items():
        yield from leaves(value, *keys, key)


def without(content: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    first, *rest = keys
    siblings = {k: v for k, v in content.items() if k != first}
    below = without(content[first], tuple(rest)) if rest else {}
    # An empty section would clear that of the base.
    return {**siblings, first: below} if below else siblings


def methods_of(folder: str) -> set[str]:
    files = {path.stem for path in (RECIPES / folder).glob("*.yaml")}
    return files & set(METHODS)


def test_data_sets_have_the_same_methods() -> None:
    assert methods_of("glyphs") == set(METHODS)
    assert len(methods_of("sop")) >= 7
    for folder in (*DATA_SETS, "caltech101", "emoji"):
        assert methods_of(folder) >= methods_of("sop"), folder


def test_comments_name_paper_table_and_aim() -> None:
    for path in PUBLISHED:
        lines = path.read_text().split("\nbase:")[0].splitlines()
        assert all(line.startswith("# ") for line in lines), path
        text = " ".join(line.removeprefix("# ") for line in lines)
        assert re.search(PAPERS, text), path
        assert re.search(r"Table \d|abstract", text), path
        aim = r"aims? at:? R@1 \d\d\.\d|R@1 \d\d\.\d, which this aims at"
        none = "no (published )?number to aim at.*The settings are those"
        assert re.search(f"{aim}|{none}", text), path
        assert "not run here" in text, path


def test_recipes_of_papers_end_with_all_training_classes() -> None:
    """Published numbers are of such trainings."""
    assert all(recipe(path).refit for path in PUBLISHED)


def test_no_key_repeats_its_base() -> None:
    for path in filter(bases_of, ALL):
        base, said = inherited(path), own(path)
        complete = merge(base, said)
        for keys in leaves(said):
            assert merge(base, without(said, keys)) != complete, (path, keys)


def test_every_base_has_two_users() -> None:
    users = Counter(base for path in ALL for base in set(bases_of(path)))
    for path in set(ALL) - set(FILES):
        assert users[path.resolve()] >= 2, path


def test_every_recipe_loads_with_a_comment_and_its_own_name() -> None:
    for path in FILES:
        assert path.read_text().startswith("# "), path
        if path in PUBLISHED:
            expected = name_of(path).replace("/", "-").replace("_", "-")
            assert recipe(path).name == expected
        method = recipe(path).method.model_dump()
        assert method["embedding_dim"] % method.get("num_learners", 1) == 0
    assert len({recipe(path).name for path in FILES}) == len(FILES)


def words(content: Any) -> Iterator[str]:
    """What a section says, but for numbers, layers and what is left out."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key not in (*LAYERS, "teacher"):
                yield from (f"{key}.{leaf}" for leaf in words(value))
    elif isinstance(content, list | tuple):
        for value in content:
            yield from words(value)
    elif isinstance(content, str):
        yield content


def traits(path: Path) -> set[str]:
    method = recipe(path).method.model_dump()
    losses = [method.pop(x, None) for x in ("loss", "auxiliary_loss")]
    names = [x.get("name") if isinstance(x, dict) else x for x in losses]
    sections = {"data": recipe(path).data.name, method["name"]: method}
    return set(words({**sections, "loss": names}))


def test_trained_recipes_cover_the_traits_of_all() -> None:
    """Each data set, loss, method, and each word in a method's section."""
    left = set().union(*map(traits, FILES))
    left -= set().union(*map(traits, [*QUICK, *MORE]))
    assert not left


# As the papers print them, or, where they do not, the released code; without
# those that docs/papers/papers.yaml cites, which the lint compares.
SETTINGS = """\
cub200/baseline: optimizer.weight_decay=0.0001 optimizer.decay=coupled
    method.embedding_dim=128 batches.classes_per_batch=32
    batches.images_per_class=4 optimizer.learning_rate=1.0e-05
    optimizer.epsilon=1.0e-08 augmentation.crop=random augmentation.flip=true
    augmentation.resize=256 backbone.input_shape=[224,224,3] view.resize=256
    view.resize_mode=shortest augmentation.resize_mode=shortest
    backbone.freeze_batch_norm=true
cub200/divide_and_conquer: epochs=200
    method.phases=[[190,sliced,clusters],[null,full,all]]
    batches.classes_per_batch=32 batches.images_per_class=4
cub200/dcml: optimizer.learning_rate=1.0e-06 augmentation.crop=random_resized
    view.resize_mode=squash augmentation.resize=256
    augmentation.resize_mode=squash batches.classes_per_batch=56
    batches.images_per_class=2 optimizer.schedule.epochs=[55]
    optimizer.schedule.factor=0.2 epochs=300
sop/bier: method.embedding_dim=512 method.group_sizes=[96,160,256]
    method.independence=adversarial method.norm_penalty=5.0
    loss_weights.independence=5.0e-05 rate_multipliers.head=10.0
    batches.classes_per_batch=64 batches.images_per_class=2
    optimizer.learning_rate=1.0e-05 optimizer.schedule.factor=0.5
cars196/hdc: method.hard_shares=[1.0,0.5,0.2] optimizer.momentum=0.9
    optimizer.schedule.factor=0.1 method.loss.negative_weight=10.0
cub200/mic: method.embedding_dim=128 batches.classes_per_batch=28
    batches.images_per_class=4 optimizer.learning_rate=1.0e-05
    optimizer.weight_decay=0.0004
cub200/s2sd: method.embedding_dim=128 method.loss.threshold=0.5
    method.loss.alpha=2.0 optimizer.learning_rate=1.0e-05
    optimizer.weight_decay=0.0004 optimizer.decay=coupled
    optimizer.schedule=null augmentation.resize=null
    augmentation.crop=random_resized backbone.freeze_batch_norm=true epochs=150
cars196/dreml: optimizer.name=sgd optimizer.learning_rate=0.01
    optimizer.momentum=0.9 optimizer.schedule.epochs=[6,9] epochs=12
    optimizer.schedule.factor=0.01 view.resize=256
    backbone.freeze_batch_norm=false
sop/ensemble: method.num_learners=4 method.embedding_dim=128
    optimizer.learning_rate=1.0e-05 batches.classes_per_batch=20
cub200/abe: method.num_learners=8 method.embedding_dim=512
    method.divergence_margin=1.0 loss_weights.divergence=1.0
    backbone.name=googlenet augmentation.resize=256
    augmentation.resize_mode=longest view.resize=256 view.resize_mode=longest
cub200/attentive_grouping: method.loss.num_classes=auto
    optimizer.schedule.epochs=[55] rate_multipliers./loss/beta=5.0
    augmentation.resize=null
cub200/diva: augmentation.num_views=2
cub200/proxy_anchor: method.pooling=avg_max rate_multipliers./loss/proxies=100.0
    optimizer.schedule.factor=0.5 backbone.freeze_batch_norm=true
    augmentation.resize=null augmentation.crop=random_resized epochs=60
cub200/soft_triple: rate_multipliers./loss/proxies=100.0
    optimizer.learning_rate=0.0001 optimizer.weight_decay=0.0001
    optimizer.decay=coupled optimizer.schedule.epochs=[19,39] epochs=50
cub200/proxy_nca_pp: method.loss.exclude_positive=false
    method.loss.temperature=0.1111 rate_multipliers./loss/proxies=100000.0
    view.resize=288 backbone.freeze_batch_norm=false backbone.freeze_epochs=5
    augmentation.crop=random_resized augmentation.flip=true data.validation=0.5
    refit=true
cub200/recall_at_k: method.embedding_dim=512 method.layer_norm=true
    method.loss.temperature=0.01 method.loss.attainable=true
    method.loss.include_self=true method.loss.k=[1,2,4,8,16] optimizer.name=adam
    optimizer.weight_decay=0.0004 epochs=40
cub200/hyp: method.embedding_dim=128 method.loss_input=activation
    optimizer.name=adamw optimizer.weight_decay=0.01 epochs=50 view.resize=256
sop/baseline: batches.classes_per_batch=20 batches.images_per_class=4
sop/hdc: batches.steps_per_epoch=200
inshop/hdc vehicleid/hdc: optimizer.learning_rate=0.01
    optimizer.weight_decay=2.0e-4 batches.steps_per_epoch=200 epochs=300
    optimizer.schedule.epochs=[100,200] optimizer.schedule.factor=0.96
cars196/mic: augmentation.resize=null
sop/s2sd: method.gamma=50 rate_multipliers./loss/beta=50 epochs=150
cub200/abe_cropped: augmentation.resize_mode=longest
cars196/abe_cropped: augmentation.resize_mode=squash
cub200/divide_and_conquer_proxy_nca: optimizer.learning_rate=1.0e-5
cub200/attentive_grouping_inception_224 cub200/diva_ibn_224:
    backbone.input_shape=[224,224,3]
vehicleid/attentive_grouping: optimizer.schedule.factor=0.3
cars196/attentive_grouping: optimizer.schedule.epochs=[100]
sop/attentive_grouping: optimizer.schedule.epochs=[100]
    rate_multipliers./loss/beta=1.111 epochs=150
inshop/attentive_grouping: optimizer.decay_multipliers./queries=0.3333
    optimizer.learning_rate=1.0e-5 epochs=150 rate_multipliers./loss/beta=5
cars196/attentive_grouping_inception: backbone.name=torchvision_googlenet
    method.num_groups=3 backbone.freeze_batch_norm=false
    backbone.input_shape=[227,227,3] rate_multipliers./loss/beta=2.5 epochs=200
sop/attentive_grouping_inception: epochs=150 rate_multipliers./loss/beta=0.5
sop/attentive_grouping_4: rate_multipliers./loss/beta=1
cars196/diva: epochs=350
sop/diva: method.test_weights=[1,1,1,1] epochs=150
inshop/diva vehicleid/diva: epochs=150 optimizer.schedule.epochs=[70]
    optimizer.schedule.factor=0.3
cub200/proxy_anchor_ibn: optimizer.schedule.epochs=[10,20,30,40,50]
    optimizer.learning_rate=1.0e-4 optimizer.epsilon=1.0e-8
"""


def test_recipes_match_published_settings() -> None:
    for line in SETTINGS.replace("\n    ", " ").splitlines():
        names, settings = line.split(": ")
        for name in names.split():
            content = recipe(RECIPES / f"{name}.yaml").model_dump(mode="json")
            for setting in settings.split():
                same = merge(content, parse_setting(setting)) == content
                assert same, (name, setting)


def test_metrics_of_the_papers_are_measured() -> None:
    """F1 of attentive grouping, and the mAP of DiVA's code."""
    for folder in ("cub200", "cars196", "sop", "inshop"):
        baseline = recipe(RECIPES / folder / "baseline.yaml")
        reported = {"nmi", "f1", "map@r_with_self"}
        assert reported <= set(baseline.evaluation.metrics), folder


def test_batch_sizes_match_the_papers() -> None:
    sizes = {
        "abe": 64,
        "attentive_grouping": 112,
        "bier": 128,
        "dcml": 112,
        "diva": 112,
        "dreml": 128,
        "hdc": 100,
        "mic": 112,
        "s2sd": 112,
    }
    # Of classes that are not held out: 80 instead of 100.
    of_losses = {
        "hyp": 720,
        "proxy_anchor": 120,
        "proxy_anchor_ibn": 180,
        "proxy_nca_pp": 32,
        "recall_at_k": 320,
        "soft_triple": 32,
    }
    for path in PUBLISHED:
        content = recipe(path)
        size = (
            content.batches.classes_per_batch * content.batches.images_per_class
        )
        small = path.parent.name in ("sop", "inshop")
        margin = 80 if small else 128
        expected = of_losses.get(path.stem, margin)
        assert size == sizes.get(content.method.name, expected), path
