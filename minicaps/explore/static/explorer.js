"use strict";
// The page: one situation, from which everything that is shown is computed anew.

let situation = fromAddress(location.hash), waiting = false;

// Choices that no longer make sense once others change
const NEW_IMAGE = ["image", "ink", "second"];
const NEW_POSE = [...NEW_IMAGE, "parent", "rule", "r", "dx", "dy", ...Object.keys(KNOBS)];

function change(part) {
  const differs = (name) => name in part && part[name] !== situation[name];
  const forgotten = {};
  if (NEW_IMAGE.some(differs)) forgotten.parent = -1;
  if (NEW_POSE.some(differs)) forgotten.pose = "";
  if (differs("rule") || differs("r")) forgotten.t = 0;
  situation = { ...situation, ...forgotten, ...part };
  if (!waiting) requestAnimationFrame(update);
  waiting = true;
}

// ---- computing

const optionsOf = ({ rule, r }) => ({
  ...NETWORK.routing, ...RULE_CHOICES.find(([name]) => name === rule)[1], iterations: r, logits: NETWORK.logits,
});

// What the network makes of an image; the last few results are kept, as most changes leave it alone.
const recent = [];
function look(image) {
  const known = recent.find(({ data }) => data.every((x, k) => x === image.data[k]));
  if (known) return known.looked;
  recent.unshift({ data: image.data, looked: lookAt(NETWORK, image) });
  recent.length = Math.min(recent.length, 3);
  return recent[0].looked;
}

function judge(image, chosen) {
  const looked = look(image), history = route(looked.votes, optionsOf(chosen)), last = history.at(-1);
  const ranking = Array.from(last.lengths.keys()).sort((a, b) => last.lengths[b] - last.lengths[a]);
  return { look: looked, history, last, ranking, winner: ranking[0] };
}

function computed() {
  const { second, dx, dy, parent, t } = situation, base = drawing.imageOf(situation);
  const move = { rotate: 0, zoom: 1, right: dx, down: dy };
  const whole = second < 0 ? base : overlaid(base, transformed(example(second), move, GROUND), GROUND);
  const image = spoiled(whole, situation), judged = judge(image, situation);
  const last = judged.history.length - 1;
  return {
    situation, base, whole, image, ...judged,
    parent: parent < 0 ? judged.winner : parent,
    t: t === 0 ? last : Math.min(t - 1, last),
  };
}

// ---- showing

const drawing = makeDrawing(change), bars = makeBars(change);
const views = { inside: makeInside(change), knobs: makeKnobs(change), pair: makePair(change), break: makeBreaking(change, judge) };

function update() {
  waiting = false;
  const shown = computed();
  drawing.render(shown);
  bars.render(shown);
  views[situation.tab].render(shown);
  showFields(shown);
  tellAgain();
  later.beside(shown.image);
  later.address();
  later.words(shown);
}

// Work that can wait until nothing else is to be done: only the last of several calls counts.
function delayed(milliseconds, work) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}

const later = {
  beside: delayed(0, (image) => BESIDE && (bars.renderBeside(denseScores(BESIDE, image)), tellAgain())),
  address: delayed(250, () => history.replaceState(null, "", toAddress(situation))),
  words: delayed(600, (shown) => ($("state").textContent = inWords(shown))),
};

// The state for screen readers
function inWords({ last, ranking, parent, situation: { tab, rotate, second }, history, t }) {
  const [first, next] = ranking.map((j) => `${NAMES[j]} with length ${two(last.lengths[j])}`);
  const parts = [`The longest capsule is ${first}, then ${next}.`];
  if (!isThere(last.lengths[ranking[0]], situation)) parts.unshift("Nothing is there.");
  if (second >= 0) parts.push(`A second image, ${DATA.examples.labels[second]}, is laid over the first.`);
  if (rotate) parts.push(`The image is rotated by ${rotate} degrees.`);
  if (tab === "inside") {
    const share = history[t].couplings.subarray(parent * CHILDREN, (parent + 1) * CHILDREN).reduce((a, b) => a + b, 0) / CHILDREN;
    parts.push(`In iteration ${t + 1} of ${history.length}, children give ${two(share)} of themselves to ${NAMES[parent]} on average.`);
  }
  return parts.join(" ");
}

// ---- controls that stand for a field: an element with data-field

const fields = [...document.querySelectorAll("[data-field]")];
for (const input of fields) {
  const name = input.dataset.field, field = FIELDS[name];
  if (input.type === "range" && "low" in field) Object.assign(input, { min: Math.max(field.low, input.dataset.least ?? -Infinity), max: field.high });
  input.addEventListener("input", () => change({ [name]: field.read(input.value) }));
}

function showFields({ history, t, parent }) {
  const values = { ...situation, t: t + 1, parent };
  $("field-t").max = history.length;
  for (const input of fields) {
    const value = String(values[input.dataset.field]);
    if (input.value !== value) input.value = value;
    const output = document.querySelector(`output[for="${input.id}"]`);
    if (output) output.textContent = value.replace("-", "−") + (output.dataset.unit ?? "");
  }
  $("mend").disabled = $("whole").hidden = Object.keys(KNOBS).every((name) => situation[name] === FIRST[name]);
  $("field-r").disabled = $("field-t").disabled = situation.rule === "learned";
  for (const tab of TABS) {
    $(`tab-${tab}`).setAttribute("aria-selected", String(tab === situation.tab));
    $(`tab-${tab}`).tabIndex = tab === situation.tab ? 0 : -1;
    $(`panel-${tab}`).hidden = tab !== situation.tab;
  }
}

function startControls() {
  const option = (value, text) => element("option", { value }, text);
  $("field-rule").append(...RULE_CHOICES.map(([name, , text]) => option(name, text)));
  $("field-parent").append(...NAMES.map((name, j) => option(j, name)));
  TABS.forEach((tab, k) => {
    $(`tab-${tab}`).addEventListener("click", () => change({ tab }));
    $(`tab-${tab}`).addEventListener("keydown", ({ key }) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (!step) return;
      const next = TABS[(k + step + TABS.length) % TABS.length];
      change({ tab: next });
      $(`tab-${next}`).focus();
    });
  });
  startTasks();
  $("whole").addEventListener("click", () => change(intactOf({})));
  addEventListener("hashchange", () => ((situation = fromAddress(location.hash)), update()));
  darkMode.addEventListener("change", update);
  $("facts").textContent = `${NETWORK.parameters.toLocaleString("en")} weights; its ${CHILDREN} parts are the children, its ${PARENTS} classes the parents`;
}

// One button takes an image in the middle of the list, which is a 4 of MNIST, as it is. All others keep
// the image, which the visitor may have drawn.
function startTasks() {
  const labels = DATA.examples.labels, chosen = Math.min(12, labels.length - 1);
  for (const button of document.querySelectorAll("[data-situation]"))
    button.addEventListener("click", () => {
      const { situation: text, fresh } = button.dataset;
      change({ ...(fresh === undefined ? {} : { ...FIRST, image: chosen }), ...fieldsOf(text) });
      requestAnimationFrame(showTabs);
    });
  for (const place of document.querySelectorAll(".task-name")) place.textContent = labels[chosen];
  for (const place of document.querySelectorAll(".with-examples")) place.hidden = labels.length === 0;
  for (const place of document.querySelectorAll(".with-beside")) place.hidden = !BESIDE;
  document.querySelector(".tasks").open = innerWidth > 600;
}

// Scroll to the tabs if they are out of sight, as they are below the drawing on a phone.
function showTabs() {
  const tabs = document.querySelector(".tabs"), { top } = tabs.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) tabs.scrollIntoView();
}

startControls();
update();
