"""Tasks for `minicaps.bench`: forward and backward pass of a routing algorithm or a capsule layer.

Notation: batch size B, I children of N numbers, and J parents of D numbers.
"""

import numpy as np

from minicaps import Tensor, nn
from minicaps.routing.couplings import Windows

POSE = 16  # D


class Task:
    """Task that computes results = route(*arrays) and the gradients of Σ results · cotangents.

    route: function of tensors that returns `Routed`. arrays: inputs with respect to which gradients
    are computed; the memory order of the first one affects the speed, so each twin chooses its own.
    cotangents: one array for each result that is used, namely the poses and, for EM, the
    activations.
    """

    windows = None

    def __init__(self, route, arrays, cotangents):
        self.route, self.arrays, self.cotangents = route, arrays, cotangents

    def step(self):
        """Return Σ results · cotangents and its gradients."""
        tensors = [Tensor(x, requires_grad=True) for x in self.arrays]
        return self._differentiate(self.route(*tensors), tensors)

    def _differentiate(self, routed, tensors):
        pairs = zip(routed, self.cotangents, strict=False)
        loss = sum((x * g).sum() for x, g in pairs)
        loss.backward()
        return loss.item(), [t.grad for t in tensors]


class LayerTask(Task):
    """Task that runs a layer on its parameters and inputs.

    The arrays are the layer's weights, its other parameters, and its inputs, in this order.

    windows: the `Windows` of a convolutional layer, or None.
    """

    def __init__(self, layer, inputs, cotangents, windows=None):
        self.layer, self.inputs, self.windows = layer, inputs, windows
        arrays = [p.data for p in layer.parameters()] + inputs
        super().__init__(layer, arrays, cotangents)

    def step(self):
        self.layer.zero_grad()
        inputs = [Tensor(x, requires_grad=True) for x in self.inputs]
        return self._differentiate(self.layer(*inputs), self.layer.parameters() + inputs)


def votes_task(route, batch, children, parents):
    """Return a task that routes random votes of vector capsules."""
    rng = np.random.default_rng(0)
    votes = _normal(rng, batch, children, parents, POSE)
    return Task(route, [votes], [_normal(rng, batch, parents, POSE)])


def em_task(route, batch, children, parents):
    """Return a task that routes random votes by EM.

    As in a layer, the children form the last axis of the votes in memory.
    """
    rng = np.random.default_rng(0)
    votes = _normal(rng, batch, parents, POSE, children).transpose(0, 3, 1, 2)
    activations = rng.uniform(0.1, 0.9, (batch, children)).astype(np.float32)
    betas = _normal(rng, 2, parents)
    cotangents = [_normal(rng, batch, parents, POSE), _normal(rng, batch, parents)]
    return Task(route, [votes, activations, *betas], cotangents)


def dense_task(batch, children, parents, size, **options):
    """Return a task for a `DenseCaps` layer, as in CapsNet.

    options: options of the routing.
    """
    rng = np.random.default_rng(0)
    layer = nn.DenseCaps((children, size), (parents, POSE), rng, **options)
    capsules = 0.2 * _normal(rng, batch, children, size)
    return LayerTask(layer, [capsules], [_normal(rng, batch, parents, POSE)])


def conv_task(batch, side, types, parents, stride):
    """Return a task for a `ConvCaps` layer with 3×3 windows on a `side` × `side` grid."""
    rng = np.random.default_rng(0)
    layer = nn.ConvCaps((types, POSE), (parents, POSE), 3, rng, stride=stride)
    windows = Windows((side, side), 3, stride, types)
    capsules = 0.2 * _normal(rng, batch, side, side, types, POSE)
    cotangent = _normal(rng, batch, *windows.grid, parents, POSE)
    return LayerTask(layer, [capsules], [cotangent], windows)


def matrix_task(batch, side, types, parents, stride):
    """Return a task for a `MatrixConvCaps` layer with 3×3 windows on a `side` × `side` grid."""
    rng = np.random.default_rng(0)
    layer = nn.MatrixConvCaps(types, parents, 3, rng, stride=stride)
    windows = Windows((side, side), 3, stride, types)
    poses = _normal(rng, batch, side, side, types, 4, 4)
    activations = rng.uniform(0.1, 0.9, poses.shape[:4]).astype(np.float32)
    shape = batch, *windows.grid, parents
    cotangents = [_normal(rng, *shape, 4, 4), _normal(rng, *shape)]
    return LayerTask(layer, [poses, activations], cotangents, windows)


def _normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)
