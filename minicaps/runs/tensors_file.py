"""Networks in safetensors files, which other programs read and which cannot contain code.

A file holds the parameters and buffers of a network under their names, in row-major order, and one
text, which describes the network in JSON. The manual of `minicaps.export` lists all of them.
"""

import json

import numpy as np

from minicaps.errors import CheckpointError
from minicaps.storage import replacing

SUFFIX, KEY = ".safetensors", "minicaps"  # KEY: name of the description in a file's metadata
DTYPES = (np.float32, np.float64)


def save(path, state, description):
    """Write {name: array} and a JSON-serializable description to `path` atomically.

    Raises CheckpointError if writing fails, in which case an existing file remains unchanged.
    """
    import safetensors.numpy

    arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
    content = safetensors.numpy.save(arrays, metadata={KEY: json.dumps(description)})
    with replacing(path) as file:
        file.write(content)


def load(path, *, arrays=True):
    """Return the arrays and the metadata of a file as in a checkpoint with the group "model".

    arrays: whether to read the arrays. Raises CheckpointError without the package safetensors, and
    errors of any type for a damaged file.
    """
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise CheckpointError(
            f"{path} needs the package safetensors: install it with: pip install safetensors"
        ) from error
    with safe_open(path, framework="numpy") as file:
        description = (file.metadata() or {}).get(KEY)
        if description is None:
            raise ValueError("its metadata does not describe a network of minicaps")
        state = {name: file.get_tensor(name) for name in file.keys() if arrays}  # noqa: SIM118
    for name, array in state.items():
        if array.dtype not in DTYPES:
            raise ValueError(f"{name} is {array.dtype}, but float32 or float64 is expected")
    meta = json.loads(description)
    images = {"class_names": meta["class_names"], "multi": meta["multi_label"]}
    meta["preprocessing"] = {**meta["preprocessing"], **images}
    return {f"model/{name}": array for name, array in state.items()}, meta
