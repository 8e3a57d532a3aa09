"""Convolution by patches that stay in a core's cache; the CPU's fast path for small images.

Each core takes a share of the batch and works on a few images at a time: it copies their patches to
a workspace, multiplies them by the kernels while they are still in its cache, and then uses the
workspace again. The bias and the ReLU are applied in the same pass. With the notation of `conv`,
patches X (B·P·Q, K·L·C) and kernels W (K·L·C, O),

    y = relu(X W + b)
    d = ȳ ∘ [y > 0],   W̄ = Xᵀ d,   b̄ = Σ d,   x̄ = the sum of d W_klᵀ over all taps (k, l)

where a bar denotes ∂loss/∂. Adding up x̄ is memory-bound. With stride s, the taps l to l + s − 1 of
neighboring windows are neighbors too, so they are computed and added together, in long runs.

The method depends only on shapes, dtypes and the number of cores, so a run can be repeated exactly.
`conv.by_patches` is the plain twin.
"""

import itertools
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from minicaps.backend import array_module
from minicaps.ops.activation import relu as rectify
from minicaps.ops.shape import output_size
from minicaps.sums import over_points, total
from minicaps.threads import in_threads, over_parts, parts

# Bytes of a workspace: larger ones leave a core's cache (2 MiB where this was measured), and
# smaller ones cost more calls, each of which may wait for Python's global interpreter lock
ROOM = 1280 * 2**10


def fits(image, kernel, bias, stride):
    """Return True if a workspace holds the patches of an image, for floats on the CPU."""
    dtypes = {a.dtype.name for a in (image, kernel, bias) if a is not None}
    if array_module(image) is not np or dtypes not in ({"float32"}, {"float64"}):
        return False
    patches = math.prod((*_outputs(image, kernel, stride), *kernel.shape[1:])) * image.itemsize
    return len(image) * len(kernel) > 0 and 0 < patches <= ROOM


def in_cache(image, kernel, bias, stride, relu):
    """Correlate image (B, H, W, C) with kernel (O, K, L, C), add `bias` and apply a ReLU.

    bias: (O,) or None. relu: whether to apply a ReLU. Returns y (B, P, Q, O) and a function that
    takes the gradient of y and three booleans, and returns the required gradients of `image`,
    `kernel` and `bias`.
    """
    o, p, q = len(kernel), *_outputs(image, kernel, stride)
    matrix = np.ascontiguousarray(kernel.reshape(o, -1).T)  # W
    repeated = None if bias is None else np.tile(bias, p * q)  # long rows are added faster
    y = np.empty((len(image), p, q, o), image.dtype)
    shares = parts(len(image))

    def correlate(share):
        for some, patches in _patches(image, kernel, stride, share):
            out = y[some].reshape(-1, p * q * o)
            np.matmul(patches, matrix, out=out.reshape(-1, o))
            if bias is not None:
                out += repeated
            if relu:
                np.maximum(out, 0, out=out)

    def of_kernel(g, share):
        of_matrix, of_bias = np.zeros((o, len(matrix)), g.dtype), np.zeros(o, g.dtype)
        for some, patches in _patches(image, kernel, stride, share):
            d = _before_relu(g[some], y[some], relu)
            of_matrix += over_points(d.T, patches)
            of_bias += over_points(np.ones((1, len(d)), g.dtype), d)[0]
        return of_matrix.reshape(kernel.shape), of_bias

    def of_image(g, grad_image, taps, share):
        most = max(image[0].size, p * q * max(o, stride * kernel.shape[3]))  # values per image
        for some in _few(share, most * g.itemsize):
            d, grad_image[some] = _before_relu(g[some], y[some], relu), 0
            for matrix, pixels in taps:
                seen = pixels[some]
                seen += (d @ matrix).reshape(seen.shape)

    def sweep(g, wanted):
        grad_image, of_parameters = None, (None, None)
        if wanted[0]:
            grad_image = np.empty_like(image)
            taps = _taps(grad_image, kernel, stride)
            list(in_threads(lambda share: of_image(g, grad_image, taps, share), shares))
        if wanted[1] or wanted[2]:
            each = in_threads(lambda share: of_kernel(g, share), shares)
            of_parameters = (sum(rest, first) for first, *rest in zip(*each, strict=True))
        return grad_image, *of_parameters

    list(in_threads(correlate, shares))
    return y, sweep


def _before_relu(g, y, relu):
    """Return d, the gradient before the ReLU, as rows (·, O)."""
    if not relu:
        return g.reshape(-1, g.shape[-1])
    d = np.empty(y.shape, g.dtype)
    np.greater(y, 0, out=d)  # 1 or 0: a product with booleans would be slower
    d *= g
    return d.reshape(-1, g.shape[-1])


def _outputs(image, kernel, stride):
    """Return the size (P, Q) of the output."""
    sides = zip(image.shape[1:3], kernel.shape[1:3], strict=True)
    return tuple(output_size(n, k, stride) for n, k in sides)


def _few(share, size):
    """Split a slice of the batch into slices of as many images of `size` bytes as ROOM holds."""
    cut = parts(share.stop - share.start, max(1, ROOM // size), workers=1)
    return [slice(share.start + some.start, share.start + some.stop) for some in cut]


def _windows(image, kernel, stride, writeable=False):
    """Return a view (B, P, Q, C, K, L) of all windows of images (B, H, W, C)."""
    seen = sliding_window_view(image, kernel.shape[1:3], axis=(1, 2), writeable=writeable)
    return seen[:, ::stride, ::stride]


def _patches(image, kernel, stride, share):
    """Yield slices of a few images and their patches X (·, K·L·C), which share one workspace.

    The patches are copied in long contiguous runs: patch by patch or, with few channels, one
    position of all patches at a time, which gives the transpose of X.
    """
    view = _windows(image, kernel, stride)
    (q, c, k, l), each = view.shape[2:], view[:1].size
    order, patch_first = ((4, 5, 3, 0, 1, 2), False) if l * c < q else ((0, 1, 2, 4, 5, 3), True)
    workspace = np.empty(each * max(1, ROOM // (each * image.itemsize)), image.dtype)
    for some in _few(share, each * image.itemsize):
        seen = view[some].transpose(order)
        held = workspace[: seen.size].reshape(seen.shape)
        held[...] = seen
        yield some, held.reshape(-1, k * l * c) if patch_first else held.reshape(k * l * c, -1).T


def _taps(image, kernel, stride):
    """Return pairs of a matrix W_klᵀ (O, m·C) of m taps and the pixels (B, P, Q, m, C) they read.

    The m ≤ s taps are neighbors in a row; the pixels are a view of `image` (B, H, W, C).
    """
    view, (o, rows, columns, _) = _windows(image, kernel, stride, writeable=True), kernel.shape
    taps = []
    for k, l in itertools.product(range(rows), range(0, columns, stride)):
        some = slice(l, min(l + stride, columns))
        matrix = np.ascontiguousarray(kernel[:, k, some]).reshape(o, -1)
        taps.append((matrix, view[..., k, some].swapaxes(3, 4)))
    return taps


def with_passes(correlate, image, kernel, bias, stride, relu):
    """Return the same as `in_cache` for another method, with passes for the bias and the ReLU.

    correlate(image, kernel, stride) returns y and its pullback to the image and the kernel.
    """
    xp = array_module(image)
    y, pull = correlate(image, kernel, stride)
    if bias is not None:
        y = y.astype(xp.result_type(y.dtype, bias.dtype), copy=False)
        over_parts(lambda part: xp.add(y[part], bias, out=y[part]), y)
    y, before_relu = rectify.raw(y) if relu else (y, lambda g: g)

    def sweep(g, wanted):
        g = before_relu(g)
        return *pull(g, wanted[:2]), total(g, (0, 1, 2)) if wanted[2] else None

    return y, sweep
