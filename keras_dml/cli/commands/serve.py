"""`keras-dml serve`."""

import click

from keras_dml.cli.common import command_body, say

TOKEN = "KERAS_DML_SERVE_TOKEN"


@click.command()
@click.argument("path", metavar="RUN|MODEL", type=click.Path())
@click.option(
    "--gallery",
    metavar="FOLDER|URI",
    help="The index that pictures are looked up in: the folder that "
    "`keras-dml index` made, or its address in a database.",
)
@click.option(
    "--name",
    help="Name of the model in addresses. [default: that of the run, file or "
    "folder]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    help="Address to listen on. Other machines reach the server only at "
    "another than the default, such as 0.0.0.0.",
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
    help="What clients must send as `Authorization: Bearer TEXT`. Better set "
    f"in the environment, as {TOKEN}: other users see command lines.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=32 * 2**20,
    help="Bytes that the body of a request may have.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(min=1),
    default=2**26,
    help="Pixels that a picture may have.",
)
@click.option(
    "--max-batch",
    type=click.IntRange(min=1),
    default=64,
    help="Examples that run through the model at a time.",
)
@click.option(
    "--batch-timeout",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Seconds that a batch waits for further requests. With 0 it takes "
    "what queued while the one before it ran.",
)
@click.option(
    "--queue",
    type=click.IntRange(min=1),
    default=1024,
    help="Examples that may wait; what comes then is answered 503.",
)
@click.option(
    "--request-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Seconds that a request may take.",
)
@command_body
def serve(
    path: str,
    gallery: str | None,
    name: str | None,
    **limits: object,
) -> None:
    """Serve RUN or MODEL: REST for programs, a page for people.

    It is the folder of a run, a .keras file, or saved_models/NAME, whose
    highest version is served. A new version of it, or of the gallery, is
    loaded as soon as it is there. Stop it with Ctrl+C or SIGTERM: what is
    being answered is finished.
    """
    from keras_dml.serve import Settings
    from keras_dml.utils.arguments import import_extra

    import_extra("keras-dml serve", "uvicorn", "serve")
    from keras_dml.serve.logs import log_requests
    from keras_dml.serve.server import serve as run

    log_requests()
    settings = Settings(**limits)  # type: ignore[arg-type]
    run(path, gallery, name=name, settings=settings, on_ready=_say_addresses)


def _say_addresses(address: str, name: str) -> None:
    say(f"REST: {address}/v1/models/{name}")
    say(f"Page: {address}/")
