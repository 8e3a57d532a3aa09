"use strict";
// The situation: everything that a visitor has chosen. It is kept in the address behind "#", so that
// a link leads to it; choices that equal the first situation are left out.

const DATA = JSON.parse(document.getElementById("data").textContent);
const NETWORK = withWeights(DATA.network);
const BESIDE = DATA.beside && withWeights(DATA.beside);
const NAMES = NETWORK.classes;
const [CHANNELS, HEIGHT, WIDTH] = NETWORK.shape;
const [CHILDREN, PARENTS, , SIZE] = NETWORK.votes.shape;
const GROUND = NETWORK.background === "light" ? 1 : 0; // the value of an empty image
const LIMIT = Math.max(10, NETWORK.routing.iterations);

// The rules of routing on offer: the name in the address, its options, and what it is called
const RULE_CHOICES = [
  ["accumulate", { routing: "agreement", update: "accumulate" }, "agreement, added up"],
  ["recompute", { routing: "agreement", update: "recompute" }, "agreement, renewed"],
  ["spherical", { routing: "agreement", update: "spherical" }, "agreement of directions"],
  ["leaky", { routing: "leaky", update: "accumulate" }, "leaky, added up"],
  ["leaky-recompute", { routing: "leaky", update: "recompute" }, "leaky, renewed"],
  ["leaky-spherical", { routing: "leaky", update: "spherical" }, "leaky, directions"],
  ["distance", { routing: "distance", update: null }, "distance to a mean"],
];
if (NETWORK.logits) RULE_CHOICES.push(["learned", { routing: "learned", update: null }, "learned couplings"]);

function ruleOfNetwork() {
  const own = NETWORK.routing, same = ([, { routing, update }]) => routing === own.routing && update === own.update;
  return RULE_CHOICES.find(same)[0];
}

// The fields of a situation: a first value, and a function that returns a value read from text, or
// undefined if the text makes no sense.
function whole(first, low, high) {
  const read = (text) => (/^-?\d+$/.test(text) ? Math.min(high, Math.max(low, Number(text))) : undefined);
  return { first, low, high, read };
}

function choice(first, values) {
  return { first, read: (text) => (values.includes(text) ? text : undefined) };
}

function pattern(first, form) {
  return { first, read: (text) => (form.test(text) ? text : undefined) };
}

const TABS = ["inside", "knobs", "pair", "break"];
const FIELDS = {
  tab: choice("inside", TABS),
  image: whole(DATA.examples.labels.length ? 0 : -1, -1, DATA.examples.labels.length - 1), // −1: ink
  ink: pattern("", /^[\w-]*$/),
  parent: whole(-1, -1, PARENTS - 1), // −1: the longest capsule
  rule: choice(ruleOfNetwork(), RULE_CHOICES.map(([name]) => name)),
  r: whole(NETWORK.routing.iterations, 1, LIMIT),
  t: whole(0, 0, LIMIT), // the iteration that is shown; 0: the last
  pose: pattern("", /^(-?\d+_)*-?\d+$/), // hundredths
  second: whole(-1, -1, DATA.examples.labels.length - 1), // −1: none
  dx: whole(4, -WIDTH, WIDTH),
  dy: whole(3, -HEIGHT, HEIGHT),
  knob: choice("rotate", ["rotate", "right", "down", "zoom", "noise", "hide"]),
  rotate: whole(0, -180, 180),
  right: whole(0, -Math.ceil(WIDTH / 2), Math.ceil(WIDTH / 2)),
  down: whole(0, -Math.ceil(HEIGHT / 2), Math.ceil(HEIGHT / 2)),
  zoom: whole(100, 40, 160),
  noise: whole(0, 0, 100),
  hide: whole(0, 0, 100),
};
const FIRST = Object.fromEntries(Object.entries(FIELDS).map(([name, field]) => [name, field.first]));

// An address may also be the name of a tab alone, as in the links of the lessons. Programs that pass
// links on encode its signs.
function fromAddress(text) {
  const plain = text.replace(/^#/, "").replace(/%3D/gi, "=").replace(/%26/g, "&");
  return { ...FIRST, ...(TABS.includes(plain) ? { tab: plain } : {}), ...fieldsOf(plain) };
}

function fieldsOf(text) {
  const found = {};
  for (const [name, value] of new URLSearchParams(text)) {
    const read = Object.hasOwn(FIELDS, name) ? FIELDS[name].read(value) : undefined;
    if (read !== undefined) found[name] = read;
  }
  return found;
}

function toAddress(situation) {
  const changed = Object.entries(situation).filter(([name, value]) => value !== FIRST[name]);
  return "#" + new URLSearchParams(changed.map(([name, value]) => [name, String(value)]));
}

// ---- images as text: 4 bits for a pixel, for images that are small enough for an address

const LETTERS = "ABCDEFGHIJKLMNOP";
const LONGEST = 2000; // pixels

function inkToText({ data }) {
  if (data.length > LONGEST) return "";
  const text = Array.from(data, (x) => LETTERS[Math.round(15 * x)]).join("");
  return text.replace(/(.)\1{2,}/g, (run, letter) => letter + run.length); // runs of three and more
}

function textToInk(text) {
  const letters = text.replace(/([A-P])(\d+)/g, (_, letter, count) => letter.repeat(Math.min(count, LONGEST)));
  const image = blank(NETWORK.shape, GROUND);
  if (letters.length === image.data.length)
    image.data.forEach((_, k) => (image.data[k] = LETTERS.indexOf(letters[k]) / 15));
  return image;
}

// ---- examples

const EXAMPLE_BYTES = Uint8Array.from(atob(DATA.examples.pixels), (letter) => letter.charCodeAt(0));

function example(n) {
  const size = CHANNELS * HEIGHT * WIDTH;
  return { data: Float32Array.from(EXAMPLE_BYTES.subarray(n * size, (n + 1) * size), (x) => x / 255), shape: NETWORK.shape };
}
