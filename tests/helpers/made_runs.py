"""Networks whose every parameter matters, and run folders made of them without training."""

from pathlib import Path

import numpy as np

from minicaps import Tensor, models, no_grad
from minicaps.runs import checkpoint
from minicaps.runs.configuration import Options

NAMES = ("zero", "one", "twö", "3", "=4")


def network(name, image, **options):
    """Build a network of five classes in evaluation mode, without zeros among its parameters."""
    if "preset" in models.options_of(name):
        options.setdefault("preset", "small")
    model, rng = models.build(name, image, 5, seed=1, **options), np.random.default_rng(2)
    state = model.state_dict()
    for key, array in state.items():
        size = 0.1 * np.sqrt((array**2).mean()) or 0.1
        size = 200 if "beta_a" in key else size  # EM multiplies it by λ, which is about 0.001
        array = array + size * rng.standard_normal(array.shape)
        state[key] = (abs(array) if key.endswith("variance") else array).astype(np.float32)
    model.load_state_dict(state)
    return model.eval()


def random_images(count, image):
    return np.random.default_rng(0).random((count, *image), dtype=np.float32)


def probabilities(model, images):
    with no_grad():
        return model.probabilities(model(Tensor(images)).activations).numpy()


def made_run(folder, name, image=(1, 20, 20), *, preprocessing=(), training=(), **options):
    """Write a run folder with a network of five classes, and return both.

    preprocessing, training: entries of the checkpoint's metadata.
    """
    model = network(name, image, **options)
    known = {"class_names": NAMES, "background": "dark", "inverted": False, "fill": None}
    known |= {"scale": None, "multi": False, **dict(preprocessing)}
    chosen = Options().to_dict() | {"model": name, "loss": "margin", **dict(training)}
    meta = {"model": model.config, "preprocessing": known, "options": chosen}
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    arrays = checkpoint.pack(model=model.state_dict())
    checkpoint.save(folder / "best.npz", arrays, meta)
    return folder, model
