"""The included recipes, each read once."""

import functools
from pathlib import Path

from keras_dml.recipes import Recipe, load

RECIPES = Path(__file__).parents[2] / "recipes"
ALL = sorted(RECIPES.rglob("*.yaml"))
"""Recipes, including pure bases."""
FILES = [path for path in ALL if path.name[0] != "_"]

# Keys whose values are names of layers of the network.
LAYERS = ("branch", "branches", "attention_end", "freeze_until", "output")

# That of which a step is trained in a test that is not slow.
QUICK = [RECIPES / "glyphs" / "baseline.yaml"]
# A network that is not ours, in full depth, up to a lower layer.
WHOLE = [RECIPES / "emoji" / "lower_baseline.yaml"]
# Together they have every method, loss and data set, and every word that a
# method's section says.
MORE = [
    *WHOLE,
    *(
        RECIPES / f"{name}.yaml"
        for name in """
caltech101/frozen_dcml cars196/bier cars196/dreml cars196/hdc cars196/mic
cub200/divide_and_conquer_triplet cub200/hyp cub200/proxy_anchor
cub200/proxy_nca_pp cub200/recall_at_k cub200/soft_triple
emoji/s2sd glyphs/bier glyphs/dcml glyphs/dcml_clusters glyphs/distillation
glyphs/diva glyphs/dreml glyphs/ensemble glyphs/matryoshka glyphs/mic
glyphs/whitening inshop/abe quickstart sop/attentive_grouping_inception
symbol_names vehicleid/dcml
""".split()
    ),
]


def name_of(path: Path) -> str:
    return path.relative_to(RECIPES).with_suffix("").as_posix()


@functools.cache
def recipe(path: Path) -> Recipe:
    return load(path)
