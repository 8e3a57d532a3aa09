"""The networks of `minicaps.models` as ONNX graphs.

A graph maps images (B, C, H, W), for any B, to the probabilities (B, J) of `Network.predict`, and
inverts light and dark itself if the training images were inverted.
"""

import math

from minicaps import models
from minicaps.errors import UserError
from minicaps.export import onnx_layers as layers
from minicaps.export import onnx_matrix as matrix
from minicaps.export.onnx_graph import Graph
from minicaps.models.matrix_capsnet import LAYERS
from minicaps.models.sizes import grid

INPUT, OUTPUT = "images", "probabilities"


def network_graph(model):
    """Return a network in evaluation mode as an `onnx.ModelProto`.

    Raises UserError if the network, or its routing, has no graph.
    """
    if type(model) not in GRAPHS:
        known = ", ".join(kind.__name__ for kind in GRAPHS)
        raise UserError(
            f"a {type(model).__name__} cannot be exported to ONNX, only {known}: choose --to"
            " safetensors"
        )
    graph, x = Graph(), INPUT
    if model.preprocessing.inverted:
        x = graph.add("Sub", 1.0, x)
    activations = GRAPHS[type(model)](graph, model, x)
    probabilities(graph, model, activations)
    inputs = {INPUT: ("B", *model.preprocessing.shape)}
    return graph.model(inputs, {OUTPUT: ("B", model.config["classes"])})


def probabilities(graph, model, activations):
    """Add the output, as in `Network.probabilities`."""
    if model.logits:
        operator, options = ("Sigmoid", {}) if model.sigmoids else ("Softmax", {"axis": 1})
        return graph.add(operator, activations, output=OUTPUT, **options)
    if model.shares:
        total = graph.add("Add", graph.add("ReduceSum", activations, [1]), 1e-30)
        return graph.add("Div", activations, total, output=OUTPUT)
    return graph.add("Identity", activations, output=OUTPUT)


# ---- functions that add the activations (B, J) of a network for images x


def capsnet(graph, model, x):
    for layer in model.convolutions:
        x = layers.convolution(graph, x, layer)
    children = math.prod(model.children_grid[:3])
    if not model.shared:
        u = layers.primary_capsules(graph, x, model.primary, children)
        return lengths(graph, layers.dense_capsules(graph, u, model.classes))
    joined = model.classes.weight.shape[1]  # numbers of all primary capsules at a position
    u = layers.primary_capsules(graph, x, model.primary, children * joined // model.primary.size)
    u = graph.add("Reshape", u, [0, children, joined])
    return lengths(graph, layers.shared_capsules(graph, u, model.classes, children))


def capsule_cnn(graph, model, x):
    children = math.prod(model.children_grid[:2])
    x = features(graph, model.features, x)
    u = layers.group_channels(graph, x, children, model.features.WIDTH)
    return lengths(graph, layers.shared_capsules(graph, u, model.classes, children))


def pooling_cnn(graph, model, x):
    operator = "ReduceMax" if model.pooling == "max" else "ReduceMean"
    x = graph.add(operator, features(graph, model.features, x), [2, 3], keepdims=0)
    if model.pooling == "sum":
        here = math.prod(grid(model.preprocessing.shape[1:], model.features.LAYERS))
        x = graph.add("Mul", x, here / model.positions)
    x = graph.add("Relu", layers.linear(graph, x, model.hidden))
    return graph.add("Sigmoid", layers.linear(graph, x, model.classes))


def baseline_cnn(graph, model, x):
    for layer in model.convolutions:
        x = convolution(graph, x, layer)
    x = layers.flattened(graph, x, model.hidden[0].weight.shape[0])
    for layer in model.hidden:
        x = graph.add("Relu", layers.linear(graph, x, layer))
    return layers.linear(graph, x, model.classes)


def dense_cnn(graph, model, x):
    for layer in model.convolutions:
        x = layers.convolution(graph, x, layer)
    x = layers.flattened(graph, x, model.hidden.weight.shape[0])
    x = graph.add("Relu", layers.linear(graph, x, model.hidden))
    return layers.linear(graph, x, model.classes)


def matrix_capsnet(graph, model, x):
    size = tuple(grid(model.preprocessing.shape[1:], LAYERS[:1]))
    x = layers.convolution(graph, x, model.convolution)
    x = graph.add("Relu", layers.batch_norm(graph, x, model.norm)) if model.norm else x
    poses, activations = matrix.primary_capsules(graph, x, model.primary, math.prod(size))
    for layer in model.capsules:
        found = matrix.convolutional_capsules(graph, poses, activations, layer, size)
        poses, activations, size = found
    return matrix.class_capsules(graph, poses, activations, model.classes, size)


GRAPHS = {
    models.CapsNet: capsnet,
    models.CapsuleCNN: capsule_cnn,
    models.PoolingCNN: pooling_cnn,
    models.BaselineCNN: baseline_cnn,
    models.DenseCNN: dense_cnn,
    models.MatrixCapsNet: matrix_capsnet,
}


# ---- parts that networks share


def convolution(graph, x, layer):
    """Add a `minicaps.models.cnn.Convolution`."""
    x = layers.convolution(graph, x, layer.conv)
    return graph.add("Relu", layers.batch_norm(graph, x, layer.norm)) if layer.norm else x


def features(graph, layer, x):
    """Add the `minicaps.models.cnn.Features` of images x."""
    for k, each in enumerate(layer.convolutions):
        if k == 2:
            x = graph.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = convolution(graph, x, each)
    return x


def lengths(graph, poses):
    """Add the lengths (B, J) of poses (B, J, D)."""
    return graph.add("ReduceL2", poses, [2], keepdims=0)
