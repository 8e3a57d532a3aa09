"use strict";
// Elements, pictures and cells that say what they are when a pointer or the keyboard reaches them.

const $ = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// One element of SVG as text: views put these together and set them at once.
function shape(tag, attributes, inside = "") {
  const text = Object.entries(attributes).map(([name, value]) => ` ${name}="${value}"`);
  return `<${tag}${text.join("")}>${inside}</${tag}>`;
}

function escaped(text) {
  return String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

const two = (x) => x.toFixed(2).replace("-", "−").replace(/^−0\.00$/, "0.00");

// An arrow from (x, y) by (dx, dy), with a head that shrinks with it.
function arrow(x, y, dx, dy, attributes) {
  const n = Math.hypot(dx, dy), head = Math.min(5, 0.4 * n), a = Math.atan2(dy, dx);
  const tip = (turn) => `${(x + dx - head * Math.cos(a + turn)).toFixed(1)} ${(y + dy - head * Math.sin(a + turn)).toFixed(1)}`;
  const end = `${(x + dx).toFixed(1)} ${(y + dy).toFixed(1)}`;
  const d = `M${x.toFixed(1)} ${y.toFixed(1)}L${end}M${tip(0.5)}L${end}L${tip(-0.5)}`;
  return shape("path", { d, fill: "none", "stroke-linecap": "round", ...attributes });
}

// ---- pictures

// Draw an image { data, shape } with one canvas pixel for each of its pixels; the style enlarges it.
function paint(canvas, { data, shape: [C, H, W] }) {
  paintPixels(canvas, H, W, (k) => [0, 1, 2].map((c) => 255 * data[(C === 1 ? 0 : c * H * W) + k]));
}

// color(k): red, green, blue and, if it is not opaque, alpha of pixel k, up to 255
function paintPixels(canvas, height, width, color) {
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d"), pixels = context.createImageData(width, height);
  for (let k = 0; k < height * width; k++) {
    const [red, green, blue, alpha = 255] = color(k), data = pixels.data;
    data[4 * k] = red;
    data[4 * k + 1] = green;
    data[4 * k + 2] = blue;
    data[4 * k + 3] = alpha;
  }
  context.putImageData(pixels, 0, 0);
}

// The red, green and blue of a variable of page.css in the current mode. They are kept, because asking
// for them makes the browser lay out the page.
const colors = new Map(), darkMode = matchMedia("(prefers-color-scheme: dark)");
function rgb(name) {
  const key = `${name} ${darkMode.matches}`;
  if (!colors.has(key)) colors.set(key, askedColor(name));
  return colors.get(key);
}

function askedColor(name) {
  const probe = element("span", { style: `color: var(--${name})`, hidden: "" });
  document.body.append(probe);
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

// ---- cells that tell their number

// Let a pointer, or the arrow keys after a focus, choose one of columns × rows cells of an element.
// describe(column, row) returns what is there, as in readout.js. size() returns [columns, rows], which may change.
function tellCells(target, size, describe) {
  let cell = [0, 0];
  const box = element("span", { class: "cell", hidden: "" });
  target.parentElement.classList.add("cells");
  target.parentElement.append(box);
  target.tabIndex = 0;
  const within = (place) => size().map((end, axis) => Math.min(end - 1, Math.max(0, place[axis])));
  const choose = (...place) => {
    const [columns, rows] = size();
    cell = within(place);
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = target instanceof SVGElement ? boxOf(target) : target;
    const [w, h] = [offsetWidth / columns, offsetHeight / rows];
    box.hidden = false;
    box.style.cssText = `left:${offsetLeft + cell[0] * w}px;top:${offsetTop + cell[1] * h}px;width:${w}px;height:${h}px`;
    tell(target, () => describe(...within(cell)));
  };
  target.addEventListener("pointermove", (event) => {
    const place = target.getBoundingClientRect(), [columns, rows] = size();
    choose(
      Math.floor(((event.clientX - place.left) / place.width) * columns),
      Math.floor(((event.clientY - place.top) / place.height) * rows));
  });
  for (const name of ["pointerleave", "blur"]) target.addEventListener(name, () => (box.hidden = true));
  target.addEventListener("focus", () => target.matches(":focus-visible") && choose(...cell));
  target.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    choose(cell[0] + step[0], cell[1] + step[1]);
  });
}

function boxOf(target) {
  const [inner, outer] = [target, target.parentElement].map((one) => one.getBoundingClientRect());
  return {
    offsetLeft: inner.left - outer.left, offsetTop: inner.top - outer.top,
    offsetWidth: inner.width, offsetHeight: inner.height,
  };
}

// Let a pointer choose the nearest of some points of an SVG, and the arrow keys the next one.
function tellPoints(svg, points, describe) {
  let chosen = 0;
  const choose = (k) => {
    chosen = k;
    tell(svg, () => k < points().length && describe(k));
  };
  svg.tabIndex = 0;
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), { width, height } = svg.viewBox.baseVal;
    const [x, y] = [((event.clientX - box.left) * width) / box.width, ((event.clientY - box.top) * height) / box.height];
    if (points().length === 0) return;
    const far = points().map(([u, v]) => Math.hypot(u - x, v - y));
    choose(far.indexOf(Math.min(...far)));
  });
  svg.addEventListener("focus", () => points().length && choose(Math.min(chosen, points().length - 1)));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step || points().length === 0) return;
    event.preventDefault();
    choose((chosen + step + points().length) % points().length);
  });
}
