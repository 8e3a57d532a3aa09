"""Decide which classes a network sees in an image, and whether its prediction is in doubt."""

from minicaps.models.multilabel import SEEN

NAMED = 3  # classes listed by name in a doubt
# After the spread loss, a class is a rival if its activation exceeds this fraction of the highest;
# of 400 images of strokes, 97% of the predictions without a rival were correct, 64% of the others
RIVAL = 0.9


def seen_classes(model, scores) -> tuple[list[str], str | None]:
    """Return the classes seen in an image and a description of any doubt about the prediction.

    Each loss teaches its own scale. The margin loss teaches lengths, and logits become
    probabilities: a class is seen above one half. With cross-entropy, the same holds for a
    capsule's share of the sum of all lengths. The spread loss compares activations but sets no
    level: the classes that come close to the highest activation are seen.

    The description is None for a clear prediction. For multi-label images, predictions with several
    classes or with no class are valid and raise no doubt.

    scores: {class name: score}, highest first.
    """
    what, level, limit = model.score, f"above {SEEN}", SEEN
    if model.shares:
        what, limit = "share", SEEN * sum(scores.values())
    elif model.loss == "spread":
        level, limit = f"within {1 - RIVAL:.0%} of the highest", RIVAL * max(scores.values())
    seen = [name for name, value in scores.items() if value > limit]
    if model.multi or len(seen) == 1:
        return seen, None
    if not seen:
        return seen, f"none of the classes is seen (no {what} is {level})"
    more = f" and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
    return seen, f"several classes are seen ({what} {level}): {', '.join(seen[:NAMED])}{more}"
