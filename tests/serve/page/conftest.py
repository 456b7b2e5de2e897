"""One small model for all tests of the page."""

import keras
import pytest

from tests.serve.page.served import small_model


@pytest.fixture(scope="package")
def model() -> keras.Model:
    return small_model()
