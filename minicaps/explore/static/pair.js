"use strict";
// Two digits: a second test image laid over the first, and the two longest capsules drawn apart.

const COLORS = ["blue", "orange"];

function makePair(change) {
  const strip = makeStrip($("seconds"), (n) => change({ second: n }));
  const overlay = makeOverlay("couplings to the two longest capsules");
  $("pair-overlay").prepend(overlay.figure);
  $("single").hidden = NETWORK.multi;
  $("remove").addEventListener("click", () => change({ second: -1 }));

  function render({ situation: { second }, image, look: { votes }, last, ranking }) {
    strip.mark(second);
    $("remove").disabled = second < 0;
    paint($("pair-seen"), image);
    // without a second image, the second capsule only draws if it finds its class in the first
    const both = second >= 0 || last.lengths[ranking[1]] >= THERE, claimed = ranking.slice(0, both ? 2 : 1);
    const added = claimed.map((j) => pushes(votes, last, j)), top = largestPush(votes, [last]);
    overlay.render(image, added.map((values, n) => [values, `var(--${COLORS[n]})`]), top);
    $("pair-names").innerHTML = claimed.map((j, n) =>
      `<span class="${COLORS[n]}">■ ${escaped(NAMES[j])}, length ${two(last.lengths[j])}</span>`).join(" ");
    if (!NETWORK.decoder) return;
    for (const one of ["both", "drawn-1"]) $(`pair-${one}`).parentElement.hidden = !both;
    const drawn = claimed.map((j) => reconstruct(NETWORK, last.poses, j)), tints = COLORS.map(rgb);
    drawn.forEach((one, n) => tinted($(`pair-drawn-${n}`), [one], [tints[n]]));
    if (both) tinted($("pair-both"), drawn, tints);
  }
  return { render };
}

// Draw images in one color each; where they overlap, the colors add up.
function tinted(canvas, images, tints) {
  const gray = images.map((image) => inChannels(image, 1).data);
  paintPixels(canvas, HEIGHT, WIDTH, (k) =>
    [0, 1, 2].map((c) => Math.min(255, gray.reduce((sum, data, n) => sum + data[k] * tints[n][c], 0))));
}
