"""Pooling over windows of NCHW images; `window` is a side length or (height, width)."""

from minicaps.backend import array_module
from minicaps.ops.conv import channels_last, check_window, pull_windows, windows
from minicaps.ops.reduce import mean
from minicaps.tensor import Tensor, op

__all__ = ["avg_pool2d", "global_avg_pool", "max_pool2d"]


def _all_windows(x, window, stride):
    """Return the channels-last images, their windows (B, P, Q, K, L, C) and the stride."""
    if x.ndim != 4:
        raise ValueError(f"pooling needs images (B, C, H, W), not {x.shape}")
    window = window if isinstance(window, tuple) else (window, window)
    if stride is None:
        if window[0] != window[1]:
            raise ValueError(f"specify a stride for windows of {window[0]}×{window[1]}")
        stride = window[0]
    check_window(x.shape, window, stride, 0)
    image = channels_last(x)
    return image, windows(image, window, stride), stride


@op
def avg_pool2d(x, *, window: int = 2, stride: int | None = None):
    """Mean of each window; by default, the stride equals the side of the window."""
    image, view, stride = _all_windows(x, window, stride)
    count = view.shape[3] * view.shape[4]

    def pullback(g):
        g = g.transpose(0, 2, 3, 1)[:, :, :, None, None] / count
        return pull_windows(image, array_module(x).broadcast_to(g, view.shape), stride)

    return view.mean(axis=(3, 4)).transpose(0, 3, 1, 2), pullback


@op
def max_pool2d(x, *, window: int = 2, stride: int | None = None):
    """Maximum of each window; equal maxima share the gradient equally."""
    image, view, stride = _all_windows(x, window, stride)
    y = view.max(axis=(3, 4), keepdims=True)

    def pullback(g):
        share = (view == y).astype(g.dtype)
        share /= share.sum(axis=(3, 4), keepdims=True)
        share *= g.transpose(0, 2, 3, 1)[:, :, :, None, None]
        return pull_windows(image, share, stride)

    return y[:, :, :, 0, 0].transpose(0, 3, 1, 2), pullback


def global_avg_pool(x: Tensor) -> Tensor:
    """Mean over all positions: (B, C, H, W) -> (B, C)."""
    return mean(x, axis=(2, 3))
