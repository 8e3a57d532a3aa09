"""What all networks share: class names, preprocessing, and predictions for images in memory."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minicaps import ops
from minicaps.backend import Array, to_host
from minicaps.data.preprocessing import Preprocessing
from minicaps.errors import CheckpointError
from minicaps.graph import no_grad
from minicaps.models.inputs import tensor_for
from minicaps.models.multilabel import SEEN
from minicaps.models.sizes import ChildrenGrid
from minicaps.nn import Module
from minicaps.tensor import Tensor

EVALUATION_BATCH = 250  # images at a time, where nothing is learned


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a network predicts for n images.

    classes: for each image the name of the most probable class; multi-label, a tuple with the names
    of all classes above one half. probabilities: (n, J). Lengths and activations of capsules are
    the probabilities that a class is present, each for itself; those of a network trained with the
    cross-entropy sum to 1. class_names: of the J classes.
    """

    classes: list
    probabilities: np.ndarray
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self):
        lines = [f"Prediction of {len(self)} images"]
        for name, row in list(zip(self.classes, self.probabilities, strict=True))[:10]:
            lines.append(f"  {name}  (highest probability {row.max():.3f})")
        return "\n".join(lines + ["  …"] * (len(self) > 10))


class Network(Module):
    """Base of the networks: images (B, C, H, W) to Routed, whose `activations` are (B, J).

    logits: whether activations are logits. score: what they are called once they are
    probabilities. children_grid: where the children of the class capsules lie; None without
    capsules. config: what `minicaps.models.build` needs to build the network again.
    class_names, preprocessing, multi and loss are known of a network that was trained: names of
    the J classes, what images it expects, whether an image may have any number of classes, and
    the loss.
    """

    logits: bool = False
    score: str = "probability"
    children_grid: ChildrenGrid | None = None
    routing_options: ClassVar[dict] = {}
    config: dict
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    multi: bool = False
    loss: str | None = None

    @property
    def raw_score(self) -> str:
        """What its activations are called."""
        return "logit" if self.logits else self.score

    @property
    def shares(self) -> bool:
        """Whether P(k) = a_k / Σ_j a_j: capsules trained with the cross-entropy."""
        return self.loss == "cross-entropy" and not self.logits and not self.multi

    def probabilities(self, activations: Tensor) -> Tensor:
        """Turn activations (B, J) into probabilities, as `Prediction` says."""
        if self.logits:
            return ops.sigmoid(activations) if self.multi else ops.softmax(activations)
        if self.shares:
            return activations / (activations.sum(axis=1, keepdims=True) + 1e-30)
        return activations

    def predict(
        self, images: Array | list, *, invert: bool | str = False, centre_ink: bool | str = False
    ) -> Prediction:
        """Predict the classes of images in memory, in evaluation mode; the network is unchanged.

        images: an array (n, H, W), (n, H, W, C) or (n, C, H, W), or a list of images of any sizes;
            see `minicaps.data.preprocessing.Preprocessing.batch` for what numbers they may hold.
            They are resized, and made grayscale or color, to fit the network.
        invert, centre_ink: see `Preprocessing.apply`; "auto" is what `minicaps.predict` does.

        Raises `DataError` for images that cannot be used.
        """
        found, was_training = [], self.training
        images = self.preprocessing.batch(images, invert=invert, centre_ink=centre_ink)
        self.eval()
        try:
            with no_grad():
                for k in range(0, len(images), EVALUATION_BATCH):
                    some = tensor_for(self, images[k : k + EVALUATION_BATCH])
                    found.append(to_host(self.probabilities(self(some).activations).data))
        finally:
            self.train(was_training)
        names = self.class_names
        rows = np.concatenate(found) if found else np.zeros((0, len(names)), np.float32)
        if not np.isfinite(rows).all():
            raise CheckpointError(
                "the network's scores are infinite or NaN, as after training that diverged: use an"
                " earlier checkpoint"
            )
        if self.multi:
            classes = [tuple(np.array(names)[row > SEEN].tolist()) for row in rows]
        else:
            classes = [names[k] for k in rows.argmax(axis=1)]
        return Prediction(classes, rows, names)
