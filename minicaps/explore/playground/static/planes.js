// The planes in which votes are dragged: one for clustering, one for each parent of a routing.
// One unit of their coordinates is a pixel. A handle is a vote or the start of a center.
"use strict";

const NEAR = 24; // pixels from a pointer to the handle that it grabs
const MARKS = [ // one shape for each parent
  "M0-9 8.5 7H-8.5Z", "M-7.5-7.5H7.5V7.5H-7.5Z", "M0-9.5 9.5 0 0 9.5-9.5 0Z",
  "M0-8.5A8.5 8.5 0 1 1 0 8.5 8.5 8.5 0 1 1 0-8.5Z", "M0 9 8.5-7H-8.5Z",
  "M-3-9H3V-3H9V3H3V9H-3V3H-9V-3H-3Z",
];

function svg(tag, attributes = {}, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

// Colors of the parents as [r, g, b], which light and dark screens define in the stylesheet
function inks(element) {
  const probe = document.createElement("i");
  element.append(probe);
  const colors = range(NAMES.length).map((j) => {
    probe.style.color = `var(--parent-${j})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  return colors;
}

const blend = (shares, colors) =>
  `rgb(${range(3).map((n) => Math.round(sum(shares.map((c, j) => c * (colors[j] ?? [128, 128, 128])[n]))))})`;

// `tell` has functions moved(handle, [x, y]), chosen(handle), hovered(handle or null), removed(handle).
class Plane {
  constructor(parents, title, tell) {
    this.parents = parents; // the indices of the parents that the plane shows
    this.tell = tell;
    this.handles = new Map(); // key -> {key, kind, id, element, dot, at}
    this.figure = document.createElement("figure");
    this.figure.className = "plane";
    this.svg = svg("svg", { role: "group", "aria-label": title }, this.figure);
    this.layers = {};
    for (const name of ["axes", "below", "handles", "above"]) {
      this.layers[name] = svg("g", { class: name }, this.svg);
    }
    const caption = document.createElement("figcaption");
    this.figure.prepend(caption);
    caption.textContent = title;
    this.svg.addEventListener("pointerdown", (event) => this.grab(event));
    const hold = (event) => this.held && event.preventDefault(); // a finger on a vote does not scroll
    this.svg.addEventListener("touchstart", hold, { passive: false });
    this.svg.addEventListener("pointermove", (event) => this.drag(event));
    this.svg.addEventListener("pointerleave", () => this.tell.hovered(null));
    for (const name of ["pointerup", "pointercancel"]) {
      this.svg.addEventListener(name, () => { this.held = null; });
    }
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("focusin", (event) => this.focus(event));
  }

  // ---- Coordinates: `reach` is the distance from the middle to an edge of the shorter side.
  resize(view) {
    const width = Math.max(this.svg.clientWidth, 120), height = width * view.aspect;
    this.view = { ...view, width, height, scale: (Math.min(width, height) / 2 - 14) / view.reach };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }

  screen([x, y]) {
    const { width, height, scale, middle } = this.view;
    return [width / 2 + (x - middle[0]) * scale, height / 2 - (y - middle[1]) * scale];
  }

  pixel({ clientX, clientY }) {
    const box = this.svg.getBoundingClientRect(), { clientLeft, clientTop } = this.svg;
    return [clientX - box.left - clientLeft, clientY - box.top - clientTop]; // inside the border
  }

  world(event) {
    const { width, height, scale, middle } = this.view, [px, py] = this.pixel(event);
    return [middle[0] + (px - width / 2) / scale, middle[1] - (py - height / 2) / scale];
  }

  inside([x, y]) {
    const { width, height, scale, middle } = this.view;
    const limits = [(width / 2 - 8) / scale, (height / 2 - 8) / scale];
    return [x, y].map((value, d) => Math.min(Math.max(value, middle[d] - limits[d]), middle[d] + limits[d]));
  }

  // ---- Handles
  place(wanted) {
    const keys = new Set(wanted.map(({ key }) => key));
    for (const [key, { element }] of this.handles) {
      if (!keys.has(key)) { element.remove(); this.handles.delete(key); }
    }
    for (const spec of wanted) {
      const handle = this.handles.get(spec.key) ?? this.make(spec);
      handle.at = spec.at;
      const [x, y] = this.screen(spec.at), { element, dot } = handle;
      element.setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
      element.setAttribute("aria-label", spec.label);
      element.setAttribute("aria-valuenow", spec.at[0].toFixed(2));
      element.setAttribute("aria-valuetext", spec.text);
      element.classList.toggle("marked", spec.marked);
      element.classList.toggle("faint", Boolean(spec.faint));
      if (spec.kind === "vote") dot.setAttribute("r", spec.size);
      dot.style.fill = spec.kind === "vote" ? spec.color : "none";
      dot.style.stroke = spec.kind === "vote" ? "" : spec.color;
    }
    const first = [...this.handles.keys()];
    if (!this.handles.has(this.current)) this.current = first[0];
    for (const [key, { element }] of this.handles) {
      element.setAttribute("tabindex", key === this.current ? 0 : -1);
    }
  }

  make({ key, kind, id }) {
    const roles = { role: "slider", "aria-roledescription": kind === "vote" ? "vote" : "start of a center" };
    const element = svg("g", { class: `handle ${kind}`, ...roles }, this.layers.handles);
    svg("circle", { class: "hit", r: 20 }, element);
    const dot = kind === "vote" ? svg("circle", { class: "dot" }, element)
      : svg("path", { class: "dot", d: MARKS[id] }, element);
    const handle = { key, kind, id, element, dot };
    this.handles.set(key, handle);
    return handle;
  }

  nearest(event) {
    const at = this.pixel(event);
    let best = null, least = NEAR;
    for (const handle of this.handles.values()) {
      const away = norm(minus(this.screen(handle.at), at));
      if (away <= least) [best, least] = [handle, away];
    }
    return best;
  }

  // ---- Pointer
  grab(event) {
    const handle = event.isPrimary && event.button === 0 && this.nearest(event);
    if (!handle) return;
    event.preventDefault(); // no selection of text
    this.held = handle;
    this.svg.setPointerCapture(event.pointerId);
    handle.element.focus({ preventScroll: true });
  }

  drag(event) {
    if (!this.held) {
      const near = event.pointerType === "mouse" ? this.nearest(event) : null;
      this.svg.classList.toggle("over", Boolean(near));
      return this.tell.hovered(near);
    }
    if (!event.isPrimary) return;
    const at = this.inside(this.world(event)).map((value) => Math.round(value * 100) / 100);
    this.tell.moved(this.held, at);
  }

  // ---- Keyboard
  key(event) {
    const handle = this.handles.get(this.current);
    if (!handle || event.ctrlKey || event.metaKey || event.altKey) return;
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const jumps = { PageDown: 1, PageUp: -1, Home: -Infinity, End: Infinity };
    if (event.key in ways) {
      const step = event.shiftKey ? 0.01 : 0.1;
      const to = handle.at.map((value, d) =>
        ways[event.key][d] ? Math.round((value + step * ways[event.key][d]) * 100) / 100 : value);
      this.tell.moved(handle, this.inside(to).map((value, d) => (ways[event.key][d] ? value : handle.at[d])));
    } else if (event.key in jumps) {
      const all = [...this.handles.values()], last = all.length - 1;
      const to = Math.min(Math.max(all.indexOf(handle) + jumps[event.key], 0), last);
      all[to].element.focus({ preventScroll: true });
    } else if (event.key === "Delete" && handle.kind === "vote") {
      this.tell.removed(handle);
    } else return;
    event.preventDefault();
  }

  focus(event) {
    const found = [...this.handles.values()].find(({ element }) => element === event.target);
    if (!found) return;
    this.current = found.key;
    for (const [key, { element }] of this.handles) {
      element.setAttribute("tabindex", key === this.current ? 0 : -1);
    }
    this.tell.chosen(found);
  }

  // ---- What the reader cannot drag
  draw(situation, method, states, colors, marked) {
    const state = states[states.length - 1], { below, above, axes } = this.layers;
    const ink = (j) => `rgb(${colors[j]})`, zero = this.screen([0, 0]), { width, height } = this.view;
    axes.innerHTML = `<path d="M0 ${zero[1]}H${width}M${zero[0]} 0V${height}"/>`;
    const parts = [], marks = [];
    this.parents.forEach((j) => {
      if (state.covariances) parts.push(this.ellipses(state.places[j], state.covariances[j], ink(j)));
      if (method.arrows && method.family === "routing") {
        parts.push(this.fan(situation, state, j, colors, marked));
      }
      if (!method.arrows) parts.push(this.trail(states, j, ink(j)));
    });
    const longest = Math.max(...state.places.map(norm)); // sums are longer than any vote
    const shrink = method === METHODS.spherical ? Math.min(1, (0.9 * this.view.reach) / longest) : 1;
    this.parents.forEach((j) => {
      const at = this.screen(state.places[j].map((value) => value * shrink));
      const away = (k) => norm(minus(state.places[k], state.places[j])) * this.view.scale;
      const size = this.parents.some((k) => k !== j && away(k) < 4) ? 1.6 - 0.3 * j : 1; // all are seen
      marks.push(method.arrows ? arrow(zero, at, ink(j), NAMES[j]) : mark(j, at, ink(j), size));
    });
    below.innerHTML = parts.join("");
    above.innerHTML = marks.join("");
    return shrink;
  }

  // Ellipses at one and two standard deviations
  ellipses(place, covariance, ink) {
    const { values, vectors } = eigh(covariance), [x, y] = this.screen(place);
    const angle = (-180 / Math.PI) * Math.atan2(vectors[1][1], vectors[1][0]);
    return [1, 2].map((k) => {
      const [ry, rx] = values.map((value) => k * Math.sqrt(Math.max(value, 0)) * this.view.scale);
      const place = `translate(${x} ${y}) rotate(${angle})`;
      return `<ellipse class="deviation" style="stroke:${ink}" rx="${rx}" ry="${ry}" transform="${place}"/>`;
    }).join("");
  }

  // Lines from the origin to the votes for parent j, as thick as their couplings
  fan({ votes, ids }, { shares }, j, colors, marked) {
    const zero = this.screen([0, 0]);
    return votes.map((row, i) => {
      const [x, y] = this.screen(row[j]), width = 0.5 + 6 * shares[i][j];
      const kind = ids[i] === marked ? "vote-line marked" : "vote-line";
      const style = `stroke:${blend(shares[i], colors)};stroke-width:${width.toFixed(2)}`;
      return `<path class="${kind}" style="${style}" d="M${zero}L${x} ${y}"/>`;
    }).join("");
  }

  trail(states, j, ink) {
    const text = (point) => point.map((value) => value.toFixed(1)).join(" ");
    const points = states.map(({ places }) => text(this.screen(places[j])));
    const distinct = points.filter((point, t) => point !== points[t - 1]).slice(-200);
    const dots = distinct.map((point) => `M${point}h0`).join("");
    return `<path class="trail" style="stroke:${ink}" d="M${distinct.join("L")}"/>`
      + `<path class="trail-dots" style="stroke:${ink}" d="${dots}"/>`;
  }
}

const SIDES = [[12, -8], [12, 19], [-23, -8], [-23, 19], [-5, -15], [-5, 27]]; // of the names beside marks

const mark = (j, [x, y], ink, size) =>
  `<g transform="translate(${x} ${y})">`
  + `<path class="parent" style="fill:${ink}" transform="scale(${size})" d="${MARKS[j]}"/>`
  + `<text class="name" x="${SIDES[j][0]}" y="${SIDES[j][1]}">${NAMES[j]}</text></g>`;

function arrow(from, to, ink, name) {
  const along = minus(to, from), n = norm(along);
  const [x, y] = n ? along.map((value) => value / n) : [1, 0], size = Math.min(15, n);
  const base = [to[0] - size * x, to[1] - size * y], half = size * 0.45;
  const corner = (side) => [base[0] - side * half * y, base[1] + side * half * x];
  const head = `M${to}L${corner(1)}L${corner(-1)}Z`;
  const label = `<text class="name" x="${to[0] + 12 * x - 5}" y="${to[1] + 14 * y + 5}">${name}</text>`;
  const shaft = `M${from}L${base}`;
  return `<path class="arrow-edge" d="${shaft}"/><path class="arrow" d="${shaft}"/>`
    + `<path class="head" style="fill:${ink}" d="${head}"/>${label}`;
}
