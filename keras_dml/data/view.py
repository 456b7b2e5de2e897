"""Views of images: deterministic ones for tests, random ones for training."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import keras
import numpy as np

from keras_dml.data.encoded import Encoded
from keras_dml.data.resizing import (
    TRIES,
    ResizeMode,
    cut_window,
    cut_windows,
    random_area,
    resize,
    resize_longest,
    resize_shortest,
    sides_of,
    squash,
    to_channels,
    window,
)
from keras_dml.utils.arguments import Checked
from keras_dml.utils.serialization import register
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Config, NonNegativeInt, Rows, Side

Crop: TypeAlias = Literal["random", "random_resized", "center"]
PadMode: TypeAlias = Literal["constant", "reflect"]


@register
@dataclass(frozen=True)
class View(Checked):
    """The deterministic view: resize, then crop the center.

    It is the same for evaluation, clustering and export. Pixels stay in
    0..255, because further preprocessing belongs to the model. Interpolated
    pixels are rounded to whole gray levels, as in Pillow.

    Args:
        size: (height, width) of the view, in pixels.
        channels: 1 or 3. Gray images become RGB by repetition, and RGB images
            become gray by the luma of ITU-R BT.601.
        resize: Length, in pixels, to which one side of an image is resized
            before cropping; `resize_mode` determines which side. By default
            images are resized no more than `size` requires.
        resize_mode: "shortest": the short side, keeping the aspect ratio; by
            default to the larger side of `size`. "longest": the long side,
            keeping the aspect ratio, with black padding on both sides that
            makes the image square; by default it is fitted into `size`.
            "squash": both sides, ignoring the aspect ratio; by default to
            `size`.
        fast: Whether JPEG files are decoded at 1/2, 1/4 or 1/8 of their size
            where that is at least twice as high and wide as the resized image:
            photographs several times as fast, with slightly other pixels.
            Random crops of training are always decoded in this way.

    Raises:
        ValueError: If an argument is not as described, or if the crop would be
            larger than the resized image.
    """

    size: tuple[Side, Side]
    channels: Literal[1, 3]
    resize: Side | None = None
    resize_mode: ResizeMode = "shortest"
    fast: bool = False

    def __post_init__(self) -> None:
        # Recipes and configs contain lists.
        object.__setattr__(self, "size", tuple(map(int, self.size)))
        if len(self.size) != 2:
            raise ValueError(
                "`size` of View must be (height, width) in pixels. "
                f"Received: size={self.size}."
            )
        if self.resize is not None and self.resize < max(self.size):
            raise ValueError(
                "`resize` of View must be at least as long as the sides of "
                "`size`, so that the crop is inside the image. Received: "
                f"resize={self.resize!r}, size={self.size}. Use "
                f"resize={max(self.size)} or more."
            )

    @classmethod
    def of(cls, model: keras.Model) -> View:
        """Returns the view that a model takes.

        Args:
            model: A model with one image input of known size. Its attribute
                `view`, if it has one, is the view; otherwise images are
                resized no more than the input requires.

        Raises:
            ValueError: If the model's input is not one image.
        """
        shape: Any = getattr(model, "input_shape", None)
        is_image = isinstance(shape, tuple) and len(shape) == 4
        if not is_image or None in shape[1:]:
            raise ValueError(
                "`model` of View.of must take one batch of images of known "
                f"size, (None, H, W, C). Received: {model!r} with "
                f"input_shape={shape}. Build the model with such an input, "
                "or create the View yourself."
            )
        view = getattr(model, "view", None)
        return view if isinstance(view, View) else cls(shape[1:3], shape[3])

    def attach_to(self, model: keras.Model) -> keras.Model:
        """Attaches the view to a model, so that `View.of` returns it.

        Args:
            model: A model that takes images of `size`, for example one with
                another output of the model that the view belongs to.

        Returns:
            The model.
        """
        model.view = self
        return model

    def get_config(self) -> Config:
        return {**asdict(self), "size": list(self.size)}

    @classmethod
    def from_config(cls, config: Config) -> View:
        return cls(**config)

    @property
    def frame(self) -> tuple[int, int] | None:
        """(height, width) of every image before the crop, if it is fixed."""
        if self.resize_mode == "shortest":
            return None
        return self.size if self.resize is None else (self.resize,) * 2

    @property
    def short_side(self) -> int:
        """Length of an image's short side before the crop, in pixels."""
        return min(self.frame) if self.frame else self.resize or max(self.size)

    @property
    def preparation(self) -> tuple[Any, ...]:
        """Identifies what `prepare` does: equal values share pixels."""
        if self.frame:
            return self.resize_mode, self.frame, self.channels
        return self.short_side, self.channels

    def prepared_sizes(self, sizes: Rows) -> Rows:
        """Sizes (height, width) of images, (N, 2), after `prepare`."""
        if self.frame:
            return np.broadcast_to(self.frame, sizes.shape)
        return sizes * self.short_side // sizes.min(axis=1, keepdims=True)

    def apply(self, images: Any) -> tf.Tensor:
        """Returns the view of one image, or of a batch of images of one size.

        Args:
            images: (H, W, C) or (B, H, W, C), where C is 1 or 3, with pixels
                in 0..255 of any type. H, W and B need not be static.

        Returns:
            (*size, channels) or (B, *size, channels), float32, 0..255.
        """
        return tf.cast(self.cut(images), tf.float32)

    def cut(self, images: Any) -> tf.Tensor:
        """Returns the result of `apply`: uint8 for uint8, or float32."""
        return center_crop(self.prepare(images), self.size)

    def prepare(self, images: Any) -> tf.Tensor:
        """Performs the steps of `apply` before the crop: channels and size.

        Args:
            images: As for `apply`, or one image that is not decoded yet.

        Returns:
            (..., H, W, channels) in `frame`, or with `short_side`; uint8 if
            the images are, and float32 otherwise.
        """
        # The smaller number of channels is cheaper to resize.
        if isinstance(images, Encoded):
            images = images.in_channels(self.channels)
            images = images.scalable() if self.fast else images
        else:
            images = tf.convert_to_tensor(images)
            if images.dtype != tf.uint8:
                images = tf.cast(images, tf.float32)
            if self.channels == 1:
                images = to_channels(images, 1)
        if self.frame is None:
            resized = resize_shortest(images, self.short_side)
        elif self.resize_mode == "squash":
            resized = squash(images, self.frame)
        else:
            resized = resize_longest(images, self.frame)
        return to_channels(resized, self.channels)


def center_crop(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    height, width = size
    shape = tf.shape(images)[-3:-1]
    y, x = tf.unstack((shape - size) // 2)
    cut = images[..., y : y + height, x : x + width, :]
    return tf.ensure_shape(cut, (*cut.shape[:-3], height, width, cut.shape[-1]))


@dataclass(frozen=True)
class Augment(Checked):
    """The training view: resized like the test view, then cropped at random.

    It is a pure function of the image and of numbers drawn beforehand, so any
    view of any step can be reproduced. For the arguments, see `pipeline`. A
    "random_resized" window is cut from the original image if the view has no
    `resize`, and a "center" crop is that of the test view.
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

        Of a file, only what the views show is decoded. Each view is a function
        of a row of draws, (N, `draws`), uniform in [0, 1), N static; the first
        number determines whether it is mirrored.
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
        images = self._pad(self.prepare(images))
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
            images = images.scalable()
        return self.view.prepare(images) if self.resizes_first else images

    def _cuts(
        self, image: tf.Tensor | Encoded, draws: tf.Tensor
    ) -> list[tf.Tensor]:
        size = self.view.size
        if self.resizes_first:
            image = self.prepare(image)
        each = tf.unstack(draws)
        if self.crop == "center":
            return [center_crop(image, size)] * len(each)
        if self.crop == "random":
            padded = self._pad(image)
            return [cut_window(padded, x, size) for x in each]
        areas = [
            random_area(sides_of(image), x, self.scale, self.ratio)
            for x in each
        ]
        if isinstance(image, Encoded):
            corners, extents = map(tf.stack, zip(*areas, strict=True))
            cuts = tf.unstack(image.scalable().windows(size, corners, extents))
        else:
            cuts = [resize(window(image, *area), size) for area in areas]
        channels = self.view.channels
        cuts = [to_channels(x, channels) for x in cuts]
        return [tf.ensure_shape(x, (*size, channels)) for x in cuts]

    def _pad(self, images: tf.Tensor) -> tf.Tensor:
        if not self.pad:
            return images
        margin = (self.pad, self.pad)
        batch_margins = [(0, 0)] * (len(images.shape) - 3)
        margins = (*batch_margins, margin, margin, (0, 0))
        return tf.pad(images, margins, self.pad_mode.upper())


def _check_range(name: str, bounds: tuple[float, float], top: float) -> None:
    if len(bounds) != 2 or not 0 < bounds[0] <= bounds[1] <= top:
        raise ValueError(
            f"`{name}` of Augment must be two positive numbers in ascending "
            f"order, at most {top}. Received: {name}={bounds}."
        )
