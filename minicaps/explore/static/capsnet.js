"use strict";
// A CapsNet in plain JavaScript. Each function is the twin of one in minicaps, which the comment
// above it names; tests/explore compares their values. Images and maps are { data, shape } with
// shape [C, H, W]; all other arrays are flat, and the comments give their shapes in the letters of
// the lessons: I children, J parents, N and D components.

// ---- weights

// minicaps.explore.embedded.halves: numbers of 16 bits, as text in base 64
function fromHalves(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return Float32Array.from(new Uint16Array(bytes.buffer), fromHalf);
}

// A half has 1 bit for the sign, 5 for the exponent and 10 for the fraction.
function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = (bits & 1023) / 1024;
  if (exponent === 0) return sign * 2 ** -14 * fraction;
  return sign * 2 ** (exponent - 15) * (1 + fraction);
}

// Replace every text of weights in the description of a network by its numbers.
function withWeights(value) {
  if (Array.isArray(value)) return value.map(withWeights);
  if (value === null || typeof value !== "object") return value;
  if ("halves" in value) return { shape: value.shape, data: fromHalves(value.halves) };
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, withWeights(part)]));
}

// ---- convolution

// minicaps.ops.patches: rows x_{tp+k, tq+l} of (4.2), one per position: (P·Q, C·K·K)
function patches({ data, shape: [C, H, W] }, K, stride) {
  const P = Math.floor((H - K) / stride) + 1, Q = Math.floor((W - K) / stride) + 1; // (4.3)
  const rows = new Float32Array(P * Q * C * K * K);
  let to = 0;
  for (let p = 0; p < P; p++)
    for (let q = 0; q < Q; q++)
      for (let c = 0; c < C; c++)
        for (let k = 0; k < K; k++) {
          const from = (c * H + p * stride + k) * W + q * stride;
          for (let l = 0; l < K; l++) rows[to++] = data[from + l];
        }
  return { rows, P, Q };
}

// minicaps.ops.conv.conv2d without padding: Y = X Wᵀ + b (4.4). The weights are stored as (C, K, K, O),
// so that a pixel changes all channels at once; pixels that are zero, as most are after a ReLU, cost nothing.
function convolve(image, { weight: { data: w, shape: [, K, , O] }, bias, stride }) {
  const { rows, P, Q } = patches(image, K, stride), positions = P * Q, size = w.length / O;
  const data = new Float32Array(O * positions), y = new Float64Array(O);
  for (let p = 0; p < positions; p++) {
    y.set(bias.data);
    for (let k = 0; k < size; k++) {
      const x = rows[p * size + k];
      if (x !== 0) for (let o = 0, from = k * O; o < O; o++) y[o] += x * w[from + o];
    }
    for (let o = 0; o < O; o++) data[o * positions + p] = y[o];
  }
  return { data, shape: [O, P, Q] };
}

// minicaps.ops.activation.relu
function relu(data) {
  return data.map((x) => Math.max(x, 0));
}

// ---- capsules

// minicaps.ops.capsule.SQUASHES: the new length g(n) of a vector of length n
const SQUASHES = {
  paper: (n) => (n * n) / (1 + n * n), // (6.1)
  half: (n) => (n * n) / (0.5 + n * n),
  tanh: Math.tanh,
  exp: (n) => -Math.expm1(-n),
  rational: (n) => n / (1 + n),
  none: (n) => n,
  unit: () => 1, // minicaps.ops.capsule.direction
};

// minicaps.ops.capsule.length of vectors (M, size): (M,)
function lengths(vectors, size) {
  const found = new Float32Array(vectors.length / size);
  for (let m = 0; m < found.length; m++) {
    let square = 0;
    for (let d = 0; d < size; d++) square += vectors[m * size + d] ** 2;
    found[m] = Math.sqrt(square);
  }
  return found;
}

// minicaps.ops.capsule.squash of vectors (M, size); the zero vector stays zero
function squash(vectors, size, kind) {
  const factors = lengths(vectors, size).map((n) => (n ? SQUASHES[kind](n) / n : 0));
  return vectors.map((x, k) => x * factors[Math.floor(k / size)]);
}

// minicaps.nn.capsules.group_channels: maps (C, P, Q) become capsules (P·Q·C/size, size) (7.9)
function groupChannels({ data, shape: [C, P, Q] }) {
  const capsules = new Float32Array(data.length), positions = P * Q;
  for (let c = 0; c < C; c++)
    for (let p = 0; p < positions; p++) capsules[p * C + c] = data[c * positions + p];
  return capsules;
}

// minicaps.routing.blocks.make_votes: û_j|i = W_ijᵀ u_i (7.4), stored as (J, I, D); the weights are
// stored as (I, N, J, D)
function makeVotes(u, { data: w, shape: [I, J, N, D] }) {
  const votes = new Float32Array(J * I * D), made = new Float64Array(J * D);
  for (let i = 0; i < I; i++) {
    made.fill(0);
    for (let n = 0; n < N; n++) {
      const x = u[i * N + n], row = (i * N + n) * J * D;
      for (let k = 0; k < J * D; k++) made[k] += x * w[row + k];
    }
    for (let j = 0; j < J; j++)
      for (let d = 0; d < D; d++) votes[(j * I + i) * D + d] = made[j * D + d];
  }
  return { data: votes, shape: [J, I, D] };
}

// ---- routing

// minicaps.routing.couplings.couple: c_ij = softmax_j(b_ij) of logits (J, I); an orphan has logit 0
function couple(b, J, I, orphans) {
  const c = new Float32Array(J * I);
  for (let i = 0; i < I; i++) {
    let top = orphans ? 0 : -Infinity;
    for (let j = 0; j < J; j++) top = Math.max(top, b[j * I + i]);
    let total = orphans ? Math.exp(-top) : 0;
    for (let j = 0; j < J; j++) total += c[j * I + i] = Math.exp(b[j * I + i] - top);
    for (let j = 0; j < J; j++) c[j * I + i] /= total;
  }
  return c;
}

// s_j = Σ_i c_ij û_j|i (10.3); with `mean`, divided by Σ_i c_ij (9.5)
function gather({ data, shape: [J, I, D] }, c, mean) {
  const s = new Float32Array(J * D), sum = new Float64Array(D);
  for (let j = 0; j < J; j++) {
    let total = 0;
    sum.fill(0);
    for (let i = 0; i < I; i++) {
      const share = c[j * I + i], vote = (j * I + i) * D;
      total += share;
      for (let d = 0; d < D; d++) sum[d] += share * data[vote + d];
    }
    const divisor = mean ? Math.max(total, 1e-20) : 1;
    for (let d = 0; d < D; d++) s[j * D + d] = sum[d] / divisor;
  }
  return s;
}

// ⟨û_j|i, v_j⟩ for every child and parent: (J, I)
function agree({ data, shape: [J, I, D] }, v) {
  const found = new Float32Array(J * I);
  for (let k = 0; k < J * I; k++) {
    const j = Math.floor(k / I);
    for (let d = 0; d < D; d++) found[k] += data[k * D + d] * v[j * D + d];
  }
  return found;
}

// −|û_j|i − m_j|² for every child and parent: (J, I)
function near({ data, shape: [J, I, D] }, m) {
  const found = new Float32Array(J * I);
  for (let k = 0; k < J * I; k++) {
    const j = Math.floor(k / I);
    for (let d = 0; d < D; d++) found[k] -= (data[k * D + d] - m[j * D + d]) ** 2;
  }
  return found;
}

// The rules by which an iteration gives each child new logits (J, I) from the sums s (J, D).
// minicaps.routing.agreement: how `v` is read from s, and whether agreement adds up (10.7)
// minicaps.routing.distance: the squared distance to a mean
const RULES = {
  accumulate: (votes, s, b, { squash: kind }) => {
    const agreed = agree(votes, squash(s, votes.shape[2], kind));
    return b.map((x, k) => x + agreed[k]);
  },
  recompute: (votes, s, b, { squash: kind }) => agree(votes, squash(s, votes.shape[2], kind)),
  spherical: (votes, s) => agree(votes, squash(s, votes.shape[2], "unit")),
  distance: (votes, m) => near(votes, m),
};

// minicaps.routing.registry.choose, then one record per iteration as in Routed.history:
// couplings (J, I), orphans (I) in leaky routing, sums s, poses v (J, D) and lengths (J).
// options: routing (agreement, leaky, distance, learned), update, iterations, inverseTemperature,
// squash, and logits (J, I) for learned couplings.
function route(votes, options) {
  const { routing, inverseTemperature: β } = options, [J, I, D] = votes.shape;
  const rule = RULES[routing === "distance" ? "distance" : options.update];
  const iterations = routing === "learned" ? 1 : options.iterations, history = [];
  let b = routing === "learned" ? options.logits.data : new Float32Array(J * I);
  for (let t = 0; t < iterations; t++) {
    const couplings = couple(routing === "learned" ? b : b.map((x) => β * x), J, I, routing === "leaky");
    const sums = gather(votes, couplings, routing === "distance");
    const poses = squash(sums, D, options.squash);
    const orphans = routing === "leaky" ? orphansOf(couplings, J, I) : null;
    history.push({ couplings, orphans, sums, poses, lengths: lengths(poses, D) });
    if (t < iterations - 1) b = rule(votes, sums, b, options);
  }
  return history;
}

// minicaps.routing.couplings.beside_orphans: the share 1 − Σ_j c_ij that no parent takes
function orphansOf(couplings, J, I) {
  const left = new Float32Array(I).fill(1);
  for (let k = 0; k < J * I; k++) left[k % I] -= couplings[k];
  return left.map((x) => Math.max(x, 0));
}

// ---- networks

// minicaps.models.capsnet.CapsNet up to the votes: feature maps, primary capsules (I, N), votes
function lookAt(network, image) {
  const maps = [];
  let x = image;
  for (const layer of network.convolutions) {
    x = convolve(x, layer);
    maps.push((x = { data: relu(x.data), shape: x.shape }));
  }
  const grouped = groupChannels(convolve(x, network.primary));
  const primary = squash(grouped, network.primary.size, network.primary.squash);
  return { maps, primary, votes: makeVotes(primary, network.votes) };
}

// minicaps.nn.layers.Linear: x W + b, where most x are 0 after a mask or a ReLU
function linear(x, { weight: { data: w, shape: [n, m] }, bias }) {
  const y = Float64Array.from(bias.data);
  for (let k = 0; k < n; k++) if (x[k] !== 0) for (let l = 0; l < m; l++) y[l] += x[k] * w[k * m + l];
  return Float32Array.from(y);
}

// minicaps.models.capsnet.CapsNet.reconstruct: mask all poses (J, D) but one (11.7), then decode
function reconstruct(network, poses, keep) {
  const D = network.votes.shape[3];
  let x = poses.map((value, k) => (Math.floor(k / D) === keep ? value : 0));
  network.decoder.forEach((layer, k) => {
    x = linear(x, layer);
    x = k < network.decoder.length - 1 ? relu(x) : x.map((y) => 1 / (1 + Math.exp(-y)));
  });
  return { data: x, shape: network.shape };
}

// minicaps.models.dense.DenseCNN with Network.probabilities: (J,)
function denseScores(network, image) {
  let x = image;
  for (const layer of network.convolutions) {
    x = convolve(x, layer);
    x = { data: relu(x.data), shape: x.shape };
  }
  const logits = linear(relu(linear(groupChannels(x), network.hidden)), network.output);
  if (network.sigmoids) return logits.map((y) => 1 / (1 + Math.exp(-y)));
  return couple(logits, logits.length, 1, false);
}
