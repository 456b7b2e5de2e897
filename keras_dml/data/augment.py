"""Augment: the random view of an image for training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from keras_dml.data.encoded import Encoded
from keras_dml.data.resizing import (
    TRIES,
    cut_window,
    cut_windows,
    random_area,
    resize,
    sides_of,
    to_channels,
    window,
)
from keras_dml.data.view import View, center_crop
from keras_dml.utils.arguments import Checked
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import NonNegativeInt

Crop: TypeAlias = Literal["random", "random_resized", "center"]
PadMode: TypeAlias = Literal["constant", "reflect"]


@dataclass(frozen=True)
class Augment(Checked):
    """The training view: resized like the test view, then cropped at random.

    It is a pure function of the image and of numbers drawn beforehand, so any
    view of any step can be reproduced.

    Args:
        view: Size and channels, and how images are resized before cropping.
        crop: What is cropped from the resized image. "random": a window of the
            view's size. "random_resized": a window of random area and aspect
            ratio, resized to the view's size; if the view has no `resize`, it
            is cropped from the original image. "center": the window of the
            test view.
        flip, pad, pad_mode, scale, ratio: See `pipeline`.

    Raises:
        ValueError: If an argument is not as described.
    """

    view: View
    crop: Crop = "random"
    flip: bool = False
    pad: NonNegativeInt = 0
    pad_mode: PadMode = "constant"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        _check_range("scale", self.scale, 1.0)
        _check_range("ratio", self.ratio, math.inf)
        short_side = self.view.short_side
        if self.pad >= short_side:
            raise ValueError(
                "`pad` of Augment must be a number of pixels less than "
                f"the image's short side. Received: pad={self.pad!r}, short "
                f"side {short_side}."
            )
        if self.pad and self.crop != "random":
            raise ValueError(
                '`pad` of Augment requires crop="random", because no other '
                f"crop reaches the padding. Received: pad={self.pad}, "
                f"crop={self.crop!r}. Use pad=0."
            )
        if self.view.frame and not self.resizes_first:
            raise ValueError(
                "`resize_mode` of Augment's view requires `resize` with "
                'crop="random_resized", which otherwise crops the original '
                "image without resizing it. Received: "
                f"resize_mode={self.view.resize_mode!r}, resize=None. Use "
                'resize_mode="shortest" or, for example, '
                f"resize={max(self.view.size)}."
            )

    @property
    def draws(self) -> int:
        """Number of random numbers that a view of one image uses."""
        return 3 + 2 * TRIES * (self.crop == "random_resized")

    @property
    def is_batched(self) -> bool:
        """Whether `apply_batch` works: all windows have the same size."""
        return self.crop != "random_resized"

    def each(
        self, image: tf.Tensor | Encoded, draws: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns random views of one image, in whole gray levels.

        Args:
            image: (H, W, C), 0..255; or its file, of which only what the views
                show is decoded.
            draws: (N, `draws`), uniform in [0, 1), N static. The first number
                determines whether a view is mirrored.

        Returns:
            N of (*size, channels), uint8 if the image is, otherwise float32.
        """
        cuts = self._cuts(image, draws[:, 1:])
        if not self.flip:
            return cuts
        return [
            tf.cond(
                flip < 0.5, lambda x=cut: tf.reverse(x, [1]), lambda x=cut: x
            )
            for cut, flip in zip(cuts, tf.unstack(draws[:, 0]), strict=True)
        ]

    def apply_batch(self, images: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        """A view of each of some images of one size, (B, H, W, C)."""
        images = self._padded(self.prepare(images))
        flips = (draws[:, 0] < 0.5) & self.flip
        if self.crop == "center":
            cut = center_crop(images, self.view.size)
            mirrored = tf.reverse(cut, [2])
            return tf.where(flips[:, None, None, None], mirrored, cut)
        return cut_windows(images, draws[:, 1:], flips, self.view.size)

    @property
    def resizes_first(self) -> bool:
        """Whether the resized image is cropped, not the original."""
        return self.crop != "random_resized" or self.view.resize is not None

    def prepare(self, images: tf.Tensor | Encoded) -> tf.Tensor:
        """The part that is the same in every view and can be cached."""
        if isinstance(images, Encoded):
            if not self.resizes_first:
                return images.pixels()
            images = images.scaled()
        return self.view.prepare(images) if self.resizes_first else images

    def _cuts(
        self, image: tf.Tensor | Encoded, draws: tf.Tensor
    ) -> list[tf.Tensor]:
        """The crops of one image, before they are mirrored."""
        size = self.view.size
        if self.resizes_first:
            image = self.prepare(image)
        each = tf.unstack(draws)
        if self.crop == "center":
            return [center_crop(image, size)] * len(each)
        if self.crop == "random":
            padded = self._padded(image)
            return [cut_window(padded, x, size) for x in each]
        areas = [
            random_area(sides_of(image), x, self.scale, self.ratio)
            for x in each
        ]
        if isinstance(image, Encoded):
            corners, extents = map(tf.stack, zip(*areas, strict=True))
            cuts = tf.unstack(image.scaled().windows(size, corners, extents))
        else:
            cuts = [resize(window(image, *area), size) for area in areas]
        channels = self.view.channels
        cuts = [to_channels(x, channels) for x in cuts]
        return [tf.ensure_shape(x, (*size, channels)) for x in cuts]

    def _padded(self, images: tf.Tensor) -> tf.Tensor:
        if not self.pad:
            return images
        margin = (self.pad, self.pad)
        others = [(0, 0)] * (len(images.shape) - 3)
        margins = (*others, margin, margin, (0, 0))
        return tf.pad(images, margins, self.pad_mode.upper())


def _check_range(name: str, bounds: tuple[float, float], top: float) -> None:
    if len(bounds) != 2 or not 0 < bounds[0] <= bounds[1] <= top:
        raise ValueError(
            f"`{name}` of Augment must be two positive numbers in ascending "
            f"order, at most {top}. Received: {name}={bounds}."
        )
