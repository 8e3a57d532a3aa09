// The situation that the page shows: a preset, what the reader has changed, and the address of both.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const DEFAULTS = {
  T: 40, r: 40, K: 1, sigma2: 0.1, covariance: "full", fromKmeans: false, orphans: false,
  step: "complete", lambda: 0.1, betaU: 0, betaA: 0,
};
const HOME = { points: "wholes", routing: "twelve" }; // presets shown when the family changes

let state, written = ""; // the address that the page has written

// ---- State: a preset, the settings that differ from it, and what the reader has moved

function begin(id) {
  const preset = DATA.presets.find((one) => one.id === id) ?? DATA.presets[0];
  const parents = preset.starts?.length ?? DATA.sets[preset.votes][0].length;
  const own = Object.fromEntries(Object.entries(DEFAULTS).map(([key, usual]) => [key, preset[key] ?? usual]));
  state = { preset, base: { ...own, method: preset.method, J: parents } };
  Object.assign(state, state.base, { votes: {}, starts: {}, strengths: {}, cut: [] });
}

const family = () => METHODS[state.method].family;
const round = (value) => +value.toPrecision(6);

// A number from 0 to 1 that depends only on n
const chance = (n) => { const x = Math.sin(12.9898 * n + 4.1414) * 43758.5453; return x - Math.floor(x); };

// The vote of a child for parent j that no preset has: a stray as long as the others
function stray(id, j) {
  const votes = DATA.sets[state.preset.votes].flat(family() === "points" ? 0 : 1);
  const size = sum(votes.map(norm)) / votes.length, angle = 2 * Math.PI * chance(31 * id + 7 * j + 1);
  return [size * Math.cos(angle), size * Math.sin(angle)].map(round);
}

function situation() {
  const set = DATA.sets[state.preset.votes], points = family() === "points";
  const added = Object.keys(state.votes).map((key) => parseInt(key, 10));
  const ids = [...new Set([...set.keys(), ...added])].filter((id) => !state.cut.includes(id));
  const vote = (id, j) => {
    const given = points ? set[id] : set[id]?.[j];
    return state.votes[points ? id : id + NAMES[j]] ?? given ?? stray(id, j);
  };
  const votes = ids.map((id) => range(points ? 1 : state.J).map((j) => vote(id, j)));
  const strengths = ids.map((id) => state.strengths[id] ?? state.preset.strengths?.[id] ?? 1);
  const starts = points ? startsFor(column(votes, 0)) : [];
  return { ...state, ids, votes, strengths, starts };
}

// Further centers start at the vote that is farthest from those before
function startsFor(x) {
  const starts = [];
  for (const j of range(state.J)) {
    const far = (point) => Math.min(...starts.map((v) => EUCLIDEAN.cost(point, v)));
    const farthest = () => x.reduce((best, point) => (far(point) > far(best) ? point : best));
    starts.push(state.starts[j] ?? state.preset.starts?.[j] ?? (j ? farthest() : x[0]));
  }
  return starts;
}

// ---- Address: #preset&setting=value&u3=x,y (vote 3; u3A for parent A)&v0=x,y (start)&a3=activation

function address() {
  const parts = [state.preset.id];
  for (const [key, value] of Object.entries(state.base)) {
    if (state[key] !== value) parts.push(`${key}=${state[key]}`);
  }
  const lists = { u: state.votes, v: state.starts, a: state.strengths };
  for (const [letter, list] of Object.entries(lists)) {
    for (const [key, value] of Object.entries(list)) parts.push(`${letter}${key}=${value}`);
  }
  if (state.cut.length) parts.push(`cut=${state.cut}`);
  return `#${parts.join("&")}`;
}

const CHECKS = {
  method: (text) => (Object.hasOwn(METHODS, text) ? text : undefined),
  J: (text) => whole(text, 1, NAMES.length),
  T: (text) => whole(text, 1, 1000), r: (text) => whole(text, 0, 1000),
  K: (text) => number(text, 1e-3, 1e4), sigma2: (text) => number(text, 1e-4, 1e3),
  lambda: (text) => number(text, 1e-3, 1e4),
  betaU: (text) => number(text, -10, 10), betaA: (text) => number(text, -10, 10),
  covariance: (text) => ["full", "diagonal", "isotropic", "fixed"].find((one) => one === text),
  step: (text) => Object.keys(STEPS).find((one) => one === text),
  fromKmeans: (text) => flag(text), orphans: (text) => flag(text),
};
const flag = (text) => ({ true: true, false: false })[text];
const whole = (text, low, high) => (/^\d+$/.test(text) ? number(text, low, high) : undefined);
function number(text, low, high) {
  const value = text.trim() === "" ? NaN : Number(text);
  return Number.isNaN(value) ? undefined : Math.min(Math.max(value, low), high);
}

// Programs that pass links on may write "," as "%2C"
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function read(hash) {
  const [id, ...parts] = decoded(hash.slice(1)).split("&");
  begin(id);
  for (const part of parts) {
    const [key, text = ""] = part.split("=");
    const pair = text.split(",").map((one) => number(one, -1e3, 1e3));
    const place = pair.length === 2 && !pair.includes(undefined) ? pair : null;
    const value = Object.hasOwn(CHECKS, key) ? CHECKS[key](text) : undefined;
    const share = number(text, 0, 1);
    if (value !== undefined) state[key] = value;
    else if (place && /^u\d{1,4}[A-F]?$/.test(key)) state.votes[key.slice(1)] = place;
    else if (place && /^v[0-5]$/.test(key)) state.starts[key.slice(1)] = place;
    else if (share !== undefined && /^a\d{1,4}$/.test(key)) state.strengths[key.slice(1)] = share;
    else if (key === "cut") state.cut = text.split(",").filter((id) => /^\d{1,4}$/.test(id)).map(Number);
  }
  if (family() !== METHODS[state.preset.method].family) state.method = state.preset.method;
  while (situation().ids.length < state.J) state.cut.length ? state.cut.pop() : state.J--;
  state.r = Math.min(Math.max(state.r, METHODS[state.method].first), state.T);
}

function write() {
  const now = address();
  if (now === written) return;
  written = now;
  history.replaceState(null, "", now);
}
