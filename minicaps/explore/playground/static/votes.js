// Clustering and routing of votes in double precision. Each function is the twin of a function in
// minicaps, named above it, and tested against it; arguments are checked by the page.
// Votes x are arrays [[x, y], …] of n points, votes of a routing are [child][parent] = [x, y].
"use strict";

const LEAST = 1e-20; // minicaps.clustering.steps.LEAST
const ROUNDING = 100 * Number.EPSILON; // minicaps.clustering.clusters.relative_rounding

const sum = (values) => values.reduce((total, value) => total + value, 0);
const range = (n) => Array.from({ length: n }, (_, i) => i);
const dot = (a, b) => a.reduce((total, value, d) => total + value * b[d], 0);
const minus = (a, b) => a.map((value, d) => value - b[d]);
const column = (rows, j) => rows.map((row) => row[j]);

// ---- minicaps.ops

// ops.logsumexp
function logSumExp(row) {
  const top = Math.max(...row);
  return top + Math.log(sum(row.map((value) => Math.exp(value - top))));
}

// ops.direction: the zero vector has the direction 0
function direction(v) {
  const n = Math.hypot(...v);
  return v.map((value) => (n === 0 ? 0 : value / n));
}

// ops.squash, kind "paper": |s|² / (1 + |s|²) · s/|s|
function squash(s) {
  const n = Math.hypot(...s), h = Math.hypot(n, 1);
  return s.map((value) => (value * n) / h / h);
}

// routing.couplings.couple for one child; with orphans, the last share is that of `beside_orphans`
function couple(logits, orphans = false) {
  const top = orphans ? Math.max(...logits, 0) : Math.max(...logits);
  const e = logits.map((b) => Math.exp(b - top));
  const total = sum(e) + (orphans ? Math.exp(-top) : 0);
  const c = e.map((value) => value / total);
  return orphans ? [...c, Math.max(1 - sum(c), 0)] : c;
}

// ---- minicaps.clustering.steps

// steps.weighted_sum: Σ_i w_i x_i
function weightedSum(x, weights) {
  return x[0].map((_, d) => x.reduce((total, point, i) => total + weights[i] * point[d], 0));
}

// steps.weighted_mean
function weightedMean(x, weights) {
  const amount = sum(weights);
  const share = weights.map((w) => (amount > LEAST ? w * (1 / amount) : 0));
  return { amount, share, mean: weightedSum(x, share) };
}

// steps.m_step
function mStep(x, weights, floor) {
  const { amount, share, mean } = weightedMean(x, weights);
  const square = x.map((point) => minus(point, mean).map((y) => y * y));
  const variance = weightedSum(square, share).map((v) => Math.max(v, floor));
  return { amount, share, mean, square, variance };
}

// steps.log_density as a function of (x − μ)², for one point
function logDensity(variance) {
  const logScale = sum(variance.map((v) => Math.log(2 * Math.PI * v)));
  return (square) => -0.5 * (square.reduce((total, s, d) => total + s / variance[d], 0) + logScale);
}

// ---- minicaps.clustering.clusters and .kmeans

// clusters.iterate: stops when no share, and no covariance, changes by more than rounding
function iterate(first, update, iterations) {
  const history = [first], rounding = 16 * Number.EPSILON;
  for (let t = 0; t < iterations; t++) {
    const before = history[t], now = update(before);
    history.push(now);
    const same = range(now.centres.length).every((j) => {
      const shares = column(now.shares, j), limit = rounding * Math.max(...shares);
      const alive = sum(shares) > LEAST;
      return !alive || shares.every((c, i) => Math.abs(c - before.shares[i][j]) <= limit);
    });
    if (same && alike(now.covariances, before.covariances, rounding)) break;
  }
  return { ...history[history.length - 1], history };
}

// clusters._alike
function alike(now, before, rounding) {
  if (now === undefined) return true;
  const [a, b] = [now.flat(2), before.flat(2)];
  const limit = rounding * Math.max(...a.map(Math.abs));
  return a.every((value, n) => Math.abs(value - b[n]) <= limit);
}

// kmeans.EUCLIDEAN and kmeans.SPHERICAL: cost d(x_i, v_j), cost of a vote with a center to itself
const EUCLIDEAN = {
  cost: (point, v) => sum(minus(point, v).map((y) => y * y)),
  alone: () => 0,
  gather: (x, c) => { const { amount, mean } = weightedMean(x, c); return [amount, mean]; },
  degree: 2,
};
const SPHERICAL = {
  cost: (point, v) => -dot(point, direction(v)),
  alone: (point) => -Math.hypot(...point),
  gather: (x, c) => [sum(c), weightedSum(x, c)],
  degree: 1,
};

// kmeans.kmeans: Σ_i min_j |x_i − v_j|²
const kmeans = (x, { start, iterations = 100 }) => cluster(x, EUCLIDEAN, Infinity, start, iterations);

// kmeans.soft_kmeans: −(1/K) Σ_i ln Σ_j e^(−K |x_i − v_j|²)
const softKmeans = (x, { K, start, iterations = 100 }) => cluster(x, EUCLIDEAN, K, start, iterations);

// kmeans.spherical_kmeans: costs −⟨x_i, v_j/|v_j|⟩, sums as centers; hard for K = ∞
const sphericalKmeans = (x, { K, start, iterations = 100 }) =>
  cluster(x, SPHERICAL, K, start, iterations);

// kmeans._cluster
function cluster(x, geometry, K, start, iterations) {
  const update = (last) => assign(x, move(x, last, geometry, K === Infinity), geometry, K);
  return iterate(assign(x, start, geometry, K), update, iterations);
}

// kmeans._assign
function assign(x, centres, geometry, K) {
  const costs = x.map((point) => centres.map((v) => geometry.cost(point, v)));
  const least = costs.map((row) => Math.min(...row));
  if (K === Infinity) {
    const shares = costs.map((row, i) => {
      const nearest = row.indexOf(least[i]);
      return row.map((_, j) => (j === nearest ? 1 : 0));
    });
    return { centres, shares, costs, objective: sum(least) };
  }
  const logits = costs.map((row, i) => row.map((d) => -K * (d - least[i])));
  const objective = sum(least) - sum(logits.map(logSumExp)) / K;
  return { centres, shares: logits.map((row) => couple(row)), costs, objective };
}

// kmeans._move
function move(x, last, geometry, hard) {
  const empty = [];
  const centres = last.centres.map((old, j) => {
    const [amount, v] = geometry.gather(x, column(last.shares, j));
    if (amount <= LEAST) empty.push(j);
    return amount <= LEAST ? old : v;
  });
  return hard ? refill(x, centres, empty, geometry) : centres;
}

// kmeans._refill
function refill(x, centres, empty, geometry) {
  const cost = x.map((p) => centres.map((v, j) => (empty.includes(j) ? Infinity : geometry.cost(p, v))));
  const rounding = (ROUNDING * Math.max(...x.flat().map(Math.abs))) ** geometry.degree;
  for (const j of empty) {
    const gain = cost.map((row, i) => Math.min(...row) - geometry.alone(x[i]));
    const most = gain.indexOf(Math.max(...gain));
    if (gain[most] <= rounding) break; // fewer distinct points than centers
    centres[j] = [...x[most]];
    cost.forEach((row, i) => { row[j] = geometry.cost(x[i], centres[j]); });
  }
  return centres;
}

// ---- minicaps.clustering.mixture, for points in the plane

// mixture.gmm: `start` are means, or `shares` are the responsibilities to begin with
function gmm(x, { start, shares, covariance = "full", floor, sigma, iterations = 100 }) {
  const k = (start ?? shares[0]).length, held = sigma !== undefined;
  let least = leastVariances(x, start ?? x, covariance, floor, sigma);
  const unit = least.map((value) => 2 ** exponent(Math.sqrt(value)));
  const shift = x[0].map((value, d) => (x.every((point) => point[d] === value) ? value : 0));
  const scaled = (p) => p.map((value, d) => (value - shift[d]) / unit[d]);
  least = least.map((value, d) => value / unit[d] ** 2);
  if (covariance === "full") least = least.map(() => Math.max(...least));
  const y = x.map(scaled);
  const update = (last) => eStep(y, fit(y, last, covariance, least, held), covariance);
  const mean = weightedMean(y, y.map(() => 1)).mean;
  const everything = { centres: range(k).map(() => mean), shares: x.map(() => Array(k).fill(1 / k)) };
  const all = fit(y, everything, covariance, least, held);
  const first = start
    ? eStep(y, { ...all, centres: start.map(scaled) }, covariance)
    : update({ ...everything, shares });
  const result = iterate(first, update, start ? iterations : iterations - 1);
  const history = result.history.map((record) => rescaled(record, shift, unit, covariance));
  return { ...history[history.length - 1], history };
}

// e of value = m · 2^e with ½ ≤ m < 1, as numpy.frexp
function exponent(value) {
  let e = Math.ceil(Math.log2(value));
  while (2 ** e <= value) e++;
  while (2 ** (e - 1) > value) e--;
  return e;
}

// mixture._least_variances
function leastVariances(x, start, covariance, floor, sigma) {
  const largest = (points, d) => Math.max(...column(points, d).map(Math.abs));
  let spread = mStep(x, x.map(() => 1), 0).variance;
  let noise = spread.map((_, d) => ROUNDING * Math.max(largest(x, d), largest(start, d)));
  if (covariance === "isotropic") {
    spread = spread.map(() => sum(spread) / spread.length);
    noise = noise.map(() => Math.max(...noise));
  }
  if (sigma !== undefined) return spread.map(() => sigma ** 2);
  const tiny = 2 ** -1022;
  return spread.map((s, d) => Math.max(floor ?? Math.max(1e-6 * s, tiny), noise[d] ** 2));
}

// mixture._rescaled
function rescaled(record, shift, unit, covariance) {
  const back = {
    full: (matrix) => matrix.map((row, d) => row.map((value, e) => value * unit[d] * unit[e])),
    diagonal: (variances) => variances.map((value, d) => value * unit[d] ** 2),
    isotropic: (variance) => variance * unit[0] ** 2,
  }[covariance];
  const logVolume = sum(unit.map(Math.log));
  return {
    ...record,
    centres: record.centres.map((v) => v.map((value, d) => value * unit[d] + shift[d])),
    covariances: record.covariances.map(back),
    objective: record.objective - record.shares.length * logVolume,
    logits: record.logits.map((row) => row.map((l) => l - logVolume)),
  };
}

// mixture._m_step
function fit(x, last, covariance, floor, held) {
  const moments = last.centres.map((_, j) => mStep(x, column(last.shares, j), 0));
  let weights = moments.map(({ amount }) => amount / x.length);
  let variances = moments.map(({ variance }) => variance), axes;
  if (held) {
    variances = variances.map((v) => v.map(() => 0));
    weights = weights.map(() => 1 / weights.length);
  } else if (covariance === "isotropic") {
    variances = variances.map((v) => v.map(() => sum(v) / v.length));
  } else if (covariance === "full") {
    const found = moments.map(({ share, mean }) => eigh(moment(x, share, mean)));
    const least = ROUNDING * Math.max(...found.flatMap(({ values }) => values));
    variances = found.map(({ values }) => values.map((v) => Math.max(v, least)));
    axes = found.map(({ vectors }) => vectors);
  }
  variances = variances.map((v) => v.map((value, d) => Math.max(value, floor[d])));
  const centres = moments.map(({ amount, mean }, j) => (amount <= LEAST ? last.centres[j] : mean));
  return { weights, centres, variances, axes };
}

// Σ_i r_i (x_i − μ)(x_i − μ)ᵀ
function moment(x, share, mean) {
  const away = x.map((point) => minus(point, mean));
  return mean.map((_, d) => mean.map((_, e) => sum(away.map((y, i) => share[i] * y[d] * y[e]))));
}

// numpy.linalg.eigh of a 2 × 2 matrix; vectors[n] is the axis of values[n]
function eigh([[a, b], [, c]]) {
  const middle = (a + c) / 2, reach = Math.hypot((a - c) / 2, b), turn = Math.atan2(2 * b, a - c) / 2;
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  return { values: [middle - reach, middle + reach], vectors: [[-sin, cos], [cos, sin]] };
}

// mixture._e_step
function eStep(x, { weights, centres, variances, axes }, covariance) {
  const densities = variances.map(logDensity);
  const logWeights = weights.map((weight) => Math.log(Math.max(weight, 2 ** -1022)));
  const logits = x.map((point) => centres.map((v, j) => {
    const away = minus(point, v);
    const y = axes ? axes[j].map((axis) => dot(axis, away)) : away;
    return densities[j](y.map((n) => n * n)) + logWeights[j];
  }));
  const matrix = (Q, v) => range(2).map((d) => range(2).map((e) => sum(Q.map((q, n) => q[d] * v[n] * q[e]))));
  const covariances = variances.map((v, j) =>
    covariance === "full" ? matrix(axes[j], v) : covariance === "isotropic" ? v[0] : v);
  const objective = sum(logits.map(logSumExp));
  return { centres, shares: logits.map((row) => couple(row)), objective, weights, covariances, logits };
}

// ---- minicaps.routing

// routing.agreement.agreement_plain with squash "paper"
function agreement(votes, { iterations = 3, update = "accumulate", K = 1, orphans = false }) {
  let b = votes.map((row) => row.map(() => 0));
  const history = [];
  for (let t = 0; t < iterations; t++) {
    const couplings = b.map((row) => couple(row.map((value) => K * value), orphans));
    const sums = votes[0].map((_, j) => weightedSum(column(votes, j), column(couplings, j)));
    const poses = sums.map(squash);
    const activations = poses.map((v) => Math.hypot(...v));
    const v = update === "spherical" ? sums.map(direction) : poses;
    const agreed = votes.map((row) => row.map((vote, j) => dot(vote, v[j])));
    history.push({ poses, activations, couplings, sums, agreed });
    b = update === "accumulate" ? b.map((row, i) => row.map((value, j) => value + agreed[i][j])) : agreed;
  }
  return { ...history[history.length - 1], history };
}

// routing.distance.distance_plain; `means` are the poses of squash "none"
function distance(votes, { iterations = 3, K = 1 }) {
  let logits = votes.map((row) => row.map(() => 0));
  const history = [];
  for (let t = 0; t < iterations; t++) {
    const couplings = logits.map((row) => couple(row));
    const means = votes[0].map((_, j) => weightedMean(column(votes, j), column(couplings, j)).mean);
    const poses = means.map(squash);
    const costs = votes.map((row) => row.map((vote, j) => EUCLIDEAN.cost(vote, means[j])));
    history.push({ poses, activations: poses.map((v) => Math.hypot(...v)), couplings, means, costs });
    logits = costs.map((row) => row.map((d) => -K * d));
  }
  return { ...history[history.length - 1], history };
}

// ops.log_sigmoid
const logSigmoid = (z) => Math.min(z, 0) - Math.log1p(Math.exp(-Math.abs(z)));

// routing.em.em_plain; betaU and betaA hold a number per parent, `strengths` are activations
function em(votes, options) {
  const { iterations = 3, step = "complete", lambda, strengths, betaU, betaA, floor = 1e-4 } = options;
  const [children, parents] = [votes.length, votes[0].length];
  let R = votes.map((row) => row.map(() => 1 / parents));
  const history = [];
  for (let t = 0; t < iterations; t++) {
    const w = R.map((row, i) => row.map((value) => value * (strengths ? strengths[i] : 1)));
    const fits = range(parents).map((j) => mStep(column(votes, j), column(w, j), floor));
    const logA = fits.map(({ amount, share, variance }, j) => {
      if (step === "gmm") return Math.log(Math.max(amount / children, LEAST));
      const scale = betaU[j] + 0.5 * sum(variance.map(Math.log));
      const number = step === "complete" ? amount : sum(share);
      return logSigmoid(lambda * (betaA[j] - scale * number));
    });
    const densities = fits.map(({ variance }) => logDensity(variance));
    const logits = votes.map((row, i) => row.map((_, j) => densities[j](fits[j].square[i]) + logA[j]));
    history.push({
      poses: fits.map(({ mean }) => mean), activations: logA.map(Math.exp), couplings: R,
      variances: fits.map(({ variance }) => variance), weights: w, logits,
    });
    R = logits.map((row) => couple(row));
  }
  return { ...history[history.length - 1], history };
}

// ---- Objectives and bounds of the lessons; shares of 0 count 0 ln 0 = 0

const times = (share, value) => (share === 0 ? 0 : share * value);
const overPairs = (rows, value) => sum(rows.map((row, i) => sum(row.map((c, j) => value(c, i, j)))));

// (9.6): F = Σ c (d + ln c / K), at least the objective of the same centers
const costBound = (costs, shares, K) =>
  overPairs(shares, (c, i, j) => times(c, costs[i][j] + (K === Infinity ? 0 : Math.log(c) / K)));

// (13.9): Σ R (l − ln R), at most the log-likelihood of the same Gaussians
const likelihoodBound = (logits, shares, strengths) =>
  overPairs(shares, (R, i, j) => (strengths ? strengths[i] : 1) * times(R, logits[i][j] - Math.log(R)));

// Σ_i a_i ln Σ_j π_j p_ij
const likelihood = (logits, strengths) =>
  sum(logits.map((row, i) => (strengths ? strengths[i] : 1) * logSumExp(row)));

// (10.1): −(1/K) Σ_i ln Σ_j e^(−K d); an orphan's cost is 0
const softCost = (costs, K, orphans = false) =>
  -sum(costs.map((row) => logSumExp([...row, ...(orphans ? [0] : [])].map((d) => -K * d)))) / K;

// (10.5) at the length of squash(s): arcsin √ℓ = arctan |s|
function price(s) {
  const n = Math.hypot(...s);
  return Math.atan(n) - n / (1 + n * n);
}

// Lesson 10, exercise 5: F = Σ_j (|s_j| − arctan |s_j|)
const climbed = (sums) => sum(sums.map((s) => Math.hypot(...s) - Math.atan(Math.hypot(...s))));
