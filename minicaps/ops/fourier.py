"""Convolution as a product of spectra, by matrix products.

The convolution theorem: where the circular correlation of two planes is wanted, their discrete
Fourier transforms multiply, frequency by frequency. A stride s splits image and kernel into s·s
phases (every s-th row and column), each of which is correlated with stride 1. Planes are small
here, so a transform is one product with a real matrix, which BLAS does for all images, channels
and phases at once and which leaves frequency as the first axis, as the products of spectra want.

Letters as in `conv`, and: N×M plane of one phase, R×S kernel of one phase, F frequencies kept (half
of N·M, since the planes are real), T = s·s·C. A spectrum is a pair (real part, imaginary part).
"""

import math
from functools import lru_cache

import numpy as np

from minicaps.backend import array_module

LARGEST_PLANE = 32 * 32  # pixels; the matrices of the transform then take 18 MB in float64


@lru_cache(maxsize=8)
def _waves(n, m):
    """Matrices of the transform of n×m planes, (2, F, n, m), and of its inverse, (n, m, 2, F)."""
    rows = np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
    columns = np.exp(-2j * np.pi * np.outer(np.arange(m // 2 + 1), np.arange(m)) / m)
    waves = np.einsum("an,bm->abnm", rows, columns).reshape(-1, n, m)  # (F, n, m)
    twice = np.full(m // 2 + 1, 2.0)  # a frequency that is left out is the conjugate of one kept
    twice[0] = 1
    if m % 2 == 0:
        twice[-1] = 1
    share = np.tile(twice, n)[:, None, None] / (n * m)
    forward = np.stack([waves.real, waves.imag])
    return forward, (forward * share).transpose(2, 3, 0, 1)


def multiplications(image_shape, kernel_shape, stride):
    """Count the multiplications of a forward and a backward pass: (by patches, by spectra)."""
    b, _, _, c = image_shape
    o, k, m, _ = kernel_shape
    out, taps, plane = _sizes(image_shape, kernel_shape, stride)
    t, f = stride * stride * c, plane[0] * (plane[1] // 2 + 1)
    products = 3 * 4 * b * t * o  # output and both gradients, four real ones for a complex one
    transforms = 4 * (b * t * math.prod(plane) + t * o * math.prod(taps) + b * o * math.prod(out))
    return 3 * b * math.prod(out) * k * m * c * o, f * (products + transforms)


def worthwhile(image, kernel, stride):
    """Tell whether spectra save at least a third of the multiplications that patches take.

    CapsNet's 9×9 kernels of stride 2 on 256 channels: 73 G by patches, 29 G by spectra, for 128
    images of 20×20. 3×3 kernels of stride 2 and single channels do not gain: there the transforms
    cost more than they save. Not for half precision, nor for integers, nor for planes whose
    matrices would take more memory than the images.
    """
    if not {image.dtype.name, kernel.dtype.name} <= {"float32", "float64"}:
        return False
    patches, spectra = multiplications(image.shape, kernel.shape, stride)
    plane = _sizes(image.shape, kernel.shape, stride)[2]
    return 3 * spectra < 2 * patches and math.prod(plane) <= LARGEST_PLANE


def by_spectra(image, kernel, stride):
    """Correlate image (B, H, W, C) with kernel (O, K, L, C).

    Returns y (B, P, Q, O) and two functions of g, which is like y: the gradients of image and
    kernel. Same as `conv.by_patches`, up to rounding: relative to the largest output of an image
    and channel, since every frequency sees the whole image. One infinite pixel makes all outputs
    of its image NaN.
    """
    xp = array_module(image)
    out, taps, plane = _sizes(image.shape, kernel.shape, stride)
    dtype = xp.result_type(image.dtype, kernel.dtype)
    waves, back_waves = (xp.asarray(a.astype(dtype)) for a in _waves(*plane))
    f = waves.shape[1]

    def transform(planes, conjugate=False):
        """Planes (rows, columns, A, T), the rest of N×M zero -> spectrum (2, F, A, T)."""
        rows, columns, a, t = planes.shape
        matrix = waves[:, :, :rows, :columns].reshape(2 * f, -1)
        if conjugate:
            matrix = xp.concatenate([matrix[:f], -matrix[f:]])
        return (matrix @ planes.reshape(rows * columns, -1)).reshape(2, f, a, t)

    def transform_back(spectrum, size):
        """Spectrum (2, F, A, T) -> the first rows and columns of its planes, (*size, A, T)."""
        matrix = back_waves[: size[0], : size[1]].reshape(-1, 2 * f)
        return (matrix @ spectrum.reshape(2 * f, -1)).reshape(*size, *spectrum.shape[2:])

    def of_output(g, conjugate=False):
        return transform(xp.ascontiguousarray(g.transpose(1, 2, 0, 3)), conjugate)  # (2, F, B, O)

    x = transform(_split(image, plane, stride))  # (2, F, B, T)
    w = transform(_split(kernel, taps, stride), conjugate=True)  # (2, F, O, T)
    y = transform_back(_multiply(x, w.transpose(0, 1, 3, 2)), out)  # (P, Q, B, O)
    del w  # the largest array here; made anew for the gradient

    def pull_image(g):
        w = transform(_split(kernel, taps, stride))
        return _join(transform_back(_multiply(of_output(g), w), plane), image.shape, stride)

    def pull_kernel(g):
        g = of_output(g, conjugate=True).transpose(0, 1, 3, 2)  # (2, F, O, B)
        return _join(transform_back(_multiply(g, x), taps), kernel.shape, stride)

    return y.transpose(2, 0, 1, 3), pull_image, pull_kernel


def _sizes(image_shape, kernel_shape, stride):
    """Sizes of the output (P, Q), of a phase of the kernel (R, S) and of the planes (N, M)."""
    out = tuple(
        (n - k) // stride + 1 for n, k in zip(image_shape[1:3], kernel_shape[1:3], strict=True)
    )
    taps = tuple(-(-k // stride) for k in kernel_shape[1:3])
    # The last output reads up to plane row P + R − 2: nothing wraps around into what is kept.
    return out, taps, tuple(p + r - 1 for p, r in zip(out, taps, strict=True))


def _multiply(a, b):
    """Product of complex matrices given as pairs of real ones, (2, F, …)."""
    xp = array_module(a)
    c = xp.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    xp.matmul(a[0], b[0], out=c[0])
    part = a[1] @ b[1]
    c[0] -= part
    xp.matmul(a[0], b[1], out=c[1])
    xp.matmul(a[1], b[0], out=part)
    c[1] += part
    return c


def _split(a, size, stride):
    """Phases of a (A, H, W, C), cut or padded to `size` rows and columns: (*size, A, s·s·C)."""
    height, width = (n * stride for n in size)
    a = a[:, :height, :width]
    if a.shape[1:3] != (height, width):
        missing = ((0, 0), (0, height - a.shape[1]), (0, width - a.shape[2]), (0, 0))
        a = array_module(a).pad(a, missing)
    phases = a.reshape(len(a), size[0], stride, size[1], stride, a.shape[3])
    return phases.transpose(1, 3, 0, 2, 4, 5).reshape(*size, len(a), -1)


def _join(phases, shape, stride):
    """The inverse of `_split`: (rows, columns, A, s·s·C) -> `shape` (A, H, W, C)."""
    rows, columns = phases.shape[:2]
    a, height, width, c = shape
    phases = phases.reshape(rows, columns, a, stride, stride, c).transpose(2, 0, 3, 1, 4, 5)
    joined = phases.reshape(a, rows * stride, columns * stride, c)[:, :height, :width]
    if joined.shape == shape:
        return joined
    missing = ((0, 0), (0, height - joined.shape[1]), (0, width - joined.shape[2]), (0, 0))
    return array_module(joined).pad(joined, missing)
