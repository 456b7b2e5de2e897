"""Metrics of a server, for Prometheus."""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from keras_dml.serve.service import Service

_SIZES = tuple(2**power for power in range(11))
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """What a server counts, among it the batches of its service."""

    MEDIA_TYPE = CONTENT_TYPE_LATEST

    def __init__(self, service: Service) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self.requests = Counter(
            "keras_dml_requests_total",
            "Requests answered.",
            ("route", "code"),
            registry=registry,
        )
        self.seconds = Histogram(
            "keras_dml_request_seconds",
            "Seconds from the head of a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.reloads = Counter(
            "keras_dml_reloads_total",
            "Galleries that were saved anew, by whether they could be loaded.",
            ("outcome",),
            registry=registry,
        )
        batches = Histogram(
            "keras_dml_batch_examples",
            "Examples in a batch that ran.",
            buckets=_SIZES,
            registry=registry,
        )
        service.on_batch = lambda key, size: batches.observe(size)
        self._gauge("queue_examples", "Examples that wait.").set_function(
            lambda: service.waiting
        )
        self._gauge("galleries", "Galleries served so far.").set_function(
            lambda: service.current.version
        )

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"keras_dml_{name}", about, registry=self._registry)

    def text(self) -> bytes:
        """All of them, in the text format of Prometheus."""
        return generate_latest(self._registry)
