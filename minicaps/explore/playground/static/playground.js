// The controls of the page, and what happens when a vote is dragged or a control is moved.
"use strict";

const TEMPERATURES = [-2, -1, 0, 1].flatMap((power) =>
  [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8].map((n) => +(n * 10 ** power).toPrecision(2))).concat(100);
const HORIZONS = [10, 20, 30, 40, 100, 300, 1000];
const MOST_VOTES = 300;
const $ = (id) => document.getElementById(id);
let colors, planes = [];
let chosen = null, pointed = null; // ids of the child that is chosen, and of that under the mouse
let sweeping = 0, playing = 0, telling = 0; // timers
const known = { run: {}, sweep: {} }; // what was computed last, and for which situation

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
  chosen = pointed = null;
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
    const shrink = plane.draw(now, method, shown, colors, pointed ?? chosen);
    const times = +(1 / shrink).toPrecision(2);
    $("scale").textContent = shrink < 1 ? `Arrows are ${times} times longer than drawn.` : "";
  });
  const text = typeof method.objective === "function" ? method.objective(state) : method.objective;
  $("objective-plain").textContent = plainObjective(method, state);
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
      key: `u${id}`, kind: "vote", id, at, faint, marked: id === (pointed ?? chosen),
      size: size.toFixed(1), color: blend(shares, colors),
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

const fixed = (value, digits = 3) => (+value.toFixed(digits) || 0).toFixed(digits).replace("-", "−"); // no −0

function showNumbers(method, now, current) {
  const value = current.value === null ? "–" : fixed(current.value);
  const others = facts(method, now, current).map(([name, n]) => [name, fixed(n)]);
  const list = [[`objective at r = ${state.r}`, value], ...others];
  $("facts").replaceChildren(...list.flatMap(([name, number]) => {
    const [term, data] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, data.textContent] = [name, number];
    return [term, data];
  }));
  const table = parentsTable(method, now, current), heads = Object.keys(table);
  const cell = (value) => (typeof value === "number" ? fixed(value) : value);
  const icon = (j) => `<path class="parent" style="fill:rgb(${colors[j]})" d="${MARKS[j]}"/>`;
  const name = (j) => `<svg viewBox="-11 -11 22 22" aria-hidden="true">${icon(j)}</svg>${NAMES[j]}`;
  const row = (j) => heads.map((head) => `<td>${cell(table[head][j])}</td>`).join("");
  $("parents-head").innerHTML = ["parent", ...heads].map((head) => `<th scope="col">${head}</th>`).join("");
  $("parents").innerHTML = range(state.J).map((j) =>
    `<tr><th scope="row">${name(j)}</th>${row(j)}</tr>`).join("");
  const child = pointed ?? chosen, at = now.ids.indexOf(child);
  $("child").textContent = at < 0 ? "Choose a vote to read its shares."
    : `Child ${child}: shares ${sharesText(current.shares[at])}`;
}

// What screen readers announce once nothing has changed for a moment
function spoken(method, now, current) {
  const value = current.value === null ? "" : ` Objective ${fixed(current.value)}.`;
  const followers = (j) => sum(column(current.shares, j)).toFixed(1);
  const each = current.places.map((v, j) =>
    `${NAMES[j]} at ${v.map((n) => fixed(n, 2)).join(", ")} with ${followers(j)} followers`);
  return `${method.name}, iteration ${state.r} of ${state.T}.${value} ${each.join("; ")}.`;
}

// The end of the iterations for every temperature, a few at a time so that the page stays fluid
function sweep() {
  const method = METHODS[state.method], name = method.temperature, now = situation();
  const without = { mixture: state.covariance !== "fixed", em: state.step === "gmm" }[state.method];
  $("sweep").hidden = !name || Boolean(without);
  if ($("sweep").hidden) return;
  const key = situationKey(name);
  if (known.sweep.key !== key) known.sweep = { key, lines: [] };
  const { lines } = known.sweep, began = performance.now();
  const limits = name === "sigma2" ? [0.01, 10] : [0.05, 30];
  const grid = TEMPERATURES.filter((value) => value >= limits[0] && value <= limits[1]);
  while (lines.length < grid.length && performance.now() - began < 12) {
    const K = grid[lines.length];
    lines.push([K, method.run({ ...now, [name]: K }, state.T).at(-1).places]);
  }
  $("sweep").setAttribute("aria-busy", lines.length < grid.length);
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
      chosen = handle.kind === "vote" ? handle.id : null;
      render();
    },
    hovered(handle) {
      const id = handle?.kind === "vote" ? handle.id : null;
      if (id === pointed) return;
      pointed = id;
      render();
    },
    removed(handle) {
      chosen = handle.id;
      removeVote();
      planes[n].handles.get(planes[n].current).element.focus({ preventScroll: true });
    },
  };
}

function addVote() {
  const now = situation();
  if (now.ids.length >= MOST_VOTES) return;
  const added = Object.keys(state.votes).map((key) => parseInt(key, 10));
  const used = [...DATA.sets[state.preset.votes].keys(), ...added];
  const id = Math.max(...used) + 1;
  if (family() === "points") state.votes[id] = stray(id, 0);
  else range(state.J).forEach((j) => { state.votes[id + NAMES[j]] = stray(id, j); });
  chosen = id;
  render();
}

function removeVote() {
  const now = situation();
  if (now.ids.length <= state.J || !now.ids.includes(chosen)) return;
  state.cut.push(chosen);
  chosen = pointed = null;
  render();
}

// ---- Controls

function showControls(method, now) {
  const shown = new Set(method.settings);
  if (state.covariance !== "fixed") shown.delete("sigma2");
  if (state.step === "gmm") for (const key of ["lambda", "betaU", "betaA"]) shown.delete(key);
  for (const row of document.querySelectorAll("[data-setting]")) row.hidden = !shown.has(row.dataset.setting);
  const weighs = state.method === "em" && ["complete", "input-activation"].includes(state.step);
  const at = now.ids.indexOf(chosen);
  $("strength-row").hidden = !weighs || at < 0;
  if (at >= 0) [$("strength").value, $("strength-out").value] = [now.strengths[at], now.strengths[at]];
  $("preset").value = state.preset.id;
  $("method").value = state.method;
  $("r").min = method.first;
  $("r").max = state.T;
  for (const key of ["r", "J", "betaU", "betaA"]) {
    [$(key).value, $(`${key}-out`).value] = [state[key], state[key]];
  }
  for (const key of ["K", "sigma2", "lambda"]) {
    const away = (n) => Math.abs(Math.log(TEMPERATURES[n] / state[key]));
    $(key).value = range(TEMPERATURES.length).reduce((best, n) => (away(n) < away(best) ? n : best));
    $(`${key}-out`).value = state[key];
    $(key).setAttribute("aria-valuetext", state[key]);
  }
  const offered = [...$("T").options].some(({ value }) => +value === state.T);
  if (!offered) $("T").append(new Option(state.T, state.T)); // an address may ask for any number
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

function set(settings) {
  Object.assign(state, settings);
  render();
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
  if (DATA.lessons !== null) Object.assign($("home"), { hidden: false, href: `${DATA.lessons}index.html` });
  const group = (label, options) => {
    const element = Object.assign(document.createElement("optgroup"), { label });
    element.append(...options);
    return element;
  };
  for (const lesson of new Set(DATA.presets.map(({ page }) => page))) {
    const own = DATA.presets.filter(({ page }) => page === lesson);
    const label = `Lesson ${own[0].section.split(".")[0]}`;
    $("preset").append(group(label, own.map(({ title, id }) => new Option(title, id))));
  }
  const families = { points: "Clustering: a vote for all", routing: "Routing: a vote for each parent" };
  for (const [key, label] of Object.entries(families)) {
    const own = Object.entries(METHODS).filter(([, method]) => method.family === key);
    $("method").append(group(label, own.map(([id, { name }]) => new Option(name, id))));
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
  on("r", "input", ({ value }) => { stop(); set({ r: +value }); });
  on("T", "change", ({ value }) => { stop(); set({ T: +value, r: +value }); });
  on("J", "input", ({ value }) => { state.J = +value; rebuild(); });
  for (const key of ["K", "sigma2", "lambda"]) {
    on(key, "input", ({ value }) => set({ [key]: TEMPERATURES[value] }));
  }
  for (const key of ["betaU", "betaA"]) on(key, "input", ({ value }) => set({ [key]: +value }));
  for (const key of ["covariance", "step"]) on(key, "change", ({ value }) => set({ [key]: value }));
  for (const key of ["fromKmeans", "orphans"]) on(key, "change", ({ checked }) => set({ [key]: checked }));
  on("strength", "input", ({ value }) => { state.strengths[chosen] = +value; render(); });
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

const objective = new Chart($("objective-chart"), "Objective", (t) => { stop(); set({ r: Math.round(t) }); });
const temperature = new Chart($("temperature-chart"), "Temperature", (K) => {
  const key = METHODS[state.method].temperature, away = (n) => Math.abs(Math.log(n / K));
  set({ [key]: TEMPERATURES.reduce((best, n) => (away(n) < away(best) ? n : best)) });
});
connect();
read(location.hash);
rebuild();
