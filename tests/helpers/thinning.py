"""Selection of the test parameters that run only in the slow set."""

import pytest


def thinned(values, fast=1):
    """Mark values of an argument as slow, except the first `fast` or those in `fast`."""
    return _thinned([(value,) for value in values], fast if _is_int(fast) else [(v,) for v in fast])


def thinned_rows(rows, fast=1):
    """Do the same for rows of values of several arguments."""
    return _thinned(list(rows), fast)


def _thinned(rows, fast):
    chosen = [n < fast if _is_int(fast) else row in fast for n, row in enumerate(rows)]
    return [
        pytest.param(*row, marks=() if keep else pytest.mark.slow)
        for row, keep in zip(rows, chosen, strict=True)
    ]


def _is_int(fast):
    return isinstance(fast, int)
