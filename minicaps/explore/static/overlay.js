"use strict";
// Couplings laid over the image: which parts give themselves to a parent.

const GRID = NETWORK.grid; // rows, columns, types; the field of row k is centered at first + step·k

// What each position adds to the length of the sum s_j: Σ c_ij ⟨û_j|i, s_j/|s_j|⟩ over its types. The
// sum over all positions is |s_j|.
function pushes({ data: votes }, { couplings, sums }, j) {
  const toward = squash(sums.subarray(j * SIZE, (j + 1) * SIZE), SIZE, "unit");
  const found = new Float32Array(GRID.rows * GRID.columns);
  for (let i = 0; i < CHILDREN; i++)
    found[Math.floor(i / GRID.types)] += couplings[j * CHILDREN + i] * dot(votes, j * CHILDREN + i, toward);
  return found;
}

// The largest push of any position to any parent in these iterations: the full disc of all pictures of an image.
function largestPush(votes, history) {
  let top = 0;
  for (const iteration of history)
    for (let j = 0; j < PARENTS; j++) top = Math.max(top, ...pushes(votes, iteration, j));
  return top;
}

// ⟨vector k of (…, D), direction⟩
function dot(vectors, k, direction) {
  let sum = 0;
  for (let d = 0; d < SIZE; d++) sum += vectors[k * SIZE + d] * direction[d];
  return sum;
}

// minicaps.models.inspection.entropy, divided by that of equal shares: 1 if each child gives itself to all
// parents equally, 0 if to one. Orphans count as a parent.
function entropy({ couplings, orphans }) {
  const shares = [...couplings, ...(orphans ?? [])], equal = Math.log(shares.length / CHILDREN) || 1;
  return shares.reduce((sum, c) => sum - (c > 0 ? c * Math.log(c) : 0), 0) / CHILDREN / equal;
}

// A picture of an image with a disc for each position. layers: [[pushes, color], …]; top: the push
// of a full disc. Positions that push the other way have a ring.
function makeOverlay(label) {
  const canvas = element("canvas", { class: "pixels" });
  const figure = element("div", { class: "overlay", role: "img", "aria-label": label }, canvas);
  figure.insertAdjacentHTML("beforeend", `<svg viewBox="-0.5 -0.5 ${WIDTH} ${HEIGHT}" aria-hidden="true"></svg>`);
  const render = (image, layers, top) => {
    paint(canvas, image);
    const drawn = layers.map(([values, color], n) => discs(values, color, top, layers.length > 1 ? n - 0.5 : 0));
    figure.querySelector("svg").innerHTML = drawn.join("") + shape("rect", { class: "field" });
  };
  return { figure, render };
}

function discs(values, color, top, aside) {
  return Array.from(values, (value, place) => {
    const cx = GRID.first + GRID.step * ((place % GRID.columns) + aside / 2);
    const cy = GRID.first + GRID.step * Math.floor(place / GRID.columns);
    const r = 0.75 * GRID.step * Math.sqrt(Math.min(1, Math.abs(value) / Math.max(top, 1e-6)));
    const style = value < 0 ? { fill: "none", stroke: color, "stroke-width": GRID.step / 10 } : { fill: color, "fill-opacity": 0.8 };
    return shape("circle", { cx, cy, r: r.toFixed(2), ...style });
  }).join("");
}

// Outline what the children at a position see, in all pictures inside an element; −1: nowhere
function markField(within, place) {
  const side = 2 * GRID.first + 1, x = GRID.step * (place % GRID.columns), y = GRID.step * Math.floor(place / GRID.columns);
  for (const field of within.querySelectorAll(".field"))
    for (const [name, value] of Object.entries({ x: x - 0.5, y: y - 0.5, width: place < 0 ? 0 : side, height: place < 0 ? 0 : side }))
      field.setAttribute(name, value);
}
