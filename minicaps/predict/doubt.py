"""Decide which classes a network sees in an image, and whether its prediction is in doubt."""

from minicaps.models.multilabel import SEEN
from minicaps.models.rivals import RIVAL

NAMED = 3  # classes listed by name in a doubt


def limit_of(model, scores, rival=RIVAL) -> float:
    """Return the score above which a network sees a class in an image.

    Each loss teaches its own scale. The margin loss teaches lengths, and logits become
    probabilities: a class is seen above one half. With cross-entropy, the same holds for a
    capsule's share of the sum of all lengths. The spread loss compares activations but sets no
    level: the classes are seen whose ratio to the highest activation exceeds `rival`.

    scores: {class name: score}.
    """
    if model.shares:
        return SEEN * sum(scores.values())
    if model.loss == "spread":
        return rival * max(scores.values())
    return SEEN


def seen_classes(model, scores, rival=RIVAL) -> tuple[list[str], str | None]:
    """Return the classes seen in an image and a description of any doubt about the prediction.

    The description is None for a clear prediction. For multi-label images, predictions with several
    classes or with no class are valid and raise no doubt.

    scores: {class name: score}, highest first. rival: see `limit_of`.
    """
    what, level, limit = model.score, f"above {SEEN}", limit_of(model, scores, rival)
    if model.shares:
        what = "share"
    elif model.loss == "spread":
        level = f"within {100 * (1 - rival):.2g}% of the highest"
    seen = [name for name, value in scores.items() if value > limit]
    if model.multi or len(seen) == 1:
        return seen, None
    if not seen:
        return seen, f"none of the classes is seen (no {what} is {level})"
    more = f" and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
    return seen, f"several classes are seen ({what} {level}): {', '.join(seen[:NAMED])}{more}"
