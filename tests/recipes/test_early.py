"""Tests of what is refused before Keras is imported, which takes seconds."""

import subprocess
import sys

import pytest

from keras_dml import recipes
from keras_dml.recipes import early, inheritance
from tests.recipes import keys

SURE = [
    ("glyphs/baseline", "wrongkey=3"),
    ("glyphs/diva", "method.alpa=3", "epochs=2", "data.wrong=1"),
    ("glyphs/diva", "epochs=two", "seed=-1", "method.queue_size=many"),
    ("glyphs/divide_and_conquer", "method.name=divide"),
    ("cub200/abe", "data.name=cub_200"),
    ("cub200/abe", "data.path=/nowhere", "optimizer.learning_rate=0"),
    ("cub200/abe", "batches.classes_per_batch=true"),
    ("cub200/abe", "augmentation.crop=corner", "view=7"),
    ("quickstart", "evaluation.metrics=recall@1", "precision=float16"),
    ("quickstart", "epochs=2", "wrong=1"),
    ("quikstart",),
    ("quickstart", "epochs"),
    ("quickstart", "epochs=[1"),
]


@pytest.fixture
def without_keras(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "keras")


def test_keys_are_those_of_the_schema() -> None:
    text = early.KEYS.read_text("utf-8")
    assert text == keys.written(), "run python -m tests.recipes.keys"


@pytest.mark.parametrize(("name", "settings"), [(x, y) for x, *y in SURE])
def test_the_message_is_that_of_the_schema(name, settings, monkeypatch) -> None:
    with pytest.raises(recipes.RecipeError) as late:
        recipes.load(name, tuple(settings))
    monkeypatch.delitem(sys.modules, "keras")
    with pytest.raises(recipes.RecipeError) as soon:
        early.refuse(name, settings)
    assert str(soon.value) == str(late.value)


@pytest.mark.parametrize(
    "settings",
    [
        ["method.loss.margn=1"],  # Only losses know their arguments.
        ["wrongkey=3", "method.loss=tripled"],  # There is more to say.
        ["wrongkey=3", "epochs=2", "optimizer.schedule={name: cosine}"],
        ["epochs=2", "optimizer.schedule.warmup=2", "wrongkey=3"],
        ["optimizer.name=adamm"],
        ["optimizer.schedule={name: cosine, warmpu: 2}"],
        ["method={name: bier, alpha: 1}"],
        ["method.name=my.module:method"],
        ["optimizer.name=[adam]"],
    ],
)
def test_what_is_not_sure_is_left_to_the_schema(
    settings, without_keras
) -> None:
    assert early.refuse("glyphs/baseline", settings) is None


def test_a_recipe_of_ones_own_is_judged_by_its_base(
    tmp_path, without_keras
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "base: quickstart\nname: own\nepochs: 3\n"
        "data: {name: image_folder, path: images}\n"
    )
    content = early.refuse(own)
    assert content is not None and content["name"] == "own"
    with pytest.raises(FileNotFoundError, match="`data.path`: 'images' does"):
        early.refuse_missing(content)
    with pytest.raises(recipes.RecipeError, match="`epoch` is not a key"):
        early.refuse(own, ["epoch=1"])
    own.write_text("base: quickstart\nmethod: {loss: mine}\n")
    assert early.refuse(own, ["epoch=1"]) is None


def test_what_only_losses_know_is_asked_of_them_where_it_is_needed(
    tmp_path, without_keras
) -> None:
    base = tmp_path / "base.yaml"
    base.write_text("base: quickstart\nmethod: {loss: contrastive}\n")
    own = tmp_path / "own.yaml"
    own.write_text("base: base.yaml\nmethod: {loss: {negative_margin: 0.3}}\n")
    assert early.refuse(own) is None
    content = inheritance.RecipeFiles().read(own)
    assert content["method"]["loss"] == {
        "name": "contrastive",
        "negative_margin": 0.3,
    }


def test_with_keras_it_is_left_to_the_schema() -> None:
    assert early.refuse("quickstart") is None


@pytest.mark.slow
def test_commands_refuse_before_keras_is_imported(tmp_path) -> None:
    code = (
        "import sys; sys.argv = ['keras-dml']\n"
        "from click.testing import CliRunner\n"
        "from keras_dml.cli import main\n"
        "def fails(*words):\n"
        "    result = CliRunner().invoke(main, words)\n"
        "    print(result.exit_code, result.output.split('\\n')[-2][:70])\n"
        "wrong = 'glyphs/baseline', '--set', 'wrongkey=3'\n"
        "fails('train', *wrong)\n"
        "fails('train', *wrong, '--output', 'runs/new')\n"
        "fails('train', 'glyphs/basline')\n"
        "fails('tune', *wrong, '--space', 'space.yaml')\n"
        "fails('benchmark', 'quickstart', *wrong, '--output', 'runs')\n"
        "fails('benchmark', 'quickstart', 'glyphs/baseline::wrongkey=3', "
        "'--output', 'runs')\n"
        "fails('recipes', 'show', *wrong)\n"
        "for command in 'evaluate', 'export', 'figures', 'report':\n"
        "    fails(command, 'runs/none')\n"
        "fails('embed', '.', 'images', 'out')\n"
        "fails('index', '.', 'images')\n"
        "print({'keras', 'tensorflow'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True
    )
    *lines, imported = ended.stdout.splitlines()
    assert (ended.stderr, imported) == ("", "set()")
    keys_known = "1   `wrongkey` is not a key of a recipe. Known keys: name"
    of_runs = "is not the folder of a run"
    assert [x.startswith(keys_known) for x in lines[:7]].count(True) == 6
    assert "recipe glyphs/basline cannot be read" in lines[2]
    assert [of_runs in x for x in lines[7:]] == 6 * [True]


@pytest.mark.slow
def test_train_says_what_it_does_before_it_imports(tmp_path) -> None:
    code = (
        "import sys; sys.argv[0] = 'keras-dml'\n"
        "from keras_dml.cli import common, main\n"
        "common.import_package = lambda: sys.exit(str(set(sys.modules) "
        "& {'keras', 'tensorflow'}))\n"
        "main(['train', 'quickstart', '--set', 'epochs=2'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert ended.stdout == "Recipe: quickstart, epochs=2\n"
    assert ended.stderr == "set()\n"
