"""Tests of the recipes that come with the package: names, bases, copies."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from keras_dml import recipes
from keras_dml.recipes import RecipeError, included, inheritance
from tests.recipes.library import FILES, RECIPES, name_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """Changes to a folder outside the checkout."""
    monkeypatch.chdir(tmp_path)


def test_names_list_all_recipes_and_no_bases() -> None:
    files = set(map(name_of, FILES))
    assert set(recipes.names()) == files
    assert {"quickstart", "glyphs/attentive_grouping"} <= files


def test_name_loads_the_file() -> None:
    by_name = recipes.load("glyphs/diva", ("epochs=3",))
    by_path = recipes.load(RECIPES / "glyphs" / "diva.yaml", ("epochs=3",))
    assert by_name == by_path


def test_file_precedes_a_name_and_a_folder_does_not() -> None:
    Path("quickstart").mkdir()
    assert recipes.load("quickstart").name == "quickstart"
    Path("glyphs").mkdir()
    Path("glyphs/diva").write_text("base: glyphs/baseline\nname: own")
    assert recipes.load("glyphs/diva").name == "own"


def test_installed_wheel_contains_the_recipes(monkeypatch) -> None:
    package = Path("site-packages", "keras_dml", "recipes").absolute()
    (package / "library").mkdir(parents=True)
    text = (RECIPES / "symbol_names.yaml").read_text()
    (package / "library" / "only.yaml").write_text(text)
    monkeypatch.setattr(included.resources, "files", lambda _: package)
    assert recipes.names() == ["only"]
    assert recipes.load("only").data.name == "symbol_names"


@pytest.mark.parametrize("base", ["glyphs/diva", "glyphs/_base"])
def test_name_may_be_a_base(base) -> None:
    Path("mine.yaml").write_text(f"base: {base}\nname: mine\nmethod: baseline")
    with pytest.raises(RecipeError, match="`method`"):
        recipes.load("mine.yaml")
    Path("mine.yaml").write_text(
        f"base: {base}\nname: mine\nmethod: {{name: baseline, loss: margin}}"
    )
    assert recipes.load("mine.yaml").data.name == "glyphs"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("quikstart", "quickstart"),
        ("recipes/quickstart.yaml", "quickstart"),
        ("/nowhere/glyphs/attentiv.yaml", "glyphs/attentive_grouping"),
        ("glyphs/../../README", None),
    ],
)
def test_unknown_name_gets_a_suggestion(name, near) -> None:
    with pytest.raises(RecipeError, match="cannot be read: No such") as error:
        recipes.load(name)
    assert near is None or f"Did you mean {near!r}?" in str(error.value)
    with pytest.raises(RecipeError, match="no included recipe"):
        recipes.copy(name)


def test_copies_include_their_bases(monkeypatch) -> None:
    """Tries one recipe of each folder and combination of bases."""
    kinds = {}
    for path in FILES:
        [base] = re.findall("^base: *(.*)", path.read_text(), re.M) or [""]
        kinds[path.parent, re.sub(r"\w+\.yaml", "", base)] = name_of(path)
    assert len(kinds) > 9
    for number, name in enumerate(kinds.values()):
        folder = Path(f"copies-{number}")
        first, *bases = recipes.copy(name, folder / "of")
        assert first == folder / "of" / f"{name}.yaml"
        assert len(bases) + 1 == len(list(folder.rglob("*.yaml")))
        with monkeypatch.context() as without:
            without.setattr(included, "paths", dict)
            complete = inheritance.complete(first)
        assert {"data", "method", "backbone"} <= set(complete), name


def test_copies_replace_changed_files_only_if_asked() -> None:
    written = recipes.copy("glyphs/diva")
    assert written[0].is_relative_to("recipes")
    recipes.copy("glyphs/abe")  # Its base is the same.
    written[-1].write_text("name: changed")
    with pytest.raises(FileExistsError, match="_base.yaml.*--force") as error:
        recipes.copy("glyphs/bier")
    assert str(written[0]) not in str(error.value)
    assert not Path("recipes/glyphs/bier.yaml").exists()
    recipes.copy("glyphs/bier", overwrite=True)
    assert "changed" not in written[-1].read_text()


@pytest.mark.slow
def test_copying_imports_no_keras() -> None:
    code = (
        "import sys; sys.argv = ['keras-dml']\n"
        "from keras_dml import recipes\n"
        "for name in recipes.names()[::9]: recipes.copy(name)\n"
        "print({'keras', 'tensorflow'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("set()\n", "")
    copied = {x.stem for x in Path("recipes").rglob("*.yaml")}
    assert {x.rpartition("/")[2] for x in recipes.names()[::9]} <= copied
