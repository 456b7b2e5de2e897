"""WandbTracker: tracks training as a run of Weights & Biases."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_dml.callbacks.tracker import Status, Tracker
from keras_dml.utils.arguments import import_extra

if TYPE_CHECKING:
    from keras_dml.visualization.data_figure import DataFigure

_SECONDS_TO_BEGIN = 30.0


class WandbTracker(Tracker):
    """Logs training to Weights & Biases.

    See `Tracker` for what is logged, and what happens if W&B fails. The
    destination is set by the arguments, or by W&B's environment variables, such
    as `WANDB_PROJECT`, `WANDB_MODE=offline` and `WANDB_DIR`. Send a run that
    was logged offline with `wandb sync`. A run that was resumed offline has
    several folders with the same id; combine them with `wandb sync --append`.

    Args:
        config, name, images, every, num_queries, seed, finish: As for
            `Tracker`.
        **settings: Other arguments of `wandb.init`: `project`, `entity`,
            `group`, `tags`, `mode`, `dir`, ….

    Raises:
        ImportError: If wandb is not installed.
        ValueError: If `images` is not a set with labels, or a number is
            invalid.

    Example:

    ```python
    tracker = WandbTracker({"loss": "triplet"}, project="shoes")
    model.fit(batches, epochs=4, callbacks=[tracker])
    ```
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        images: Any = None,
        every: int = 1,
        num_queries: int = 6,
        seed: int = 0,
        finish: bool = True,
        **settings: Any,
    ) -> None:
        import_extra("WandbTracker", "wandb", "wandb")
        super().__init__(
            config, name=name, images=images, every=every,
            num_queries=num_queries, seed=seed, finish=finish,
        )  # fmt: skip
        self.settings = settings
        self._run: Any = None

    def _open(self) -> None:
        import wandb

        # "allow" begins a run if there is none with this id.
        known = {"id": self.run_id, "resume": "allow"} if self.run_id else {}
        own = {
            "settings": wandb.Settings(init_timeout=_SECONDS_TO_BEGIN),
            "reinit": "create_new",
        }
        self._run = wandb.init(
            config=self.config,
            name=self.name,
            **{**own, **known, **self.settings},
        )
        self.run_id = self._run.id

    def _write_metrics(self, metrics: dict[str, float], epoch: int) -> None:
        self._run.log({**metrics, "epoch": epoch}, step=epoch)

    def _write_results(self, metrics: dict[str, float]) -> None:
        self._run.summary.update(metrics)

    def _write_figure(
        self, name: str, figure: "DataFigure", epoch: int
    ) -> None:
        import wandb
        from PIL import Image

        file = io.BytesIO()
        figure.savefig(file, format="png")
        picture = wandb.Image(Image.open(file))
        self._run.log({name: picture}, step=epoch)

    def _write_files(self, paths: list[Path]) -> None:
        import wandb

        for kind, own in (
            ("model", [x for x in paths if x.suffix == ".keras"]),
            ("run", [x for x in paths if x.suffix != ".keras"]),
        ):
            if own:
                artifact = wandb.Artifact(f"{kind}-{self.run_id}", type=kind)
                for path in own:
                    artifact.add_file(str(path))
                self._run.log_artifact(artifact)

    def _close(self, status: Status) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)
