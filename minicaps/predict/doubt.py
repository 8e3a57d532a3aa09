"""Decide which classes a network sees in an image, and whether its prediction is in doubt."""

from minicaps.models.multilabel import SEEN

NAMED = 3  # classes listed by name in a doubt


def seen_classes(model, scores) -> tuple[list[str], str | None]:
    """Return the classes seen in an image and a description of any doubt about the prediction.

    Each loss teaches its own scale, and a class is seen if its value on this scale exceeds one
    half: a length or a probability is used as it is, the activations of capsules trained with
    cross-entropy are divided by their sum (their share), and those trained with the spread loss,
    which compares activations but sets no level, by the highest.

    The description is None for a clear prediction. For multi-label images, predictions with several
    classes or with no class are valid and raise no doubt.

    scores: {class name: score}, highest first.
    """
    what, whole = model.score, 1.0
    if model.shares:
        what, whole = "share", sum(scores.values())
    elif model.loss == "spread":
        what, whole = f"{model.score} relative to the highest", max(scores.values())
    seen = [name for name, value in scores.items() if value > SEEN * whole]
    if model.multi or len(seen) == 1:
        return seen, None
    if not seen:
        return seen, f"none of the classes is seen (no {what} is above {SEEN})"
    more = f" and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
    several = f"{', '.join(seen[:NAMED])}{more}"
    return seen, f"several classes are seen ({what} above {SEEN}): {several}"
