"""2-D convolution (cross-correlation, as usual in deep learning), in a plain and a fast version.

Notation: B is the batch size, C the number of input channels, H×W the size of an image, O the
number of output channels, K×L the size of a kernel and P×Q the size of the output. Images have NCHW
layout, and kernels have OIHW layout. The fast version stores the channels last in memory, so that
each row of a patch is a contiguous run of L·C numbers. This order matters because copying patches
dominates the cost.
"""

import itertools
import math

import numpy as np

from minicaps.backend import array_module
from minicaps.graph import joint
from minicaps.ops.activation import relu as rectify
from minicaps.ops.fourier import by_spectra, worthwhile
from minicaps.ops.patches import fits, in_cache, with_passes
from minicaps.ops.product import einsum
from minicaps.ops.shape import output_size, pad
from minicaps.tensor import Tensor, op
from minicaps.threads import in_threads, parts

__all__ = ["conv2d", "conv2d_plain"]

# Bytes of patches per block: larger blocks exceed the cache, and smaller ones slow BLAS down
WORKSPACE = 32 * 2**20


def _check(x, weight, bias, stride, padding):
    """Raise an error if the arguments of a convolution are invalid."""
    if x.ndim != 4 or weight.ndim != 4:
        given = f"{x.shape} and {weight.shape}"
        raise ValueError(f"conv2d needs images (B, C, H, W) and kernels (O, C, K, L), not {given}")
    if x.shape[1] != weight.shape[1]:
        raise ValueError(f"the images have {x.shape[1]} channels but the kernels {weight.shape[1]}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"the bias must have shape {weight.shape[:1]}, not {bias.shape}")
    check_window(x.shape, weight.shape[2:], stride, padding)


def check_window(shape, window, stride, padding):
    """Raise an error if a window does not fit into images of shape (…, H, W)."""
    if not all(isinstance(n, int | np.integer) for n in (stride, padding)):
        raise TypeError(f"stride and padding must be integers, not {stride!r} and {padding!r}")
    if min(*window, stride) < 1 or padding < 0:
        given = f"{window}, {stride}, {padding}"
        raise ValueError(f"window and stride must be positive and padding nonnegative: {given}")
    if any(n + 2 * padding < k for n, k in zip(shape[-2:], window, strict=True)):
        (k, l), (h, w) = window, shape[-2:]
        raise ValueError(f"a {k}×{l} window does not fit into images of {h}×{w}, padding {padding}")


def windows(x, window, stride):
    """Return a view of all windows of channels-last images: (B, H, W, C) -> (B, P, Q, K, L, C)."""
    b, h, w, c = x.shape
    p, q = output_size(h, window[0], stride), output_size(w, window[1], stride)
    sb, sh, sw, sc = x.strides
    return array_module(x).lib.stride_tricks.as_strided(
        x, (b, p, q, *window, c), (sb, stride * sh, stride * sw, sh, sw, sc)
    )


def add_windows(total, g, stride):
    """Add g (B, P, Q, K, L, C) to total (B, H, W, C) in place.

    This operation is the transpose of `windows`.
    """
    for k, l, seen in _places(total, g.shape[3:5], stride, g.shape[1:3]):
        seen += g[:, :, :, k, l]


def _places(image, window, stride, outputs):
    """Yield k, l and a view (B, P, Q, C) of the pixels at position (k, l) in each window."""
    for k, l in itertools.product(*map(range, window)):
        rows, columns = (
            slice(first, first + stride * (n - 1) + 1, stride)
            for first, n in zip((k, l), outputs, strict=True)
        )
        yield k, l, image[:, rows, columns]


def pull_windows(image, g, stride):
    """Return the NCHW gradient of a channels-last `image`, given the gradient g of its windows."""
    total = array_module(image).zeros_like(image)
    add_windows(total, g, stride)
    return total.transpose(0, 3, 1, 2)


def channels_last(x, padding=0):
    """Return zero-padded NCHW images as a contiguous (B, H, W, C) array, copying only if needed."""
    xp = array_module(x)
    x = x.transpose(0, 2, 3, 1)
    if padding == 0:
        return xp.ascontiguousarray(x)
    return xp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))


def conv2d_plain(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: int = 1, padding: int = 0,
    relu: bool = False,
) -> Tensor:  # fmt: skip
    """Convolve directly from the definition: multiply each window by the kernel and sum.

    The arguments are those of `conv2d`.
    """
    _check(x, weight, bias, stride, padding)
    x = pad(x, width=((0, 0), (0, 0), (padding, padding), (padding, padding)))
    patches = _windows(x, window=weight.shape[2:], stride=stride)
    y = einsum("bpqklc,ockl->bopq", patches, weight)
    y = y if bias is None else y + bias.reshape(-1, 1, 1)
    return rectify(y) if relu else y


@op
def _windows(x, *, window, stride):
    """Return windows (B, P, Q, K, L, C) of NCHW images; gradients add up where windows overlap."""
    image = channels_last(x)
    return windows(image, window, stride), lambda g: pull_windows(image, g, stride)


@op
def conv2d(x, weight, bias=None, *, stride: int = 1, padding: int = 0, relu: bool = False):
    """Cross-correlate images x (B, C, H, W) with kernels `weight` (O, C, K, L) and add `bias` (O,).

    The result has shape (B, O, P, Q), where P = (H + 2·padding − K) // stride + 1 and similarly for
    Q. `relu` applies a ReLU to it. The convolution is computed from patches, or from Fourier
    spectra if they are cheaper (see `fourier.worthwhile`).
    """
    _check(x, weight, bias, stride, padding)
    image, kernel = channels_last(x, padding), weight.transpose(0, 2, 3, 1)
    correlate = by_spectra if worthwhile(image, kernel, stride) else by_patches
    if correlate is by_patches and fits(image, kernel, bias, stride):
        y, pull = in_cache(image, kernel, bias, stride, relu)
    else:
        y, pull = with_passes(correlate, image, kernel, bias, stride, relu)
    inside = slice(padding, -padding or None)

    def sweep(g, wanted):
        grad_image, grad_kernel, grad_bias = pull(channels_last(g), wanted)
        return (
            grad_image[:, inside, inside].transpose(0, 3, 1, 2) if wanted[0] else None,
            grad_kernel.transpose(0, 3, 1, 2) if wanted[1] else None,
            grad_bias,
        )

    return y.transpose(0, 3, 1, 2), joint(sweep)


def by_patches(image, kernel, stride):
    """Correlate image (B, H, W, C) with kernel (O, K, L, C) using a matrix product.

    Returns y (B, P, Q, O) and its pullback. The pullback takes the gradient g of y and two
    booleans, which specify whether the gradients of `image` and `kernel` are required. The patch
    matrix (B·P·Q, K·L·C) is multiplied by the kernel matrix (K·L·C, O) for a few images at a time.
    In CapsNet's second layer, the patches of a whole batch would take 380 MB, which would make
    memory access the bottleneck.
    """
    xp = array_module(image)
    o, *window, _ = kernel.shape
    matrix = kernel.reshape(o, math.prod(kernel.shape[1:]))  # (O, K·L·C)
    p, q = (output_size(n, k, stride) for n, k in zip(image.shape[1:3], window, strict=True))
    y = xp.empty((len(image), p, q, o), xp.result_type(image.dtype, kernel.dtype))
    blocks, areas = _blocks(y, matrix)
    each = in_threads if xp is np else map

    def patches(images, *area):
        sides = zip(area, window, strict=True)
        pixels = (slice(n.start * stride, (n.stop - 1) * stride + k) for n, k in sides)
        return _patches(image[images, *pixels], window, stride)

    def correlate(part):
        xp.matmul(patches(*part), matrix.T, out=_rows(y[part]))

    def of_kernel(g):
        return lambda part: _rows(g[part]).T @ patches(*part)

    def of_image(g, total):
        rows = _rows(g)
        for k, l, seen in _places(total, window, stride, (p, q)):
            seen += (rows @ kernel[:, k, l]).reshape(seen.shape)

    def pull(g, wanted):
        grad_image = grad_kernel = None
        if wanted[0]:
            grad_image = xp.zeros_like(image)
            list(each(lambda n: of_image(g[n], grad_image[n]), blocks))  # waits for all
        if wanted[1]:
            grad_kernel = xp.zeros_like(matrix)
            for part in each(of_kernel(g), areas):
                grad_kernel += part
            grad_kernel = grad_kernel.reshape(kernel.shape)
        return grad_image, grad_kernel

    list(each(correlate, areas))
    return y, pull


def _blocks(y, kernel):
    """Split y (B, P, Q, O) into parts of at most WORKSPACE bytes of patches, at least one per core.

    Returns slices of images, and the slices (images, rows, columns) of the parts: several images,
    or some rows of one image, or some columns of one row. A GPU needs few, large parts.
    """
    (b, p, q), on_cpu = y.shape[:3], array_module(y) is np
    patch = kernel.shape[1] * y.dtype.itemsize or 1  # bytes
    fit = max(1, (1 if on_cpu else 16) * WORKSPACE // patch)
    images = parts(b, max(1, fit // (p * q)), None if on_cpu else 1)
    rows = [slice(0, p)] if p * q <= fit else parts(p, max(1, fit // q))
    return images, list(itertools.product(images, rows, parts(q, fit, 1)))


def _rows(a):
    """Reshape (B, P, Q, O) to (B·P·Q, O)."""
    return a.reshape(math.prod(a.shape[:3]), a.shape[3])


def _patches(image, window, stride):
    """Return the patch matrix (B·P·Q, K·L·C) of a batch of images.

    The patches are copied in long contiguous runs. With many channels, the patches are copied row
    by row. With few channels, one position of all patches is copied at a time, and the resulting
    matrix is transposed.
    """
    view = windows(image, window, stride)
    size = math.prod(view.shape[3:])
    if math.prod(view.shape[4:]) < view.shape[2]:
        return view.transpose(3, 4, 5, 0, 1, 2).reshape(size, math.prod(view.shape[:3])).T
    return view.reshape(math.prod(view.shape[:3]), size)
