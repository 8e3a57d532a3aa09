// The state of the page, its controls, and its address.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const DEFAULTS = {
  T: 40, r: 40, K: 1, sigma2: 0.1, covariance: "full", fromKmeans: false, orphans: false,
  step: "complete", lambda: 0.1, betaU: 0, betaA: 0,
};
const HOME = { points: "wholes", routing: "twelve" }; // presets shown when the family changes
const TEMPERATURES = [-2, -1, 0, 1].flatMap((power) =>
  [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8].map((n) => +(n * 10 ** power).toPrecision(2))).concat(100);
const HORIZONS = [10, 20, 30, 40, 100, 300, 1000];
const MOST_VOTES = 300;
const $ = (id) => document.getElementById(id);

let state, colors, planes = [], written = "", marked = null; // marked: the child that is chosen
let sweeping = 0, playing = 0, telling = 0; // timers
const known = { run: {}, sweep: {} }; // what was computed last, and for which situation

// ---- State: a preset, the settings that differ from it, and what the reader has moved

function begin(id, changes = {}) {
  const preset = DATA.presets.find((one) => one.id === id) ?? DATA.presets[0];
  const parents = preset.starts?.length ?? DATA.sets[preset.votes][0].length;
  const own = Object.fromEntries(Object.keys(DEFAULTS).map((key) => [key, preset[key] ?? DEFAULTS[key]]));
  state = { preset, base: { ...own, method: preset.method, J: parents } };
  Object.assign(state, state.base, { votes: {}, starts: {}, strengths: {}, cut: [] }, changes);
  marked = null;
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
  J: (text) => whole(text, 1, NAMES.length), T: (text) => whole(text, 1, 1000), r: (text) => whole(text, 0, 1000),
  K: (text) => number(text, 1e-3, 1e4), sigma2: (text) => number(text, 1e-4, 1e3),
  lambda: (text) => number(text, 1e-3, 1e4), betaU: (text) => number(text, -10, 10), betaA: (text) => number(text, -10, 10),
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

function read(hash) {
  const [id, ...parts] = hash.slice(1).split("&");
  begin(id);
  for (const part of parts) {
    const [key, text = ""] = part.split("=");
    const pair = text.split(",").map((one) => number(one, -1e3, 1e3));
    const place = pair.length === 2 && !pair.includes(undefined) ? pair : null;
    const value = CHECKS[key]?.(text);
    if (value !== undefined) state[key] = value;
    else if (place && /^u\d{1,3}[A-F]?$/.test(key)) state.votes[key.slice(1)] = place;
    else if (place && /^v[0-5]$/.test(key)) state.starts[key.slice(1)] = place;
    else if (/^a\d{1,3}$/.test(key) && number(text, 0, 1) !== undefined) state.strengths[key.slice(1)] = number(text, 0, 1);
    else if (key === "cut") state.cut = text.split(",").filter((one) => /^\d{1,3}$/.test(one)).map(Number);
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

// ---- Computing and drawing

// The states of all iterations; computed again only if something else than the view has changed
function compute(now) {
  const key = situationKey();
  if (known.run.key !== key) known.run = { key, states: METHODS[state.method].run(now, state.T) };
  return known.run.states;
}

// A text that differs for situations with different results, whatever the setting `but` is
function situationKey(but = "") {
  const { base, view, preset, r, ...rest } = state;
  return JSON.stringify([preset.id, { ...rest, [but]: 0 }]);
}

// Place the planes anew: after another preset, method, or number of parents
function rebuild() {
  colors = inks(document.body);
  for (const plane of planes) plane.figure.remove();
  const points = family() === "points", now = situation();
  const titles = points ? ["Votes and centers"] : range(state.J).map((j) => `Votes for parent ${NAMES[j]}`);
  planes = titles.map((title, j) => new Plane(points ? range(state.J) : [j], title, listener(j)));
  $("planes").append(...planes.map(({ figure }) => figure));
  $("planes").dataset.count = planes.length;
  const seen = [...now.votes.flat(), ...(METHODS[state.method].arrows ? [[0, 0]] : []), ...now.starts];
  const ends = [0, 1].map((d) => [Math.min(...column(seen, d)), Math.max(...column(seen, d))]);
  const middle = ends.map(([low, high]) => (low + high) / 2);
  state.view = { middle, reach: 1.06 * Math.max(...ends.map(([low, high]) => (high - low) / 2), 0.5) };
  render();
}

function render() {
  const method = METHODS[state.method], now = situation(), states = compute(now);
  state.r = Math.min(Math.max(state.r, method.first), state.T);
  const shown = states.slice(0, state.r - method.first + 1), current = shown.at(-1);
  planes.forEach((plane, n) => {
    plane.resize({ ...state.view, aspect: planes.length > 1 ? 1 : 0.82 });
    plane.place(handlesOf(now, method, current, n));
    const shrink = plane.draw(now, method, shown, colors, marked);
    $("scale").textContent = shrink < 1 ? `Arrows are ${+(1 / shrink).toPrecision(2)} times longer than drawn.` : "";
  });
  const text = typeof method.objective === "function" ? method.objective(state) : method.objective;
  $("objective-text").textContent = text;
  drawObjective(objective, states, method.first, state.T, state.r);
  showControls(method, now);
  showNumbers(method, now, current);
  clearTimeout(telling);
  telling = setTimeout(() => { $("live").textContent = spoken(method, now, current); write(); }, 400);
  clearTimeout(sweeping);
  sweeping = setTimeout(sweep, 250);
}

function handlesOf({ ids, votes, strengths, starts }, method, current, n) {
  const points = method.family === "points", many = votes.length > 100;
  const vote = (id, i) => {
    const shares = current.shares[i], at = votes[i][points ? 0 : n];
    const faint = METHODS.em === method && strengths[i] < 0.1; // nearly absent
    const size = faint ? 4 : points || method.arrows ? (many ? 3.2 : 5) : 2 + 4.5 * shares[n] ** 0.5;
    return {
      key: `u${id}`, kind: "vote", id, at, size: size.toFixed(1), color: blend(shares, colors), marked: id === marked, faint,
      label: points ? `vote ${id}` : `vote ${id} for parent ${NAMES[n]}`,
      text: `${at.map((value) => fixed(value, 2)).join(", ")}; shares ${sharesText(shares)}`,
    };
  };
  const start = (at, j) => ({
    key: `v${j}`, kind: "start", id: j, at, color: `rgb(${colors[j]})`, marked: false,
    label: `start of center ${NAMES[j]}`, text: at.map((value) => fixed(value, 2)).join(", "),
  });
  return [...ids.map(vote), ...starts.map(start)];
}

const sharesText = (shares) =>
  shares.map((c, j) => `${NAMES[j < state.J ? j : -1] ?? "orphans"} ${c.toFixed(2)}`).join(", ");

const fixed = (value, digits = 3) => value.toFixed(digits).replace("-", "−");

function showNumbers(method, now, current) {
  const value = current.value === null ? "–" : fixed(current.value);
  const list = [[`objective at r = ${state.r}`, value], ...facts(method, now, current).map(([name, n]) => [name, fixed(n)])];
  $("facts").replaceChildren(...list.flatMap(([name, number]) => {
    const [term, data] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, data.textContent] = [name, number];
    return [term, data];
  }));
  const table = parentsTable(method, now, current), heads = Object.keys(table);
  const cell = (value) => (typeof value === "number" ? fixed(value) : value);
  $("parents-head").innerHTML = `<th scope="col">parent</th>${heads.map((head) => `<th scope="col">${head}</th>`).join("")}`;
  $("parents").innerHTML = range(state.J).map((j) =>
    `<tr><th scope="row"><svg viewBox="-11 -11 22 22" aria-hidden="true"><path class="parent" style="fill:rgb(${colors[j]})" d="${MARKS[j]}"/></svg>${NAMES[j]}</th>${heads.map((head) => `<td>${cell(table[head][j])}</td>`).join("")}</tr>`).join("");
  const at = now.ids.indexOf(marked);
  $("child").textContent = at < 0 ? "Point at a vote to read its shares."
    : `Child ${marked}: shares ${sharesText(current.shares[at])}`;
}

// What a screen reader is told once the reader rests
function spoken(method, now, current) {
  const value = current.value === null ? "" : ` Objective ${current.value.toPrecision(4)}.`;
  const each = current.places.map((v, j) => `${NAMES[j]} at ${v.map((n) => fixed(n, 2)).join(", ")} with ${sum(column(current.shares, j)).toFixed(1)} followers`);
  return `${method.name}, iteration ${state.r} of ${state.T}.${value} ${each.join("; ")}.`;
}

// The end of the iterations for every temperature, a few at a time so that the page stays fluid
function sweep() {
  const method = METHODS[state.method], name = method.temperature, now = situation();
  const useless = (state.method === "mixture" && state.covariance !== "fixed") || (state.method === "em" && state.step === "gmm");
  $("sweep").hidden = !name || useless;
  if ($("sweep").hidden) return;
  const key = situationKey(name);
  if (known.sweep.key !== key) known.sweep = { key, lines: [] };
  const { lines } = known.sweep, began = performance.now();
  const grid = name === "sigma2" ? TEMPERATURES.slice(0, 32) : TEMPERATURES.filter((K) => K >= 0.05 && K <= 30);
  while (lines.length < grid.length && performance.now() - began < 12) {
    const K = grid[lines.length];
    lines.push([K, method.run({ ...now, [name]: K }, state.T).at(-1).places]);
  }
  if (lines.length < grid.length) { sweeping = setTimeout(sweep); return; }
  const threshold = state.method === "soft" ? 1 / (2 * largestVariance(column(now.votes, 0))) : NaN;
  const labels = { K: "inverse temperature K", sigma2: "variance σ²", lambda: "inverse temperature λ" };
  drawSweep(temperature, lines, state[name], labels[name], threshold, colors);
}

// ---- What the reader does in the planes

function listener(n) {
  return {
    moved(handle, at) {
      if (handle.kind === "start") state.starts[handle.id] = at;
      else state.votes[family() === "points" ? handle.id : handle.id + NAMES[n]] = at;
      render();
    },
    chosen(handle) {
      marked = handle.kind === "vote" ? handle.id : null;
      render();
    },
    hovered(handle) {
      const id = handle?.kind === "vote" ? handle.id : null;
      if (id === null || id === marked) return;
      marked = id;
      render();
    },
    removed(handle) {
      marked = handle.id;
      removeVote();
      planes[n].handles.get(planes[n].current).element.focus({ preventScroll: true });
    },
  };
}

function addVote() {
  const now = situation();
  if (now.ids.length >= MOST_VOTES) return;
  const used = [...DATA.sets[state.preset.votes].keys(), ...Object.keys(state.votes).map((key) => parseInt(key, 10))];
  const id = Math.max(...used) + 1;
  if (family() === "points") state.votes[id] = stray(id, 0);
  else range(state.J).forEach((j) => { state.votes[id + NAMES[j]] = stray(id, j); });
  marked = id;
  render();
}

function removeVote() {
  const now = situation();
  if (now.ids.length <= state.J || !now.ids.includes(marked)) return;
  state.cut.push(marked);
  marked = null;
  render();
}

// ---- Controls

function showControls(method, now) {
  const shown = new Set(method.settings);
  if (state.covariance !== "fixed") shown.delete("sigma2");
  if (state.step === "gmm") for (const key of ["lambda", "betaU", "betaA"]) shown.delete(key);
  for (const row of document.querySelectorAll("[data-setting]")) row.hidden = !shown.has(row.dataset.setting);
  const weighs = state.method === "em" && ["complete", "input-activation"].includes(state.step);
  const at = now.ids.indexOf(marked);
  $("strength-row").hidden = !weighs || at < 0;
  if (at >= 0) [$("strength").value, $("strength-out").value] = [now.strengths[at], now.strengths[at]];
  $("preset").value = state.preset.id;
  $("method").value = state.method;
  $("r").min = method.first;
  $("r").max = state.T;
  for (const key of ["r", "J", "betaU", "betaA"]) [$(key).value, $(`${key}-out`).value] = [state[key], state[key]];
  for (const key of ["K", "sigma2", "lambda"]) {
    const away = (n) => Math.abs(Math.log(TEMPERATURES[n] / state[key]));
    $(key).value = range(TEMPERATURES.length).reduce((best, n) => (away(n) < away(best) ? n : best));
    $(`${key}-out`).value = state[key];
    $(key).setAttribute("aria-valuetext", state[key]);
  }
  if (![...$("T").options].some(({ value }) => +value === state.T)) $("T").append(new Option(state.T, state.T));
  for (const key of ["T", "covariance", "step"]) $(key).value = state[key];
  for (const key of ["fromKmeans", "orphans"]) $(key).checked = state[key];
  $("J").max = Math.min(NAMES.length, now.ids.length);
  $("remove").disabled = at < 0 || now.ids.length <= state.J;
  $("add").disabled = now.ids.length >= MOST_VOTES;
  const { text, section, page } = state.preset;
  $("preset-text").textContent = text;
  const source = $("preset-lesson");
  source.textContent = `Lesson ${section.split(".")[0]}, section ${section}`;
  if (DATA.lessons === null) source.removeAttribute("href");
  else source.href = `${DATA.lessons}${page}.html`;
}

function choose(id) {
  stop();
  begin(id);
  rebuild();
}

function changeMethod(name) {
  const old = family();
  if (METHODS[name].family !== old) begin(name === "em" ? "ghosts" : HOME[METHODS[name].family]);
  const K = { distance: 8, spherical: 5 }[name] ?? 1;
  Object.assign(state, { method: name, K: name === state.base.method ? state.base.K : K });
  rebuild();
}

function stop() {
  clearInterval(playing);
  playing = 0;
  $("play").textContent = "Play";
}

// Show the iterations one after the other, in steps that grow, so that any number takes seconds
function play() {
  if (playing) return stop();
  const first = METHODS[state.method].first;
  state.r = state.r >= state.T ? first : state.r;
  $("play").textContent = "Pause";
  playing = setInterval(() => {
    state.r = Math.min(state.T, state.r + Math.max(1, Math.round((state.r - first) / 12)));
    if (state.r >= state.T) stop();
    render();
  }, 140);
  render();
}

function connect() {
  const groups = new Map();
  for (const preset of DATA.presets) {
    const lesson = preset.section.split(".")[0];
    if (!groups.has(lesson)) groups.set(lesson, Object.assign(document.createElement("optgroup"), { label: `Lesson ${lesson}` }));
    groups.get(lesson).append(new Option(preset.title, preset.id));
  }
  $("preset").append(...groups.values());
  const families = { points: "Clustering: a vote for all", routing: "Routing: a vote for each parent" };
  for (const [key, label] of Object.entries(families)) {
    const group = Object.assign(document.createElement("optgroup"), { label });
    const own = Object.entries(METHODS).filter(([, method]) => method.family === key);
    group.append(...own.map(([id, { name }]) => new Option(name, id)));
    $("method").append(group);
  }
  $("step").append(...Object.entries(STEPS).map(([id, name]) => new Option(name, id)));
  $("T").append(...HORIZONS.map((n) => new Option(n, n)));
  for (const key of ["K", "sigma2", "lambda"]) $(key).max = TEMPERATURES.length - 1;
  const on = (id, event, act) => $(id).addEventListener(event, (e) => act(e.target));
  on("preset", "change", ({ value }) => choose(value));
  on("method", "change", ({ value }) => changeMethod(value));
  on("reset", "click", () => choose(state.preset.id));
  on("play", "click", play);
  on("add", "click", addVote);
  on("remove", "click", removeVote);
  on("r", "input", ({ value }) => { stop(); state.r = +value; render(); });
  on("T", "change", ({ value }) => { stop(); [state.T, state.r] = [+value, +value]; render(); });
  on("J", "input", ({ value }) => { state.J = +value; rebuild(); });
  for (const key of ["K", "sigma2", "lambda"]) on(key, "input", ({ value }) => { state[key] = TEMPERATURES[value]; render(); });
  for (const key of ["betaU", "betaA"]) on(key, "input", ({ value }) => { state[key] = +value; render(); });
  for (const key of ["covariance", "step"]) on(key, "change", ({ value }) => { state[key] = value; render(); });
  for (const key of ["fromKmeans", "orphans"]) on(key, "change", ({ checked }) => { state[key] = checked; render(); });
  on("strength", "input", ({ value }) => { state.strengths[marked] = +value; render(); });
  addEventListener("hashchange", () => {
    if (location.hash === written) return;
    stop();
    read(location.hash);
    rebuild();
    $("planes").scrollIntoView({ block: "nearest" });
  });
  addEventListener("resize", () => render());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", rebuild);
}

const objective = new Chart($("objective-chart"), "Objective", (t) => { stop(); state.r = Math.round(t); render(); });
const temperature = new Chart($("temperature-chart"), "Temperature", (K) => {
  const key = METHODS[state.method].temperature, away = (n) => Math.abs(Math.log(n / K));
  state[key] = TEMPERATURES.reduce((best, n) => (away(n) < away(best) ? n : best));
  render();
});
connect();
read(location.hash);
rebuild();
