"""Convolution in the frequency domain, computed by matrix products.

By the convolution theorem, the circular correlation of two planes is the product of their discrete
Fourier transforms at each frequency. For a stride s, the image and the kernel are split into s·s
phases (every s-th row and column), each of which is correlated with stride 1. In real arithmetic,
the theorem becomes a bilinear algorithm that consists of three linear maps and products between
them,

    y = Cᵀ [(A x) ∘ (B w)]       A maps image planes, B kernels and C outputs.

With Gauss's method, (a + ib)(c − id) takes three real products, a·c, b·d and (a + b)·(c − d), and
the sums in these products form rows of A, B and C. A real frequency takes a single product. A 10×10
plane therefore takes 148 products, and the four phases of stride 2 take 592 products. By
comparison, a 9×9 kernel at 6×6 positions takes 2,916 products. Each of these products is a matrix
product over images, channels and phases and is computed by BLAS. Gradients use the transposed maps.

The notation is that of `conv`. In addition, N×M is the plane of one phase, R×S is the kernel of one
phase, T = s·s·C, and F is the number of products.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minicaps.backend import array_module
from minicaps.ops.shape import output_size
from minicaps.threads import matmul, over_parts

LARGEST_PLANE = 32 * 32  # pixels
FEWEST_PLANES = 8  # per image, counting phases and channels
PART = 2**20  # values of a spectrum that are computed at a time: fewer cost more calls


class Transform(NamedTuple):
    """A linear map from planes (R, S) to F values, applied along the rows and then the columns.

    The real row frequencies come first, followed by the real and imaginary parts of the complex
    ones. The planes are the phases of a few images at a time, so that all steps stay in the cache.
    """

    rows: np.ndarray  # (N, R)
    single: np.ndarray  # (f, S), for a real row frequency
    pair: np.ndarray  # (3 M, 2 S), for the real and imaginary parts of a complex one

    def __call__(self, images, stride=1):
        """Apply the map to the phases of images (A, H, W, C), which gives (F, A, s·s·C)."""
        xp, (size, columns) = array_module(images), (self.rows.shape[1], self.single.shape[1])
        depth = stride * stride * images.shape[3]
        spectrum = xp.empty((self.number, len(images), depth), self.rows.dtype)

        def transform(some):
            planes = _split(images[some], (size, columns), stride)
            between = self.rows @ planes.reshape(size, -1)
            for matrix, part, before in self._steps(spectrum[:, some], between):
                xp.matmul(matrix, before, out=part)

        over_parts(transform, spectrum.swapaxes(0, 1), PART)
        return spectrum

    def transpose(self, spectrum, shape, stride=1):
        """Apply the transposed map, from (F, A, s·s·C) to images of the given shape."""
        xp, columns = array_module(spectrum), self.single.shape[1]
        images = xp.empty(shape, spectrum.dtype)

        def transform(some):
            few, depth = spectrum[0, some].shape
            between = xp.empty((len(self.rows), columns * few * depth), spectrum.dtype)
            for matrix, part, before in self._steps(spectrum[:, some], between):
                xp.matmul(matrix.T, part, out=before)
            planes = (self.rows.T @ between).reshape(self.rows.shape[1], columns, few, depth)
            images[some] = _join(planes, (few, *shape[1:]), stride)

        over_parts(transform, spectrum.swapaxes(0, 1), PART)
        return images

    @property
    def number(self):
        """The number of products, F."""
        real = _real(len(self.rows))
        return real * len(self.single) + (len(self.rows) - real) // 2 * len(self.pair)

    @property
    def multiplications(self):
        """The number of multiplications needed to transform one plane."""
        real, (n, rows), columns = _real(len(self.rows)), self.rows.shape, self.single.shape[1]
        return n * rows * columns + real * self.single.size + (n - real) // 2 * self.pair.size

    def _steps(self, spectrum, between):
        """Yield (matrix, part of `spectrum`, part of `between`) for real and complex rows.

        The parts are views with an axis for the row frequencies.
        """
        real = _real(len(self.rows))
        cut, k = real * len(self.single), math.prod(spectrum.shape[1:])
        for matrix, part, before in (
            (self.single, spectrum[:cut], between[:real]),
            (self.pair, spectrum[cut:], between[real:]),
        ):
            height, width = matrix.shape
            stack = len(part) // height
            yield matrix, part.reshape(stack, height, k), before.reshape(stack, width, k)


def _real(n):
    """Return the number of real frequencies, which are 0 and, if n is even, n/2."""
    return 2 - n % 2


GAUSS = {  # coefficients of (real part, imaginary part) in the three products
    "image": np.array([[1, 0], [0, 1], [1, 1]]),
    "kernel": np.array([[1, 0], [0, 1], [1, -1]]),
    "output": np.array([[1, -1], [1, 1], [0, 1]]),
}


@lru_cache(maxsize=64)
def transform(plane, size, role, dtype, xp):
    """Return the map A, B or C for arrays that fill the first `size` rows and columns of a plane.

    plane: the size (N, M). role: "image", "kernel" or "output". dtype, xp: dtype and array module
    of the matrices.
    """
    (n, m), triple = plane, GAUSS[role]

    def waves(n, count):
        """Return e^−iθ for all n frequencies, the real ones, and one of each conjugate pair."""
        wave = np.exp(-2j * np.pi / n * (np.outer(np.arange(n), np.arange(count)) % n))
        real = np.arange(_real(n)) * (n // 2)
        return wave, wave[real].real, wave[1 : (n + 1) // 2]

    _, real, others = waves(n, size[0])
    pairs = np.stack([others.real, others.imag], 1)
    rows = np.concatenate([real, pairs.reshape(-1, size[0])])

    wave, real, others = waves(m, size[1])
    threefold = np.einsum("gp,pls->gls", triple, np.stack([others.real, others.imag]))
    # Coefficients of x and y in the real and imaginary parts of (x + iy)(re + i im)
    re, im = wave.real, wave.imag
    parts = np.stack([np.concatenate([re, -im], 1), np.concatenate([im, re], 1)])
    pair = np.einsum("gp,pls->gls", triple, parts).reshape(-1, 2 * size[1])
    once = twice = 1.0
    if role == "output":  # each omitted frequency is the conjugate of one kept
        once, twice = 1 / (n * m), 2 / (n * m)
    single = np.concatenate([once * real, twice * threefold.reshape(-1, size[1])])
    return Transform(*(xp.asarray(a.astype(dtype)) for a in (rows, single, twice * pair)))


def _sizes(image_shape, kernel_shape, stride):
    """Return the sizes of an image phase (N, M), a kernel phase (R, S) and the output (P, Q)."""
    sides = zip(image_shape[1:3], kernel_shape[1:3], strict=True)
    out = tuple(output_size(n, k, stride) for n, k in sides)
    taps = tuple(-(-k // stride) for k in kernel_shape[1:3])
    # The last output reads up to plane row P + R − 2, so no kept output contains a wraparound.
    return tuple(p + r - 1 for p, r in zip(out, taps, strict=True)), taps, out


def _maps(image_shape, kernel_shape, stride, dtype="float64", xp=np):
    """Return the result of `_sizes` and the three transforms for arrays of these sizes."""
    sizes = _sizes(image_shape, kernel_shape, stride)
    pairs = zip(sizes, GAUSS, strict=True)
    return sizes, [transform(sizes[0], size, role, dtype, xp) for size, role in pairs]


def multiplications(image_shape, kernel_shape, stride):
    """Count the multiplications of a forward and a backward pass.

    Returns (patches, products, planes, kernels).

    The first number is the cost of using patches; the others are those of using spectra: matrix
    products, transforms of the planes of images and outputs, and transforms of the kernels.
    """
    (b, _, _, c), (o, k, m, _) = image_shape, kernel_shape
    (_, _, out), maps = _maps(image_shape, kernel_shape, stride)
    t = stride * stride * c
    of_image, of_kernel, of_output = (a.multiplications for a in maps)
    planes = 2 * b * (t * of_image + o * of_output)
    patches = 3 * b * math.prod(out) * k * m * c * o
    return patches, 3 * maps[0].number * b * t * o, planes, 3 * t * o * of_kernel


def worthwhile(image, kernel, stride):
    """Return True if convolving with spectra is likely to be faster than with patches.

    Multiplications are counted and weighted by measured factors: products of spectra count twice
    because they involve smaller matrices, transforms of kernels four times because few products
    share their many frequencies, and patches three quarters because they are used while in the
    cache. For CapsNet's 9×9 kernels of stride 2 on 256 channels and 128 images of 20×20 pixels,
    patches take 73 G multiplications, while spectra take 15 G for the products and 2 G for the
    transforms, 1 G of which are those of the kernels, however few the images are: for 16 images,
    patches are faster. For 3×3 kernels with stride 2, they always are.

    Spectra are not used for half precision and integers. They are not used for few channels either,
    because the products would not be matrix products, or for large planes, because the spectra of
    the kernels would be much larger than the kernels.
    """
    if not {image.dtype.name, kernel.dtype.name} <= {"float32", "float64"}:
        return False
    if stride * stride * image.shape[3] < FEWEST_PLANES:
        return False
    if math.prod(_sizes(image.shape, kernel.shape, stride)[0]) > LARGEST_PLANE:
        return False
    patches, products, planes, kernels = multiplications(image.shape, kernel.shape, stride)
    return 2 * products + planes + 4 * kernels < 0.75 * patches


def by_spectra(image, kernel, stride):
    """Correlate image (B, H, W, C) with kernel (O, K, L, C) in the frequency domain.

    Returns y (B, P, Q, O) and a function that computes the gradients of `image` and `kernel`. The
    results equal those of `conv.by_patches` up to rounding errors, which are at most

        16 ε K L Σ_c X_bc W_oc     in y of image b and channel o
        16 ε K L Σ_o G_bo W_oc     in x̄ of image b and channel c
        16 ε P Q Σ_b G_bo X_bc     in w̄ of the kernel o and channel c

    with the machine precision ε and the largest magnitudes X, W and G in the planes of x, w and ȳ.
    The sums are the largest values that the results could have. With patches, only the pixels of
    the window count; here it is the largest pixel of the plane, because every frequency depends on
    the whole plane. A bright image or channel does not disturb the others. Outputs that do not
    exceed their rounding errors are set to 0; gradients are left unchanged. A single infinite pixel
    turns all outputs of its image into NaN.

        y = Cᵀ[(A x) ∘ (B w)],   x̄ = Aᵀ[(C ȳ) ∘ (B w)],   w̄ = Bᵀ[(C ȳ) ∘ (A x)]

    where a bar denotes ∂loss/∂, and ∘ is a matrix product over images and channels per frequency.
    """
    # Why the bounds hold: A, B and C transform each plane on its own, so a plane's spectrum has an
    # error of a few ε times its largest value, X or W. The product ∘ sums x̂_bc ŵ_oc over c. Hence
    # the error in ŷ_bo is a few ε Σ_c X_bc W_oc, apart from the factors that count the pixels, and
    # Cᵀ only averages over the frequencies of b and o. No step mixes planes that the exact result
    # does not mix. The number 16 allows for the lengths of the sums, whose errors mostly cancel.
    xp = array_module(image)
    dtype = xp.result_type(image.dtype, kernel.dtype).name
    (_, _, out), (a, b, c) = _maps(image.shape, kernel.shape, stride, dtype, xp)

    def of_kernel():  # (F, O, T), the largest array here: computed twice instead of kept
        return b(kernel, stride)

    x = a(image, stride)  # (F, B, T)
    y = c.transpose(matmul(x, of_kernel().transpose(0, 2, 1)), (len(image), *out, len(kernel)))
    # Remove pure rounding errors: ReLU would pass half of them where a kernel sees only zeros.
    y *= ~_pure_errors(y, image, kernel)

    def sweep(g, wanted):
        nonlocal x
        g = c(g)  # (F, B, O)
        grad_image = grad_kernel = None
        if wanted[1]:
            grad_kernel = b.transpose(matmul(g.transpose(0, 2, 1), x), kernel.shape, stride)
        x = None  # no longer needed, as a pullback runs once
        if wanted[0]:
            grad_image = a.transpose(matmul(g, of_kernel()), image.shape, stride)
        return grad_image, grad_kernel

    return y, sweep


def _pure_errors(y, image, kernel):
    """Mark the values in y (B, P, Q, O) that do not exceed their rounding errors.

    A kernel may see only zeros, so the size of an image's errors is that of its largest output over
    all kernels, measured in units of their largest weights. But only channels that a kernel sees
    cause errors in its outputs: these are at most 8 ε √(K L Σ_c X_bc² W_oc²), in the notation of
    `by_spectra`, or 8 ε times its own largest output, if the terms add up to more. Non-finite
    values are ignored.
    """
    xp, limits = array_module(y), array_module(y).finfo(y.dtype)
    size, unit8, W = xp.abs(y), 8 * float(limits.eps), _largest(kernel)
    unit = xp.maximum(W.max(axis=1), float(limits.tiny))
    outputs = size.max(axis=(1, 2))
    largest = xp.where(xp.isfinite(outputs), outputs / unit, 0).max(axis=1)[:, None] * unit
    small = size <= xp.where(xp.isfinite(largest), unit8 * largest, 0)[:, None, None]
    # The second bound needs a scan of the pixels, and most images have no such small outputs
    some = np.flatnonzero(small.any(axis=(1, 2, 3))) if xp is np else slice(None)
    # In float64, squares of float32 neither overflow nor vanish.
    X, W = (a.astype(xp.float64) ** 2 for a in (_largest(image[some]), W))
    seen = xp.sqrt(math.prod(kernel.shape[1:3]) * (X @ W.T)).astype(y.dtype)
    enough = unit8 * xp.maximum(seen, outputs[some])[:, None, None]
    small[some] &= ~(size[some] > enough)
    return small


def _largest(planes):
    """Return the largest magnitude (A, C) in each plane of an array (A, H, W, C)."""
    xp = array_module(planes)
    largest = xp.empty((len(planes), planes.shape[3]), planes.dtype)

    def scan(part):
        some = planes[part]
        xp.maximum(some.max(axis=(1, 2)), -some.min(axis=(1, 2)), out=largest[part])

    over_parts(scan, planes)
    return largest


def _split(a, size, stride):
    """Split an array a (A, H, W, C) into phases (*size, A, s·s·C), cropped or padded to `size`."""
    height, width = (n * stride for n in size)
    a = a[:, :height, :width]
    if a.shape[1:3] != (height, width):
        missing = ((0, 0), (0, height - a.shape[1]), (0, width - a.shape[2]), (0, 0))
        a = array_module(a).pad(a, missing)
    phases = a.reshape(len(a), size[0], stride, size[1], stride, a.shape[3])
    return phases.transpose(1, 3, 0, 2, 4, 5).reshape(*size, len(a), -1)


def _join(phases, shape, stride):
    """Invert `_split`: (rows, columns, A, s·s·C) -> `shape` (A, H, W, C)."""
    rows, columns = phases.shape[:2]
    a, height, width, c = shape
    phases = phases.reshape(rows, columns, a, stride, stride, c).transpose(2, 0, 3, 1, 4, 5)
    joined = phases.reshape(a, rows * stride, columns * stride, c)[:, :height, :width]
    if joined.shape == shape:
        return joined
    missing = ((0, 0), (0, height - joined.shape[1]), (0, width - joined.shape[2]), (0, 0))
    return array_module(joined).pad(joined, missing)
