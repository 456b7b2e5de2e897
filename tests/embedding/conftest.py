"""Workers that begin at once."""

from pathlib import Path

import pytest

import keras_dml


@pytest.fixture
def light_package(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes started by a test find no Keras, whose import takes seconds.

    Workers with all of it are those of test_killed.py.
    """
    folder = tmp_path_factory.mktemp("light")
    code = Path(keras_dml.__file__).parent
    for name in ("keras_dml", "keras_dml/embedding"):
        package = folder / name / "__init__.py"
        package.parent.mkdir()
        package.write_text(f"__path__.append({str(code.parent / name)!r})\n")
    utils = folder / "keras" / "src" / "utils"
    utils.mkdir(parents=True)
    (folder / "keras" / "__init__.py").write_text(
        "class config:\n"
        "    backend = staticmethod(lambda: 'tensorflow')\n"
        "backend = config\n"
    )
    (utils / "module_utils.py").write_text("LazyModule = object\n")
    (folder / "tensorflow.py").write_text(
        "class config:\n"
        "    list_physical_devices = staticmethod(lambda kind: [])\n"
    )
    monkeypatch.syspath_prepend(folder)
