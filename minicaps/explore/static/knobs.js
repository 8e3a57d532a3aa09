"use strict";
// Turn the knobs: a slider for each number of the chosen capsule, and what the decoder makes of it.

function makeKnobs(change) {
  const sliders = Array.from({ length: SIZE }, (_, d) => {
    const input = element("input", { type: "range", min: -100, max: 100, id: `knob-${d}` });
    const output = element("output", { for: `knob-${d}` });
    $("sliders").append(element("label", { for: `knob-${d}` }, `v${subscript(d + 1)}`, input, output));
    input.addEventListener("input", () => change({ pose: sliders.map((slider) => slider.input.value).join("_") }));
    for (const reached of ["pointerenter", "focus"])
      input.addEventListener(reached, () => tell(input, () => [`Number ${d + 1} of ${SIZE}: ${two(input.value / 100)}`, "mask"]));
    return { input, output };
  });
  $("reset-pose").addEventListener("click", () => change({ pose: "" }));
  $("no-decoder").hidden = NETWORK.decoder !== null;
  $("decoder").hidden = NETWORK.decoder === null;

  function render({ situation: { pose }, last, parent, image }) {
    if (!NETWORK.decoder) return;
    const poses = withPose(last.poses, parent, pose), own = poses.subarray(parent * SIZE, (parent + 1) * SIZE);
    sliders.forEach(({ input, output }, d) => {
      input.value = Math.round(100 * own[d]);
      output.textContent = two(own[d]);
    });
    paint($("knobs-seen"), image);
    paint($("knobs-drawn"), reconstruct(NETWORK, poses, parent));
    $("knobs-text").textContent = pose === "" ? `The capsule of ${NAMES[parent]}, length ${two(last.lengths[parent])}`
      : `The capsule of ${NAMES[parent]}, turned: you changed what it looks like, so its length no longer says whether it is there.`;
    $("reset-pose").disabled = pose === "";
  }
  return { render };
}

// Poses (J, D) in which the knobs, given as text in hundredths, replace capsule j.
function withPose(poses, j, text) {
  const changed = Float32Array.from(poses), turned = text === "" ? [] : text.split("_");
  if (turned.length === SIZE) turned.forEach((value, d) => (changed[j * SIZE + d] = value / 100));
  return changed;
}

function subscript(number) {
  return String(number).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);
}
