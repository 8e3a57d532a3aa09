// The methods of the playground: what each needs, computes and reports. A situation has `votes`
// [child][parent] = [x, y] (with one parent's votes for clustering), `starts`, `strengths` and settings.
"use strict";

const NAMES = "ABCDEF";
const UPDATES = { added: "accumulate", renewed: "recompute", directions: "spherical" };
const STEPS = {
  gmm: "1 · mixture: π, the share of followers",
  activation: "2 · activation from agreement alone",
  "input-activation": "3 · children weighted by activation",
  complete: "4 · agreement times number",
};

const FALLS = " Never rises: the bound F of (9.6) lies between two iterations.";
const RISES = " Never falls: each M step raises the lower bound of (13.9).";

// A method: name, family, `settings` (the controls it shows), `temperature` (the setting that a sweep
// varies), and run(situation, iterations) -> states from iteration `first` on. A state holds the
// places of the parents, shares, value of the objective, and the bound between it and its predecessor.
const METHODS = {
  kmeans: {
    name: "K-means", family: "points", settings: [], first: 0, run: clustered(kmeans),
    objective: "L = Σᵢ minⱼ |uᵢ − vⱼ|², from (9.1)." + FALLS,
  },
  soft: {
    name: "Soft K-means", family: "points", settings: ["K"], temperature: "K", first: 0,
    run: clustered(softKmeans),
    objective: "L = −1/K Σᵢ ln Σⱼ exp(−K |uᵢ − vⱼ|²), from (9.2)." + FALLS,
  },
  spherical: {
    name: "Spherical K-means", family: "points", settings: ["K"], temperature: "K", first: 0,
    run: clustered(sphericalKmeans), arrows: true,
    objective: "L = −1/K Σᵢ ln Σⱼ exp(K ⟨uᵢ, v̂ⱼ⟩), section 9.9." + FALLS,
  },
  mixture: {
    name: "Mixture of Gaussians (EM)", family: "points", first: 0, rising: true, run: mixed,
    settings: ["covariance", "sigma2", "fromKmeans"], temperature: "sigma2",
    objective: "Log-likelihood Σᵢ ln Σⱼ πⱼ Nᵢⱼ, from (13.4)." + RISES,
  },
  added: agreeing("Agreement, logits added (the paper's)", "added",
    "F = Σⱼ (|sⱼ| − arctan |sⱼ|), lesson 10, exercise 5. Never falls: F lies above its tangent."),
  renewed: agreeing("Agreement, logits renewed", "renewed",
    "E = Σⱼ φ(|vⱼ|) − 1/K Σᵢ ln Σⱼ exp(K ⟨ûⱼᵢ, vⱼ⟩), from (10.4). Never rises: E lies below the tangent"
    + " of its second term."),
  directions: agreeing("Agreement of directions (spherical)", "directions",
    "L = −1/K Σᵢ ln Σⱼ exp(K ⟨ûⱼᵢ, v̂ⱼ⟩), from (10.1)." + FALLS),
  distance: {
    name: "Distance routing", family: "routing", settings: ["K"], temperature: "K", first: 1,
    run: nearby,
    objective: "L = −1/K Σᵢ ln Σⱼ exp(−K |ûⱼᵢ − vⱼ|²), from (10.1)." + FALLS,
  },
  em: {
    name: "EM routing (ellipses)", family: "routing", first: 1, rising: true, run: emRouted,
    settings: ["step", "lambda", "betaU", "betaA"], temperature: "lambda",
    objective: ({ step }) => step === "gmm"
      ? "Log-likelihood Σᵢ ln Σⱼ πⱼ pᵢⱼ." + RISES
      : "Σᵢ aᵢ ln Σⱼ aⱼ pᵢⱼ and its lower bound. It may fall, because aⱼ measures agreement and is not"
        + " chosen to raise it.",
  },
};

// What the objective is, without symbols
function plainObjective({ rising }, { method, step }) {
  if (method === "em" && step !== "gmm") return "How well votes fit the parents they follow.";
  return rising ? "What the iterations make larger: how well votes fit the parents they follow."
    : "What the iterations make smaller: how badly votes fit the parents they follow.";
}

function agreeing(name, kind, objective) {
  const settings = ["K", "orphans"];
  return {
    name, family: "routing", settings, temperature: "K", first: 1, arrows: true, objective,
    rising: kind === "added", run: (situation, r) => agreed(kind, situation, r),
  };
}

function clustered(method) {
  return ({ votes, starts, K }, iterations) => {
    const scale = method === kmeans ? Infinity : K;
    const { history } = method(column(votes, 0), { start: starts, K: scale, iterations });
    return history.map((now, t) => ({
      places: now.centres, shares: now.shares, value: now.objective,
      bound: t ? costBound(now.costs, history[t - 1].shares, scale) : null,
    }));
  };
}

function mixed({ votes, starts, covariance, sigma2, fromKmeans }, iterations) {
  const x = column(votes, 0), hard = kmeans(x, { start: starts });
  const fixed = covariance === "fixed";
  const options = fixed ? { covariance: "isotropic", sigma: Math.sqrt(sigma2) } : { covariance };
  const start = fromKmeans ? { shares: hard.shares } : { start: starts };
  const { history } = gmm(x, { ...start, ...options, iterations });
  const before = { places: hard.centres, shares: hard.shares, value: null, bound: null };
  const states = history.map((now, t) => ({
    places: now.centres, shares: now.shares, value: now.objective, weights: now.weights,
    covariances: now.covariances.map(matrix),
    bound: t ? likelihoodBound(now.logits, history[t - 1].shares) : null,
  }));
  return fromKmeans ? [before, ...states] : states;
}

// A covariance of any kind as a matrix
function matrix(c) {
  const [a, b] = Array.isArray(c) ? c : [c, c];
  return Array.isArray(a) ? c : [[a, 0], [0, b]];
}

function agreed(kind, { votes, K, orphans }, iterations) {
  const { history } = agreement(votes, { iterations, update: UPDATES[kind], K, orphans });
  const costs = (v) => votes.map((row) => row.map((vote, j) => -dot(vote, v[j])));
  const padded = (rows) => (orphans ? rows.map((row) => [...row, 0]) : rows);
  const paid = ({ sums }) => (kind === "renewed" ? sum(sums.map(price)) : 0);
  return history.map((now, t) => {
    const before = history[t - 1];
    const state = { places: now.poses, shares: now.couplings, sums: now.sums, bound: null };
    if (kind === "added") {
      const gain = (c, i, j) => (c - before.couplings[i][j]) * before.agreed[i][j];
      const moved = now.couplings.map((row) => row.slice(0, now.poses.length));
      const bound = before && climbed(before.sums) + overPairs(moved, gain);
      return { ...state, value: climbed(now.sums), bound: bound ?? null };
    }
    const d = costs(kind === "renewed" ? now.poses : now.sums.map(direction));
    const bound = before && paid(now) + costBound(padded(d), now.couplings, K);
    return { ...state, value: paid(now) + softCost(d, K, orphans), bound: bound ?? null };
  });
}

function nearby({ votes, K }, iterations) {
  return distance(votes, { iterations, K }).history.map((now, t) => ({
    places: now.means, shares: now.couplings, activations: now.activations,
    value: softCost(now.costs, K), bound: t ? costBound(now.costs, now.couplings, K) : null,
  }));
}

function emRouted({ votes, strengths, step, lambda, betaU, betaA }, iterations) {
  const weighs = step === "complete" || step === "input-activation";
  const given = weighs ? strengths : undefined, each = (value) => votes[0].map(() => value);
  const options = { iterations, step, lambda, betaU: each(betaU), betaA: each(betaA), strengths: given };
  return em(votes, options).history.map((now, t) => ({
    places: now.poses, shares: now.couplings, weights: now.weights, activations: now.activations,
    covariances: now.variances.map(matrix), value: likelihood(now.logits, given),
    bound: t ? likelihoodBound(now.logits, now.couplings, given) : null,
  }));
}

// ---- What is reported beside the figure

const norm = (v) => Math.hypot(...v);
const spread = (values) => Math.max(...values) - Math.min(...values);

// Facts about the whole state, [name, number]; the lessons print the same numbers
function facts(method, situation, state) {
  const { votes, starts, K } = situation, { places, shares } = state;
  const x = column(votes, 0), found = [];
  const apart = Math.max(spread(column(places, 0)), spread(column(places, 1)));
  if (method.family === "points") {
    found.push(["centers apart by", apart]);
    if (METHODS.soft === method) found.push(["2K · largest variance", 2 * K * largestVariance(x)]);
    const fixed = METHODS.mixture === method && situation.covariance === "fixed";
    if (fixed) {
      const hard = kmeans(x, { start: starts }).centres;
      found.push(["from K-means", Math.max(...places.map((v, j) => norm(minus(v, hard[j]))))]);
    }
  } else if (places.length > 1) {
    const own = shares.map((row) => row.slice(0, places.length));
    found.push(["largest gap of shares", Math.max(...own.map(spread))]);
  }
  found.push(["mean of largest shares", sum(shares.map((row) => Math.max(...row))) / shares.length]);
  return found;
}

// λ of (9.11), the variance of the votes along the direction in which they spread most
function largestVariance(x) {
  const equal = x.map(() => 1 / x.length);
  return eigh(moment(x, equal, weightedSum(x, equal))).values[1];
}

// Columns of the table of parents: {heading: values}
function parentsTable(method, situation, state) {
  const { places, shares, activations, covariances, sums } = state;
  const followers = places.map((_, j) => sum(column(shares, j)));
  const table = { place: places.map((v) => v.map((value) => fixed(value, 2)).join(", ")) };
  if (method.arrows || method === METHODS.soft) table.length = places.map(norm);
  if (activations && method === METHODS.distance) table.activation = activations;
  if (method === METHODS.em) table.strength = activations;
  if (sums) table["length of sum"] = sums.map(norm);
  if (covariances) table.deviation = covariances.map(([[a, b], [, c]]) => Math.max(a * c - b * b, 0) ** 0.25);
  table.followers = followers;
  return table;
}
