"""Which parameters of a test the fast set leaves to the slow one."""

import pytest


def thinned(values, fast=1):
    """Values of an argument: all but the first `fast`, or but those in `fast`, are marked slow."""
    return _thinned([(value,) for value in values], fast if _is_int(fast) else [(v,) for v in fast])


def thinned_rows(rows, fast=1):
    """The same for rows of values, of several arguments."""
    return _thinned(list(rows), fast)


def _thinned(rows, fast):
    chosen = [n < fast if _is_int(fast) else row in fast for n, row in enumerate(rows)]
    return [
        pytest.param(*row, marks=() if keep else pytest.mark.slow)
        for row, keep in zip(rows, chosen, strict=True)
    ]


def _is_int(fast):
    return isinstance(fast, int)
