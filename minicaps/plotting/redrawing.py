"""Figure of images and their reconstructions by a network."""

from minicaps import plotting
from minicaps.models import inspection


def draw_reconstructions(model, split, class_names, path) -> str | None:
    """Draw the images of a split that `inspection.redrawn` chooses, and their reconstructions.

    Returns None or, if the reconstructions are blank, the reason why there is no figure.
    """
    images, drawn, *rest = inspection.redrawn(model, split, class_names)
    if inspection.blank(drawn):
        return inspection.BLANK
    draw = plotting.members if split.multi else plotting.reconstructions
    draw(images, drawn, *rest, path)
    return None
