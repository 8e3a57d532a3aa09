"""The public API as a type checker sees it: `mypy --strict tests/typed.py` must find nothing."""

from pathlib import Path
from typing import assert_type

import numpy as np

from minicaps import Tensor, no_grad, ops
from minicaps.clustering import Clusters, kmeans
from minicaps.data import Dataset, load
from minicaps.evaluate import evaluate
from minicaps.gradcheck import check_gradients
from minicaps.models import Network, Prediction, build
from minicaps.nn import Conv2d, DenseCaps
from minicaps.optim import Adam
from minicaps.routing import Routed, agreement
from minicaps.runs import load_model
from minicaps.train import fit

images = np.random.default_rng(0).random((4, 1, 28, 28))
x = Tensor(images, requires_grad=True)
assert_type(x + 1, Tensor)
assert_type(2 * x, Tensor)
assert_type(x[0].sum(axis=0), Tensor)
assert_type(ops.relu(x), Tensor)
assert_type(ops.softmax(x, axis=1), Tensor)
assert_type(ops.margin_loss(x, np.arange(4)), Tensor)
assert_type(Conv2d(1, 8, 5).forward(x), Tensor)
assert_type(DenseCaps((6, 8), (3, 4)).forward(x), Routed)
assert_type(agreement(x, iterations=2), Routed)
assert_type(agreement(x).poses, Tensor)
assert_type(kmeans(images, 2), Clusters)
assert_type(load("strokes", limit=10), Dataset)
model = build("capsnet", (1, 28, 28), 10, preset="small")
assert_type(model, Network)
assert_type(load_model(Path("run")), Network)
assert_type(fit(images, [0, 1, 2, 3], epochs=1), Network)
assert_type(model.predict(images), Prediction)
accuracy: float = evaluate(model, images, [0, 1, 2, 3])["accuracy"]
Adam(model, 1e-3).step()
check_gradients(ops.squash, images)
with no_grad():
    x.backward()
