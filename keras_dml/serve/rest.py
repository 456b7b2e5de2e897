"""REST as TensorFlow Serving speaks it."""

from starlette.routing import BaseRoute

from keras_dml.serve.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """The routes below /v1/models."""
    return []
