"""What has left the package, and what to use instead."""

_SEARCH = (
    "Evaluation is one process that uses all cores. For a sample of the "
    "queries, use --queries."
)

REMOVED = {
    "evaluate --ray": _SEARCH,
    "evaluate --workers": _SEARCH,
    "export --models-config": (
        "Write models.config by hand, as docs/guides/tensorflow_serving.md "
        "shows."
    ),
}
"""One sentence each, by argument, or by command and option."""
