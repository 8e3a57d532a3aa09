"""Convolution as a product of spectra, by matrix products.

The convolution theorem: where the circular correlation of two planes is wanted, their discrete
Fourier transforms multiply, frequency by frequency. A stride s splits image and kernel into s·s
phases (every s-th row and column), each of which is correlated with stride 1. Written with real
numbers alone, the theorem is a bilinear algorithm: three linear maps, and products between them,

    y = Cᵀ [(A x) ∘ (B w)]       A of image planes, B of kernels, C of outputs.

(a + ib)(c − id) takes three real products, a·c, b·d and (a + b)·(c − d) (Gauss), whose sums are
rows of A, B and C; a frequency that is real takes one. So planes of 10×10 cost 148 products, the
four phases of a stride 2 cost 592, for the 2,916 of 9×9 kernels at 6×6 places. Each is a product of
matrices over images, channels and phases, which BLAS does. Gradients are the transposed maps.

Letters as in `conv`, and: N×M plane of one phase, R×S kernel of one phase, T = s·s·C, F products.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minicaps.backend import array_module
from minicaps.ops.shape import output_size
from minicaps.threads import matmul

LARGEST_PLANE = 32 * 32  # pixels
FEWEST_PLANES = 8  # of an image: phases and channels


class Transform(NamedTuple):
    """A linear map of planes (R, S, …) to F numbers each, (F, …): along rows, then columns.

    Row frequencies that are real come first, then real and imaginary parts of the others.
    """

    rows: np.ndarray  # (N, R)
    single: np.ndarray  # (f, S), of a real row frequency
    pair: np.ndarray  # (3 M, 2 S), of the real and imaginary part of another

    def __call__(self, planes):
        xp = array_module(planes)
        k = math.prod(planes.shape[2:])
        between = matmul(self.rows, planes.reshape(len(planes), -1))
        spectrum = xp.empty((self.number, k), planes.dtype)
        for matrix, part, before in self._steps(spectrum, between.reshape(-1, k)):
            matmul(matrix, before, out=part)
        return spectrum.reshape(self.number, *planes.shape[2:])

    def transpose(self, spectrum):
        """Apply the transposed map, (F, …) to (R, S, …)."""
        xp = array_module(spectrum)
        columns, k = self.single.shape[1], math.prod(spectrum.shape[1:])
        between = xp.empty((len(self.rows) * columns, k), spectrum.dtype)
        for matrix, part, before in self._steps(spectrum.reshape(-1, k), between):
            matmul(matrix.T, part, out=before)
        planes = matmul(self.rows.T, between.reshape(len(self.rows), -1))
        return planes.reshape(-1, columns, *spectrum.shape[1:])

    @property
    def number(self):
        """F, the number of products."""
        real = _real(len(self.rows))
        return real * len(self.single) + (len(self.rows) - real) // 2 * len(self.pair)

    @property
    def multiplications(self):
        """Their number for one plane."""
        real, (n, rows), columns = _real(len(self.rows)), self.rows.shape, self.single.shape[1]
        return n * rows * columns + real * self.single.size + (n - real) // 2 * self.pair.size

    def _steps(self, spectrum, between):
        """The two kinds of row frequencies: (matrix, part of spectrum, what it is made of)."""
        real, k = _real(len(self.rows)), spectrum.shape[1]
        cut, start = real * len(self.single), real * self.single.shape[1]
        for matrix, part, before in (
            (self.single, spectrum[:cut], between[:start]),
            (self.pair, spectrum[cut:], between[start:]),
        ):
            height, width = matrix.shape
            stack = len(part) // height
            yield matrix, part.reshape(stack, height, k), before.reshape(stack, width, k)


def _real(n):
    """Number of real frequencies of n real numbers: 0 and, of an even number, n/2."""
    return 2 - n % 2


GAUSS = {  # what of (real part, imaginary part) enters the three products
    "image": np.array([[1, 0], [0, 1], [1, 1]]),
    "kernel": np.array([[1, 0], [0, 1], [1, -1]]),
    "output": np.array([[1, -1], [1, 1], [0, 1]]),
}


@lru_cache(maxsize=64)
def transform(plane, size, role, dtype, xp):
    """The map A, B or C of planes (N, M), for arrays that fill the first `size` rows and columns.

    role: "image", "kernel" or "output". dtype and xp: of the matrices.
    """
    (n, m), triple = plane, GAUSS[role]

    def waves(n, count):
        """e^−iθ of all n frequencies, of those that are real, and of one of each pair of others."""
        wave = np.exp(-2j * np.pi / n * (np.outer(np.arange(n), np.arange(count)) % n))
        real = np.arange(_real(n)) * (n // 2)
        return wave, wave[real].real, wave[1 : (n + 1) // 2]

    _, real, others = waves(n, size[0])
    pairs = np.stack([others.real, others.imag], 1)
    rows = np.concatenate([real, pairs.reshape(-1, size[0])])

    wave, real, others = waves(m, size[1])
    threefold = np.einsum("gp,pls->gls", triple, np.stack([others.real, others.imag]))
    # (x + iy)(re + i im): parts of the product, of x and y
    re, im = wave.real, wave.imag
    parts = np.stack([np.concatenate([re, -im], 1), np.concatenate([im, re], 1)])
    pair = np.einsum("gp,pls->gls", triple, parts).reshape(-1, 2 * size[1])
    once = twice = 1.0
    if role == "output":  # a frequency that is left out is the conjugate of one kept
        once, twice = 1 / (n * m), 2 / (n * m)
    single = np.concatenate([once * real, twice * threefold.reshape(-1, size[1])])
    return Transform(*(xp.asarray(a.astype(dtype)) for a in (rows, single, twice * pair)))


def _sizes(image_shape, kernel_shape, stride):
    """Sizes of a phase of the image (N, M), of the kernel (R, S), and of the output (P, Q)."""
    sides = zip(image_shape[1:3], kernel_shape[1:3], strict=True)
    out = tuple(output_size(n, k, stride) for n, k in sides)
    taps = tuple(-(-k // stride) for k in kernel_shape[1:3])
    # The last output reads up to plane row P + R − 2: nothing wraps around into what is kept.
    return tuple(p + r - 1 for p, r in zip(out, taps, strict=True)), taps, out


def _maps(image_shape, kernel_shape, stride, dtype="float64", xp=np):
    """Sizes as in `_sizes`, and the three transforms of such arrays."""
    sizes = _sizes(image_shape, kernel_shape, stride)
    pairs = zip(sizes, GAUSS, strict=True)
    return sizes, [transform(sizes[0], size, role, dtype, xp) for size, role in pairs]


def multiplications(image_shape, kernel_shape, stride):
    """Count the multiplications of a forward and a backward pass: (patches, products, transforms).

    By patches there is one kind, by spectra there are two.
    """
    (b, _, _, c), (o, k, m, _) = image_shape, kernel_shape
    (_, _, out), maps = _maps(image_shape, kernel_shape, stride)
    t = stride * stride * c
    vectors = 2 * b * t, 3 * t * o, 2 * b * o  # how many planes are transformed
    transforms = sum(a.multiplications * n for a, n in zip(maps, vectors, strict=True))
    return 3 * b * math.prod(out) * k * m * c * o, 3 * maps[0].number * b * t * o, transforms


def worthwhile(image, kernel, stride):
    """Tell whether spectra cost less than patches, in multiplications.

    Those between spectra count twice, since their matrices are smaller; so measured. CapsNet's 9×9
    kernels of stride 2 on 256 channels, for 128 images of 20×20: 73 G by patches, 15 G and 2 G by
    spectra. 3×3 kernels of stride 2 do not gain. Not for few channels, whose spectra are no
    matrices, nor for half precision and integers, nor for large planes, whose kernels would have
    spectra much larger than themselves.
    """
    if not {image.dtype.name, kernel.dtype.name} <= {"float32", "float64"}:
        return False
    if stride * stride * image.shape[3] < FEWEST_PLANES:
        return False
    if math.prod(_sizes(image.shape, kernel.shape, stride)[0]) > LARGEST_PLANE:
        return False
    patches, products, transforms = multiplications(image.shape, kernel.shape, stride)
    return 2 * products + transforms < patches


def by_spectra(image, kernel, stride):
    """Correlate image (B, H, W, C) with kernel (O, K, L, C).

    Returns y (B, P, Q, O) and the sweep to the gradients of image and kernel. Same as
    `conv.by_patches`, up to rounding: relative to the largest output of an image and channel, since
    every frequency sees the whole image. Outputs within that error are 0; gradients within it are
    not. One infinite pixel makes all outputs of its image NaN.

        y = Cᵀ[(A x) ∘ (B w)],   x̄ = Aᵀ[(C ȳ) ∘ (B w)],   w̄ = Bᵀ[(C ȳ) ∘ (A x)]

    with a bar for ∂loss/∂; at each frequency, ∘ is a product of matrices over images and channels.
    """
    xp = array_module(image)
    dtype = xp.result_type(image.dtype, kernel.dtype).name
    (plane, taps, _), (a, b, c) = _maps(image.shape, kernel.shape, stride, dtype, xp)

    def of_kernel():  # (F, O, T), the largest array here: made twice, not kept
        return b(_split(kernel, taps, stride))

    x = a(_split(image, plane, stride))  # (F, B, T)
    y = c.transpose(matmul(x, of_kernel().transpose(0, 2, 1)))  # (P, Q, B, O)
    # What may be rounding alone is 0: where a kernel sees nothing, ReLU would let half of it by.
    y *= ~(xp.abs(y) <= _rounding(y, kernel))

    def sweep(g, wanted):
        nonlocal x
        g = c(xp.ascontiguousarray(g.transpose(1, 2, 0, 3)))  # (F, B, O)
        grad_image = grad_kernel = None
        if wanted[1]:
            grad_kernel = _join(b.transpose(matmul(g.transpose(0, 2, 1), x)), kernel.shape, stride)
        x = None  # not needed any more: a pullback runs once
        if wanted[0]:
            grad_image = _join(a.transpose(matmul(g, of_kernel())), image.shape, stride)
        return grad_image, grad_kernel

    return y.transpose(2, 0, 1, 3), sweep


def _rounding(y, kernel):
    """How large a rounding error in y (P, Q, B, O) may be: (B, O).

    By the largest output of each image, where outputs count in units of their kernel's largest
    weight, so that a weak kernel's are not lost. What is not finite does not count.
    """
    xp, limits = array_module(y), array_module(y).finfo(y.dtype)
    unit = xp.maximum(xp.abs(kernel).max(axis=(1, 2, 3)), float(limits.tiny))
    outputs = xp.abs(y).max(axis=(0, 1)) / unit
    largest = xp.where(xp.isfinite(outputs), outputs, 0).max(axis=1)[:, None]
    error = 8 * float(limits.eps) * largest * unit
    return xp.where(xp.isfinite(error), error, 0)


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
