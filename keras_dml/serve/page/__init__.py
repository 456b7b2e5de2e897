"""The page for people."""

from starlette.routing import BaseRoute

from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings


def routes(service: Service, settings: Settings) -> list[BaseRoute]:
    """The routes of the page and its endpoints."""
    return []
