"""Base class of all networks, with preprocessing and prediction for images in memory."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minicaps import ops
from minicaps.backend import Array, to_host
from minicaps.cli.blas import one_blas_thread
from minicaps.data.preprocessing import Preprocessing
from minicaps.errors import CheckpointError
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import SEEN
from minicaps.models.sizes import ChildrenGrid, seen, whole
from minicaps.nn import Decoder, Module
from minicaps.tensor import Tensor

EVALUATION_BATCH = 250  # images per batch when no gradients are needed


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Predictions of a network for n images.

    Attributes
    ----------
    classes : one entry per image
        The name of the most probable class; for multi-label networks, a tuple with the names of
        all classes whose probability exceeds one half. Names are text, even those of integers:
        compare `indices` with class numbers.
    probabilities : array of shape (n, J)
        The length or activation of a capsule is the probability that its class is present,
        independently of the other classes, and so is the sigmoid of a logit if the network is
        multi-label or was trained with the margin loss. If a single-label network was trained with
        cross-entropy, the probabilities of an image sum to 1.
    class_names : names of the J classes
    """

    classes: list
    probabilities: np.ndarray
    class_names: tuple[str, ...]

    @property
    def indices(self) -> np.ndarray:
        """Number of the most probable class of each image, (n,)."""
        return self.probabilities.argmax(axis=1)

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self):
        lines = [f"Prediction of {len(self)} image{'s' * (len(self) != 1)}"]
        for name, row in zip(self.classes[:10], self.probabilities[:10], strict=True):
            lines.append(f"  {name}  (highest probability {row.max():.3f})")
        return "\n".join(lines + ["  …"] * (len(self) > 10))


@contextmanager
def evaluating(model: Module):
    """Switch a module to evaluation mode inside this block; each inner one returns to its own."""
    before = [(module, module.training) for _, module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, training in before:
            module.training = training


class Network(Module):
    """Base class of all networks.

    A network maps images (B, C, H, W) to a `Routed` tuple with `activations` of shape (B, J).
    Training sets the attributes `class_names`, `preprocessing`, `multi` and `loss`.

    Attributes
    ----------
    logits : whether the activations are logits
    score : the name of an activation after its conversion to a probability
    presets : the sizes of the layers by name of the preset
    margin : pixels by which padding lets the network see beyond its `layers`
    children_grid : positions of the class capsules' children, or None for networks without capsules
    config : arguments with which `minicaps.models.build` builds the network again
    class_names : names of the J classes
    preprocessing : the images that the network expects
    multi : whether an image may have any number of classes
    loss : name of the loss
    decoder : the decoder, or None
    """

    logits: bool = False
    score: str = "probability"
    children_grid: ChildrenGrid | None = None
    routing_options: ClassVar[dict] = {}
    presets: ClassVar[dict] = {}
    margin: ClassVar[int] = 0
    config: dict
    class_names: tuple[str, ...]
    preprocessing: Preprocessing | None = None
    multi: bool = False
    loss: str | None = None
    decoder: Decoder | None = None

    @classmethod
    def layers(cls, preset: str | None = None) -> Sequence[tuple[int, int]]:
        """Return (kernel, stride) of the layers without padding; none if all images are seen whole.

        preset: the sizes of the layers, for networks that have presets.
        """
        return ()

    @classmethod
    def seen(cls, size: Sequence[int], preset: str | None = None) -> tuple[int, int]:
        """Return how many of the first rows and columns of an image (H, W) affect the output."""
        rows, columns = (seen(side, cls.layers(preset), cls.margin) for side in size)
        return rows, columns

    @classmethod
    def whole(cls, size: Sequence[int], preset: str | None = None) -> tuple[int, int]:
        """Return the smallest size, at least (H, W), of which every row and column is seen."""
        height, width = (whole(side, cls.layers(preset), cls.margin) for side in size)
        return height, width

    @property
    def raw_score(self) -> str:
        """Name of an activation before it is converted to a probability."""
        return "logit" if self.logits else self.score

    @property
    def sigmoids(self) -> bool:
        """Whether the probability of a class is the sigmoid of its logit, independent of others."""
        return self.logits and (self.multi or self.loss == "margin")

    @property
    def shares(self) -> bool:
        """Whether P(k) = a_k / Σ_j a_j, as for capsules trained with cross-entropy."""
        return self.loss == "cross-entropy" and not self.logits and not self.multi

    def probabilities(self, activations: Tensor) -> Tensor:
        """Convert activations (B, J) to probabilities, as described in `Prediction`."""
        if self.logits:
            return ops.sigmoid(activations) if self.sigmoids else ops.softmax(activations)
        if self.shares:
            return activations / (activations.sum(axis=1, keepdims=True) + 1e-30)
        return activations

    def reconstruct(self, poses: Tensor, keep: Array) -> Tensor:
        """Decode images from poses (B, J, D), masking those of all classes except `keep` (B,).

        Raises ValueError if the network was built without a decoder.
        """
        if self.decoder is None:
            raise ValueError("this network has no decoder: build it with decoder=True")
        return self.decoder(ops.mask(poses, keep))

    def expected_images(self) -> Preprocessing:
        """Return the preprocessing; ValueError if the network does not know its images."""
        if self.preprocessing is None:
            raise ValueError(
                "this network does not know its images: build it with minicaps.models.build"
            )
        return self.preprocessing

    def predict(
        self,
        images: Array | list,
        *,
        invert: bool | str | None = None,
        centre_ink: bool | str = False,
    ) -> Prediction:
        """Predict the classes of images in memory.

        The network runs in evaluation mode, and its previous mode is restored afterward.

        Parameters
        ----------
        images : array (n, H, W), (n, H, W, C) or (n, C, H, W), or list of images of any sizes
            The allowed pixel values are described in
            `minicaps.data.preprocessing.Preprocessing.batches`. Images are resized and converted to
            grayscale or color to fit the network.
        invert, centre_ink : bool or "auto"
            See `Preprocessing.apply`; "auto" does the same as `minicaps.predict`. By default,
            images are inverted if the training images were.

        Returns
        -------
        A `Prediction`.

        Raises
        ------
        DataError
            If the images cannot be used.
        CheckpointError
            If the network outputs a non-finite score.
        """
        found, changes = [], {"invert": invert, "centre_ink": centre_ink}
        converted = self.expected_images().batches(images, EVALUATION_BATCH, **changes)
        with evaluating(self), no_grad(), one_blas_thread():
            for some in converted:
                activations = self(tensor_for(self, some)).activations
                found.append(to_host(self.probabilities(activations).data))
        names = self.class_names
        rows = np.concatenate(found) if found else np.zeros((0, len(names)), np.float32)
        if not np.isfinite(rows).all():
            raise CheckpointError(
                "the network's scores are infinite or NaN, which usually means that training"
                " diverged: use an earlier checkpoint"
            )
        if self.multi:
            classes = [
                tuple(n for n, p in zip(names, row, strict=True) if p > SEEN) for row in rows
            ]
        else:
            classes = [names[k] for k in rows.argmax(axis=1)]
        return Prediction(classes, rows, names)
