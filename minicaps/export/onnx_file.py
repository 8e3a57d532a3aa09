"""Write a network as an ONNX file, after ONNX Runtime has computed the same as minicaps."""

import json

import numpy as np
import onnx
import onnxruntime

import minicaps
from minicaps.data import download
from minicaps.errors import UserError
from minicaps.export.description import description_of
from minicaps.export.onnx_networks import INPUT, network_graph
from minicaps.graph import no_grad
from minicaps.models.base import evaluating
from minicaps.models.inputs import tensor_for
from minicaps.runs.run import dataset
from minicaps.runs.tensors_file import KEY
from minicaps.storage import replacing

TOLERANCE = 1e-5  # relative to probabilities above 1, as lengths without a squash may be
COUNT = 32  # images of the check
LIMIT = 2**31  # bytes of a file in the format of ONNX


def write(run, path):
    """Write the network of a `minicaps.runs.Run` to `path` atomically; return notes on the check.

    Raises UserError if the network cannot be exported or the check fails.
    """
    size = 4 * run.model.number_of_parameters()
    if size >= LIMIT:
        raise UserError(
            f"{run.path} has {size / 1e9:.1f} GB of parameters in float32, but an ONNX file holds"
            " less than 2.1 GB: choose --to safetensors"
        )
    content = serialized(run)
    images, what = images_for(run)
    found = largest_difference(content, run.model, images)
    if not found <= TOLERANCE:  # nor NaN
        raise UserError(
            f"the probabilities of ONNX Runtime {onnxruntime.__version__} differ from those of"
            f" minicaps by {found:.1e}, but at most {TOLERANCE:.0e} was expected, so nothing is"
            " written: choose --to safetensors, and report this"
        )
    with replacing(path) as file:
        file.write(content)
    return [f"ONNX Runtime {onnxruntime.__version__} differs by at most {found:.1e} on {what}"]


def serialized(run):
    """Return the bytes of an ONNX file for a run, with the description in its metadata."""
    model, description = network_graph(run.model), description_of(run, inverts=True)
    onnx.helper.set_model_props(model, {KEY: json.dumps(description)})
    model.producer_name, model.producer_version = "minicaps", minicaps.__version__
    model.doc_string = f"Input: {description['input']}.\nOutput: {description['output']}."
    onnx.checker.check_model(model)
    return model.SerializeToString()


def images_for(run):
    """Return images for the check, prepared for the network, and what they are.

    They are images of the run's data or, if these are not on this machine or have another size,
    random ones. Nothing is downloaded.
    """
    source = run.options.data
    try:
        if source.name not in download.SOURCES or _is_here(source):
            test = dataset(run, test_only=True).test
            images, _ = test.pick(np.arange(min(COUNT, len(test))))
            if len(images) > 1 and images.shape[1:] == run.input_shape:
                return images, f"{len(images)} images of {source.name}"
    except (UserError, OSError, TypeError, ValueError):
        pass
    images = np.random.default_rng(0).random((COUNT, *run.input_shape), dtype=np.float32)
    return images, f"{COUNT} random images, since {source.name} cannot be read as in training"


def _is_here(source):
    files = download.SOURCES[source.name].md5
    return all(download.find(source.name, file, source.data_dir) for file in files)


def largest_difference(content, model, images):
    """Return the largest difference between the probabilities of ONNX Runtime and of minicaps.

    content: the bytes of the file. images: at least two, prepared for the network. One image alone
    and all others make two batches of different sizes.
    """
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with evaluating(model), no_grad():
        activations = model(tensor_for(model, images)).activations
        expected = model.probabilities(activations).data
    pixels = 1 - images if model.preprocessing.inverted else images  # as the graph takes them
    batches = pixels[:1], pixels[1:]
    found = np.concatenate([session.run(None, {INPUT: batch})[0] for batch in batches])
    return float((abs(found - expected) / np.maximum(1, abs(expected))).max())
