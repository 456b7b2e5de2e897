"""`keras-dml serve`."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from keras_dml.cli import common

if TYPE_CHECKING:
    from keras_dml.embedding.engines import Engine

TOKEN = "KERAS_DML_SERVE_TOKEN"


@common.command("keras-dml serve runs/quickstart --gallery indexes/quickstart")
@click.argument("path", metavar="RUN|MODEL", type=click.Path())
@click.option(
    "--gallery",
    metavar="FOLDER",
    help="Index to search: a folder made by `keras-dml index`.",
)
@click.option(
    "--name",
    help="Name of the model in addresses. [default: that of the run or file]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. Use for instance 0.0.0.0 to let other machines "
    "reach the server.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8501,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--token",
    envvar=TOKEN,
    metavar="TEXT",
    help="Token that clients must send as `Authorization: Bearer TEXT`. Prefer "
    f"the environment variable {TOKEN}, as other users can see command lines.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=32 * 2**20,
    help="Maximum size of a request body, in bytes.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(min=1),
    default=2**26,
    help="Maximum number of pixels of a picture, and of those decoded at a "
    "time; kinds of file that take more memory than PNG count for more.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(min=1),
    default=64,
    help="Maximum number of examples in a batch for the model.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=1024,
    help="Maximum number of waiting examples; further requests are answered "
    "with status 503.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    default=512,
    help="Maximum number of open connections; while there are more, requests "
    "are answered with status 503.",
)
@click.option(
    "--request-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Maximum duration of a request, in seconds.",
)
@click.option(
    "--stop-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Seconds that requests in progress have to finish when the server "
    "stops.",
)
@common.engine_option
@common.trust_option
@common.on_tensorflow
def serve(
    path: str,
    gallery: str | None,
    name: str | None,
    engine: "Engine",
    **limits: object,
) -> None:
    """Serve a model with a REST API for programs and a page for people.

    RUN is the folder of a run, MODEL a .keras file. The gallery is reloaded
    whenever it is saved; for a new model, restart the server. Stop the server
    with Ctrl+C or SIGTERM; requests in progress are completed first.
    Needs the extra `serve`.
    """
    from keras_dml.serve import Settings
    from keras_dml.serve.logs import log_as_json
    from keras_dml.serve.settings import bind, check_is_there
    from keras_dml.utils.arguments import import_extra

    settings = Settings(**limits)  # type: ignore[arg-type]
    check_is_there(path)
    import_extra("keras-dml serve", "uvicorn", "serve")
    opened = bind(settings)
    log_as_json()
    logging.getLogger(__name__).info("Loading the model %s", path)
    common.import_package()
    from keras_dml.serve.server import serve as run

    def say_ready(address: str, name: str) -> None:
        common.say(f"REST: {address}/v1/models/{name}\nPage: {address}/")
        if gallery is None and Path(path).is_dir():
            common.suggest("keras-dml", "index", path, "test")

    run(
        path,
        gallery,
        name=name,
        settings=settings,
        engine=engine,
        opened=opened,
        on_ready=say_ready,
    )
