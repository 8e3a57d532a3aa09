"use strict";
// The line that says what is under the pointer or the focus: a number, its equation, its lesson.

const LESSONS = {
  convolution: ["04_convolution", "4.4", "y = max(0, Σ x w + b)"],
  squash: ["06_squash", "6.1", NETWORK.primary.squash === "paper" ? "v = n²/(1 + n²) · s/n, with n = |s|"
    : `v = g(n) · s/n, with n = |s| and the squash ${NETWORK.primary.squash}`],
  vote: ["07_votes", "7.4", "û<sub>j|i</sub> = W<sub>ij</sub>ᵀ u<sub>i</sub>"],
  coupling: ["10_agreement", "10.2", "c<sub>ij</sub> = e<sup>b<sub>ij</sub></sup> / Σ<sub>k</sub> e<sup>b<sub>ik</sub></sup>"],
  first: ["10_agreement", "10.8", "all couplings are 1/J, as b = 0"],
  sum: ["10_agreement", "10.3", "s<sub>j</sub> = Σ<sub>i</sub> c<sub>ij</sub> û<sub>j|i</sub>"],
  length: ["11_loss_and_decoder", "11.2", NETWORK.loss === "margin"
    ? "trained to be above 0.9 for the class that is there, and below 0.1 for others" : `trained with the loss ${NETWORK.loss}`],
  mask: ["11_loss_and_decoder", "11.7", "all capsules but one are set to zero, then decoded"],
};
// Leaky routing adds a parent with logit 0, to which orphans go.
const LEAKY = "c<sub>ij</sub> = e<sup>b<sub>ij</sub></sup> / (1 + Σ<sub>k</sub> e<sup>b<sub>ik</sub></sup>)";
const isLeaky = (rule) => rule.startsWith("leaky");

function couplingLesson(rule, t) {
  const first = t === 0 && rule !== "learned";
  if (!isLeaky(rule)) return first ? "first" : "coupling";
  return first ? ["10_agreement", "10.8", "all couplings are 1/(J + 1), as b = 0"] : ["10_agreement", "10.2", LEAKY];
}

// What else to know of a rule, as HTML
function ruleWords(rule) {
  if (isLeaky(rule)) return `Leaky: strays may stay orphans, ${LEAKY}.`;
  if (rule !== "distance" || FIRST.rule === "distance") return "";
  return "However many votes agree, their mean is no longer than the longest of them, so the capsules of a network that was trained with sums are short, and another may be the longest.";
}

// The rule by which logits change between iterations
const RULE_LESSONS = {
  accumulate: ["10_agreement", "10.7", "b<sub>ij</sub> ← b<sub>ij</sub> + ⟨û<sub>j|i</sub>, v<sub>j</sub>⟩"],
  recompute: ["10_agreement", "10.7", "b<sub>ij</sub> ← ⟨û<sub>j|i</sub>, v<sub>j</sub>⟩"],
  spherical: ["10_agreement", "10.3", "b<sub>ij</sub> ← ⟨û<sub>j|i</sub>, s<sub>j</sub>/|s<sub>j</sub>|⟩"],
  distance: ["09_kmeans", "9.5", "b<sub>ij</sub> ← −|û<sub>j|i</sub> − m<sub>j</sub>|², m<sub>j</sub> a mean"],
  learned: ["10_agreement", "10.2", "b<sub>ij</sub> is a weight, the same for all images"],
};

// An element that was reached last, and a function that returns [text, lesson], or nothing: plain text
// of what is there, and a key of LESSONS or an entry like those in it.
let told = null;
const HINT = $("readout").innerHTML;

function tell(element, describe) {
  told = { element, describe };
  tellAgain();
}

// Say it anew, as its numbers may have changed; what is no longer on the page is not said.
function tellAgain() {
  const found = told?.element.getClientRects().length && told.describe();
  if (!found) {
    $("readout").innerHTML = HINT;
    return;
  }
  const [text, lesson] = found, [file, number, equation] = typeof lesson === "string" ? LESSONS[lesson] : lesson;
  $("readout").innerHTML = `<b>${escaped(text)}</b> <span>${equation}</span> <span class="muted">${linked(file, number)}</span>`;
}

function linked(file, number) {
  const name = `lesson ${Number(file.slice(0, 2))}, (${number})`;
  return DATA.lessons === null ? name : `<a href="${DATA.lessons}${file}.html#eq-${number}">${name}</a>`;
}

function ruleLesson(rule) {
  return RULE_LESSONS[rule.split("-").at(-1)] || RULE_LESSONS.accumulate;
}
