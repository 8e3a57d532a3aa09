"use strict";
// Images { data, shape: [C, H, W] } with values in [0, 1]: how files and strokes become what the
// network was trained on, and how images are turned, moved and spoiled.

function blank([C, H, W], value = 0) {
  return { data: new Float32Array(C * H * W).fill(value), shape: [C, H, W] };
}

// Python's round: halves go to the even neighbor.
function rounded(x) {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low % 2 !== 0) : Math.round(x);
}

// The weights with which Pillow's BILINEAR resamples n pixels into m: a triangle, widened if m < n.
function triangles(n, m) {
  const scale = n / m, reach = Math.max(scale, 1);
  return Array.from({ length: m }, (_, to) => {
    const middle = (to + 0.5) * scale;
    const first = Math.max(0, Math.floor(middle - reach + 0.5));
    const last = Math.min(n, Math.floor(middle + reach + 0.5));
    const weights = [];
    for (let k = first; k < last; k++) weights.push(Math.max(0, 1 - Math.abs((k - middle + 0.5) / reach)));
    const total = weights.reduce((a, b) => a + b, 0);
    return { first, weights: weights.map((w) => w / total) };
  });
}

function resized({ data, shape: [C, H, W] }, height, width) {
  const across = triangles(W, width), down = triangles(H, height);
  const narrow = new Float32Array(C * H * width), made = new Float32Array(C * height * width);
  for (let row = 0; row < C * H; row++)
    across.forEach(({ first, weights }, x) => {
      narrow[row * width + x] = weights.reduce((sum, w, k) => sum + w * data[row * W + first + k], 0);
    });
  for (let c = 0; c < C; c++)
    down.forEach(({ first, weights }, y) => {
      for (let x = 0; x < width; x++)
        made[(c * height + y) * width + x] = weights.reduce(
          (sum, w, k) => sum + w * narrow[(c * H + first + k) * width + x], 0);
    });
  return { data: made, shape: [C, height, width] };
}

// minicaps.data.images.LUMINANCE
function inChannels({ data, shape: [C, H, W] }, channels) {
  if (C === channels) return { data, shape: [C, H, W] };
  const size = H * W, made = blank([channels, H, W]);
  for (let k = 0; k < channels * size; k++)
    made.data[k] = C === 1 ? data[k % size]
      : 0.299 * data[k] + 0.587 * data[size + k] + 0.114 * data[2 * size + k];
  return made;
}

function median(values) {
  const sorted = Float32Array.from(values).sort(), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// minicaps.data.images.border_color: the median of the border, by channel
function borderColor({ data, shape: [C, H, W] }) {
  return Array.from({ length: C }, (_, c) => {
    const at = (y, x) => data[(c * H + y) * W + x], edge = [];
    for (let x = 0; x < W; x++) edge.push(at(0, x), at(H - 1, x));
    for (let y = 0; y < H; y++) edge.push(at(y, 0), at(y, W - 1));
    return median(edge);
  });
}

// Put a smaller image into a larger one at row `top` and column `left`.
function placed(image, into, top, left) {
  const [C, h, w] = image.shape, [, H, W] = into.shape;
  for (let c = 0; c < C; c++)
    for (let y = 0; y < h; y++)
      for (let x = 0; x < w; x++)
        into.data[(c * H + top + y) * W + left + x] = image.data[(c * h + y) * w + x];
  return into;
}

// minicaps.data.images.fit: resize to fit, and pad with `fill` or the color of the border
function fit(image, height, width, fill = null) {
  const [C, h, w] = image.shape, scale = Math.min(height / h, width / w);
  const rows = Math.max(1, rounded(h * scale)), columns = Math.max(1, rounded(w * scale));
  const colors = fill === null ? borderColor(image) : new Array(C).fill(fill);
  const fitted = blank([C, height, width]);
  fitted.data.forEach((_, k) => (fitted.data[k] = colors[Math.floor(k / (height * width))]));
  const made = h === rows && w === columns ? image : resized(image, rows, columns);
  return placed(made, fitted, (height - rows) >> 1, (width - columns) >> 1);
}

function cropped({ data, shape: [C, H, W] }, top, left, height, width) {
  const made = blank([C, height, width]);
  for (let c = 0; c < C; c++)
    for (let y = 0; y < height; y++)
      for (let x = 0; x < width; x++)
        made.data[(c * height + y) * width + x] = data[(c * H + top + y) * W + left + x];
  return made;
}

// minicaps.data.images.centre for one channel: the ink fills 20 of 28 pixels, and its center of
// mass is moved to the center
function centred(image, height, width) {
  const [, H, W] = image.shape, top = image.data.reduce((a, b) => Math.max(a, b), 0);
  let [first, last, left, right] = [H, -1, W, -1];
  image.data.forEach((x, k) => {
    if (x <= 0.2 * top) return;
    const y = Math.floor(k / W), column = k % W;
    [first, last] = [Math.min(first, y), Math.max(last, y)];
    [left, right] = [Math.min(left, column), Math.max(right, column)];
  });
  if (last < 0) return fit(image, height, width);
  const inner = [height, width].map((side) => Math.max(1, rounded((20 / 28) * side)));
  const ink = fit(cropped(image, first, left, last - first + 1, right - left + 1), ...inner, 0);
  const mass = ink.data.reduce((a, b) => a + b, 0), middle = [0, 0];
  ink.data.forEach((x, k) => {
    middle[0] += (x * Math.floor(k / inner[1])) / mass;
    middle[1] += (x * (k % inner[1])) / mass;
  });
  const start = [height, width].map((side, axis) =>
    Math.min(Math.max(rounded((side - 1) / 2 - middle[axis]), 0), side - inner[axis]));
  return placed(ink, blank([1, height, width]), ...start);
}

function inverted(image) {
  return { data: image.data.map((x) => 1 - x), shape: image.shape };
}

// minicaps.data.preprocessing.Preprocessing.apply with "auto" for a file
function prepared(image, { shape: [C, H, W], background, centred: centres }) {
  let fitted = inChannels(image, C);
  const light = median(borderColor(image)) >= 0.5;
  if (background === (light ? "dark" : "light")) fitted = inverted(fitted);
  return centres && C === 1 ? centred(fitted, H, W) : fit(fitted, H, W);
}

// minicaps.data.affine.transformed: rotate clockwise by degrees, zoom, and move by pixels
function transformed(image, { rotate, zoom, right, down }, fill) {
  const [C, H, W] = image.shape, made = blank(image.shape);
  const angle = (rotate * Math.PI) / 180, cos = Math.cos(angle) / zoom, sin = Math.sin(angle) / zoom;
  const at = (c, y, x) => (y < 0 || x < 0 || y >= H || x >= W ? fill : image.data[(c * H + y) * W + x]);
  for (let y = 0; y < H; y++)
    for (let x = 0; x < W; x++) {
      const dx = x - (W - 1) / 2 - right, dy = y - (H - 1) / 2 - down;
      const u = cos * dx + sin * dy + (W - 1) / 2, v = cos * dy - sin * dx + (H - 1) / 2;
      const left = Math.floor(u), above = Math.floor(v), a = u - left, b = v - above;
      for (let c = 0; c < C; c++)
        made.data[(c * H + y) * W + x] =
          (1 - b) * ((1 - a) * at(c, above, left) + a * at(c, above, left + 1)) +
          b * ((1 - a) * at(c, above + 1, left) + a * at(c, above + 1, left + 1));
    }
  return made;
}

// The same numbers in [−1, 1) for every visitor, so that a link shows the same noise.
function pseudorandom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 31 - 1;
  };
}

function noisy(image, amount) {
  const next = pseudorandom(1);
  return { data: image.data.map((x) => Math.min(1, Math.max(0, x + amount * next()))), shape: image.shape };
}

// Erase the lowest `share` of the rows that have ink.
function hidden(image, share, fill) {
  const [C, H, W] = image.shape, data = Float32Array.from(image.data);
  let first = H, last = -1;
  data.forEach((x, k) => {
    if (Math.abs(x - fill) < 0.2) return;
    const y = Math.floor(k / W) % H;
    [first, last] = [Math.min(first, y), Math.max(last, y)];
  });
  const from = last + 1 - Math.round(share * (last + 1 - first));
  for (let c = 0; c < C; c++) data.fill(fill, (c * H + from) * W, (c + 1) * H * W);
  return { data, shape: image.shape };
}

// minicaps.data.compose: where two images overlap, the pixel farther from the background is used
function overlaid(a, b, fill) {
  const far = (x) => Math.abs(x - fill);
  return { data: a.data.map((x, k) => (far(x) >= far(b.data[k]) ? x : b.data[k])), shape: a.shape };
}
