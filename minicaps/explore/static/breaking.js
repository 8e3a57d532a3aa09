"use strict";
// Break it: spoil the image step by step, and see what falls apart first.

const KNOBS = {
  rotate: ["rotate", "°"], right: ["move right", " px"], down: ["move down", " px"],
  zoom: ["scale", "%"], noise: ["noise", "%"], hide: ["erase from below", "%"],
};
const STEPS = 24;

// The image of a situation with all that is done to it.
function spoiled(image, { rotate, right, down, zoom, noise, hide }) {
  let made = image;
  if (rotate || right || down || zoom !== 100) made = transformed(made, { rotate, right, down, zoom: zoom / 100 }, GROUND);
  if (hide) made = hidden(made, hide / 100, GROUND);
  return noise ? noisy(made, noise / 100) : made;
}

// Places in the figure of the curve
const along = (value, knob) => 34 + (420 * (value - FIELDS[knob].low)) / (FIELDS[knob].high - FIELDS[knob].low);
const above = (share) => 12 + 180 * (1 - share);

const intactOf = (situation) => ({ ...situation, ...Object.fromEntries(Object.keys(KNOBS).map((name) => [name, FIRST[name]])) });

function makeBreaking(change, judge) {
  const overlays = ["before", "after"].map((name) => {
    const overlay = makeOverlay(`couplings ${name}`);
    $(`break-${name}`).prepend(overlay.figure);
    return overlay;
  });
  for (const name of Object.keys(KNOBS)) {
    const input = $(`field-${name}`);
    for (const reached of ["focus", "pointerdown", "input"]) input.addEventListener(reached, () => change({ knob: name }));
  }
  $("mend").addEventListener("click", () => change(intactOf({})));

  tellPoints($("curve"), () => curve.points.map(({ x, y }) => [x, y]), (k) => {
    const { value, own, other, beside } = curve.points[k], [label, unit] = KNOBS[curve.knob];
    const dense = BESIDE ? `, dense-cnn ${two(beside)}` : "";
    return [`${label} ${value}${unit}: |v| ${two(own)} for ${NAMES[curve.target]}, ${two(other)} for the longest other${dense}`, "length"];
  });

  // The curve of a knob is computed a point at a time, so that the page stays awake.
  let curve = { key: "", points: [] };
  function follow(shown, before) {
    const { situation, whole: image } = shown, { low, high } = FIELDS[situation.knob];
    const { t, tab, parent, pose, ...rest } = situation, target = before.winner;
    const key = JSON.stringify({ ...rest, [situation.knob]: 0 });
    if (key === curve.key) return drawCurve(situation);
    const mine = (curve = { key, knob: situation.knob, target, points: [] });
    drawCurve(situation);
    const next = () => {
      if (curve !== mine || mine.points.length > STEPS) return;
      const value = Math.round(low + ((high - low) * mine.points.length) / STEPS);
      const made = spoiled(image, { ...situation, [mine.knob]: value }), { last } = judge(made, situation);
      const beside = BESIDE && denseScores(BESIDE, made);
      const own = last.lengths[target], other = Math.max(...last.lengths.map((x, j) => (j === target ? 0 : x)));
      mine.points.push({ value, x: along(value, mine.knob), y: above(own), own, other, beside: beside && beside[target] });
      drawLines();
      setTimeout(next);
    };
    next();
  }

  // The axes and the value of now; the lines follow as their points are known.
  function drawCurve({ [curve.knob]: value }) {
    const { knob, target } = curve, { low, high } = FIELDS[knob], [label, unit] = KNOBS[knob];
    const x = (place) => along(place, knob), anchored = (place, anchor) => ({ ...place, "text-anchor": anchor });
    const axis = [0, 0.5, 1].map((share) => shape("path", { class: "rule", d: `M34 ${above(share)}H454` })
      + shape("text", anchored({ x: 28, y: above(share) + 4 }, "end"), share));
    const ticks = [low, Math.round((low + high) / 2), high].map((place) =>
      shape("text", anchored({ x: x(place), y: 210 }, "middle"), `${String(place).replace("-", "−")}${unit}`));
    const now = shape("path", { class: "now", d: `M${x(value)} 12V192` });
    $("curve").innerHTML = [...axis, ...ticks, now, shape("g", { id: "curve-lines" })].join("");
    $("curve").setAttribute("aria-label", `Length of capsule ${NAMES[target]} over ${label}`);
    $("curve-own").textContent = `length of ${NAMES[target]}`;
    $("curve-dense").textContent = `dense-cnn: probability of ${NAMES[target]}`;
    drawLines();
  }

  function drawLines() {
    const line = (name, kind) => shape("path", {
      class: kind, d: curve.points.map((point, k) => `${k ? "L" : "M"}${point.x.toFixed(1)} ${above(point[name]).toFixed(1)}`).join(""),
    });
    $("curve-lines").innerHTML = line("other", "other") + (BESIDE ? line("beside", "dense") : "") + line("own", "own");
    tellAgain();
  }

  function render(shown) {
    const { situation, whole: image, last } = shown, before = judge(image, situation), target = before.winner;
    const added = [before, shown].map(({ look: { votes }, last: all }) => pushes(votes, all, target));
    const top = largestPush(before.look.votes, [before.last]);
    [image, shown.image].forEach((one, k) => overlays[k].render(one, [[added[k], "var(--sky)"]], top));
    const words = [before.last, last].map((one) => `|v| ${two(one.lengths[target])}, entropy of the couplings ${two(entropy(one))} (1: equal shares)`);
    $("before-text").textContent = words[0];
    $("after-text").textContent = words[1];
    document.querySelectorAll(".target-name").forEach((place) => (place.textContent = NAMES[target]));
    $("curve-dense").hidden = !BESIDE;
    follow(shown, before);
  }
  return { render };
}
