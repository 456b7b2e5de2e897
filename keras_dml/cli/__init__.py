"""The `keras-dml` command: one module for each of its commands."""

import logging

import click

from keras_dml.cli.benchmark import benchmark
from keras_dml.cli.data import data
from keras_dml.cli.evaluate import evaluate
from keras_dml.cli.export import export
from keras_dml.cli.figures import figures
from keras_dml.cli.index import index
from keras_dml.cli.recipes import recipes
from keras_dml.cli.report import report
from keras_dml.cli.search import search
from keras_dml.cli.train import train


@click.group()
@click.version_option(package_name="keras-dml")
def main() -> None:
    """Deep metric learning for Keras: train, evaluate, export.

    Set KERAS_DML_TRACEBACK=1 to see where an error comes from.
    """
    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("keras_dml").setLevel(logging.INFO)


for command in (
    train,
    benchmark,
    evaluate,
    figures,
    report,
    index,
    search,
    export,
    recipes,
    data,
):
    main.add_command(command)
