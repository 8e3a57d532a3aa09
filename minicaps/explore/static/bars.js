"use strict";
// Bars of the lengths of all class capsules, and of the probabilities of the network beside.

const THERE = 0.5; // between the lengths 0.9 and 0.1 for which the margin loss trains

// Whether a length says that a class is there. Lengths have no such threshold with another rule or fewer
// iterations than the network was trained with, or with another loss than the margin loss.
function isThere(length, { rule, r }) {
  return length >= THERE || rule !== FIRST.rule || r < FIRST.r || NETWORK.loss !== "margin";
}

function makeBars(change) {
  const rows = NAMES.map((name, j) => {
    const row = element("button", { type: "button", class: "bar" });
    row.innerHTML = `<span class="name">${escaped(name)}</span><span class="track"><i class="length"></i>${BESIDE ? '<i class="beside"></i>' : ""}</span><span class="number"></span>`;
    row.addEventListener("click", () => change({ parent: j }));
    for (const reached of ["pointerenter", "focus"])
      row.addEventListener(reached, () => tell(row, () => [`${row.dataset.text}${row.dataset.beside ?? ""}`, "length"]));
    $("bars").append(row);
    return row;
  });

  function render({ last, winner, parent, situation }) {
    rows.forEach((row, j) => {
      const value = last.lengths[j];
      row.querySelector(".length").style.width = `${100 * Math.min(1, value)}%`;
      row.querySelector(".number").textContent = two(value);
      row.classList.toggle("winner", j === winner);
      row.setAttribute("aria-pressed", String(j === parent));
      row.dataset.text = `|v| = ${value.toFixed(3)} for ${NAMES[j]}`;
    });
    const there = isThere(last.lengths[winner], situation), answer = $("answer");
    answer.textContent = there ? NAMES[winner] : "nothing is there";
    answer.className = !there ? "none" : NAMES[winner].length > 2 ? "long" : "";
    $("certainty").textContent = `${there ? "" : `longest: ${NAMES[winner]}, `}length ${two(last.lengths[winner])}`;
    $("follow").hidden = situation.parent < 0;
  }

  function renderBeside(scores) {
    rows.forEach((row, j) => {
      row.querySelector(".beside").style.width = `${100 * scores[j]}%`;
      row.dataset.beside = `; dense-cnn: probability ${scores[j].toFixed(3)}`;
    });
  }

  $("follow").addEventListener("click", () => change({ parent: -1 }));
  $("beside-key").hidden = !BESIDE;
  $("beside-facts").textContent = BESIDE ? BESIDE.parameters.toLocaleString("en") : "";
  return { render, renderBeside };
}
