"""Workers that begin at once."""

from pathlib import Path

import keras
import pytest
import tensorflow as tf

import keras_dml


@pytest.fixture
def light_package(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes started by a test find no Keras, whose import takes seconds.

    Pools need its version, and to know of GPUs. Workers with all of it are
    those of tests/embedding/test_killed.py.
    """
    folder = tmp_path_factory.mktemp("light")
    package = folder / "keras_dml" / "__init__.py"
    package.parent.mkdir()
    package.write_text(f"__path__ = {[str(Path(keras_dml.__file__).parent)]}\n")
    utils = folder / "keras" / "src" / "utils"
    utils.mkdir(parents=True)
    (folder / "keras" / "__init__.py").write_text(
        f"__version__ = {keras.__version__!r}\n"
        "class config:\n"
        "    backend = staticmethod(lambda: 'tensorflow')\n"
        "backend = config\n"
    )
    (utils / "module_utils.py").write_text("LazyModule = object\n")
    (folder / "tensorflow.py").write_text(
        f"__version__ = {tf.__version__!r}\n"
        "class config:\n"
        "    list_physical_devices = staticmethod(lambda kind: [])\n"
    )
    monkeypatch.syspath_prepend(folder)
