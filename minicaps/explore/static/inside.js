"use strict";
// Look inside: feature maps, primary capsules, votes and couplings, iteration by iteration.

function makeInside(change) {
  let now; // what is shown

  // Show the same child in all pictures.
  function mark(i) {
    markField($("panel-inside"), Math.floor(i / GRID.types));
    const point = $("votes").querySelector(".mark");
    ["cx", "cy"].forEach((name, axis) => point.setAttribute(name, points[i][axis]));
    $("column").style.cssText = `left:${(100 * i) / CHILDREN}%;width:${100 / CHILDREN}%`;
    $("column").hidden = false;
  }

  // ---- feature maps of the first convolution

  const grid = () => {
    const [count] = now.look.maps[0].shape, columns = Math.ceil(Math.sqrt(2 * count));
    return [columns, Math.ceil(count / columns)];
  };
  tellCells($("maps"), grid, (column, row) => {
    const { data, shape: [O, P, Q] } = now.look.maps[0], map = row * grid()[0] + column;
    if (map >= O) return;
    const values = data.subarray(map * P * Q, (map + 1) * P * Q);
    return [`Map ${map + 1} of ${O}: its largest value is ${two(Math.max(...values))}`, "convolution"];
  });

  function renderMaps({ data, shape: [O, P, Q] }) {
    const [columns, rows] = grid(), width = columns * (Q + 1) - 1, ground = rgb("panel");
    const top = data.reduce((a, b) => Math.max(a, b), 1e-6);
    paintPixels($("maps"), rows * (P + 1) - 1, width, (k) => {
      const [y, x] = [Math.floor(k / width), k % width], map = Math.floor(y / (P + 1)) * columns + Math.floor(x / (Q + 1));
      if (y % (P + 1) === P || x % (Q + 1) === Q || map >= O) return ground;
      const gray = 255 * (data[(map * P + (y % (P + 1))) * Q + (x % (Q + 1))] / top) ** 0.6;
      return [gray, gray, gray];
    });
  }

  // ---- primary capsules: the types at one position stand in a square of n × n arrows

  const n = Math.ceil(Math.sqrt(GRID.types)), N = NETWORK.primary.size;
  const childAt = (column, row) => {
    const type = (row % n) * n + (column % n);
    return type < GRID.types ? (Math.floor(row / n) * GRID.columns + Math.floor(column / n)) * GRID.types + type : -1;
  };
  tellCells($("primary"), () => [n * GRID.columns, n * GRID.rows], (column, row) => {
    const i = childAt(column, row);
    if (i < 0) return;
    mark(i);
    const u = now.look.primary.subarray(i * N, (i + 1) * N);
    return [`${nameOf(i)}: |u| = ${two(Math.hypot(...u))}, u = (${Array.from(u, two).join(", ")})`, "squash"];
  });

  function renderPrimary(primary) {
    const cell = 20, made = [], size = lengths(primary, N);
    $("primary").setAttribute("viewBox", `0 0 ${cell * n * GRID.columns} ${cell * n * GRID.rows}`);
    for (let row = 0; row < n * GRID.rows; row++)
      for (let column = 0; column < n * GRID.columns; column++) {
        const i = childAt(column, row);
        if (i < 0) continue;
        const [x, y] = [cell * (column + 0.5), cell * (row + 0.5)], angle = Math.atan2(primary[i * N + 1], primary[i * N]);
        const reach = 0.95 * cell * size[i], [dx, dy] = [reach * Math.cos(angle), reach * Math.sin(angle)];
        made.push(arrow(x - dx / 2, y - dy / 2, dx, dy, { "stroke-opacity": (0.25 + 0.75 * size[i]).toFixed(2) }));
      }
    for (let k = 1; k < GRID.columns; k++) made.push(shape("path", { class: "rule", d: `M${k * cell * n} 0V${cell * n * GRID.rows}` }));
    for (let k = 1; k < GRID.rows; k++) made.push(shape("path", { class: "rule", d: `M0 ${k * cell * n}H${cell * n * GRID.columns}` }));
    $("primary").innerHTML = made.join("");
  }

  // ---- the film: couplings to the chosen parent after each iteration

  const film = [];
  function renderFilm({ look: { votes }, history, parent, t, image }) {
    const added = history.map((iteration) => pushes(votes, iteration, parent)), top = largestPush(votes, history);
    while (film.length < history.length) {
      const k = film.length, overlay = makeOverlay(""), caption = element("span");
      const button = element("button", { type: "button", class: "frame" }, overlay.figure, caption);
      button.addEventListener("click", () => change({ t: k + 1 }));
      for (const reached of ["pointerenter", "focus"])
        button.addEventListener(reached, () => tell(button, () => describeIteration(k)));
      $("film").append(button);
      film.push({ button, overlay, caption });
    }
    film.forEach(({ button, overlay, caption }, k) => {
      button.hidden = k >= history.length;
      if (button.hidden) return;
      overlay.render(image, [[added[k], "var(--sky)"]], top);
      button.setAttribute("aria-pressed", String(k === t));
      caption.textContent = `${k + 1}: |v| ${two(history[k].lengths[parent])}`;
    });
  }

  function describeIteration(k) {
    const { sums, lengths: all } = now.history[k], j = now.parent;
    const sum = lengths(sums.subarray(j * SIZE, (j + 1) * SIZE), SIZE)[0];
    const lesson = now.situation.rule === "distance" ? RULE_LESSONS.distance : "sum";
    return [`Iteration ${k + 1}: |s| = ${two(sum)} becomes |v| = ${two(all[j])} for ${NAMES[j]}`, lesson];
  }

  // ---- votes in the plane of the last pose (to the right) and the direction in which they vary most

  let points = [];
  function renderVotes({ look, history, parent, t, last }) {
    const votes = look.votes.data.subarray(parent * CHILDREN * SIZE, (parent + 1) * CHILDREN * SIZE);
    const poseOf = ({ poses }) => poses.subarray(parent * SIZE, (parent + 1) * SIZE);
    const along = squash(poseOf(last), SIZE, "unit"), across = mainDirection(votes, along);
    const project = (v) => [dot(v, 0, along), -dot(v, 0, across)];
    const flat = Array.from({ length: CHILDREN }, (_, i) => project(votes.subarray(i * SIZE, (i + 1) * SIZE)));
    const reach = (axis, sign, least) => Math.max(least, ...flat.map((point) => sign * point[axis]));
    const scale = Math.min(190 / reach(0, 1, 0.3), 90 / reach(0, -1, 0.1), 110 / reach(1, 1, 0.1), 110 / reach(1, -1, 0.1));
    const shown = history[t], share = (i) => shown.couplings[parent * CHILDREN + i];
    points = flat.map(([x, y]) => [100 + scale * x, 120 + scale * y]);
    const dots = points.map(([cx, cy], i) => shape("circle", {
      cx: cx.toFixed(1), cy: cy.toFixed(1), r: (1 + 7 * Math.sqrt(share(i))).toFixed(1), "fill-opacity": (0.2 + 0.7 * share(i)).toFixed(2),
    }));
    const [dx, dy] = project(poseOf(shown)).map((x) => scale * x);
    $("votes").innerHTML = shape("path", { class: "rule", d: "M0 120H300M100 0V240" })
      + shape("circle", { class: "unit", cx: 100, cy: 120, r: scale.toFixed(1) })
      + dots.join("") + arrow(100, 120, dx, dy, { class: "pose" }) + shape("circle", { class: "mark", r: 9, cx: -20 });
  }

  function describeVote(i) {
    mark(i);
    const j = now.parent, vote = now.look.votes.data.subarray((j * CHILDREN + i) * SIZE, (j * CHILDREN + i + 1) * SIZE);
    const c = now.history[now.t].couplings[j * CHILDREN + i];
    return [`${nameOf(i)} votes for ${NAMES[j]}: |û| = ${two(Math.hypot(...vote))}, coupling ${two(c)}`, "vote"];
  }
  tellPoints($("votes"), () => points, describeVote);

  // ---- all couplings: a row for each parent, a column for each child

  tellCells($("couplings"), () => [CHILDREN, rowsOf(now)], (i, j) => {
    mark(i);
    const { couplings, orphans } = now.history[now.t], c = j < PARENTS ? couplings[j * CHILDREN + i] : orphans[i];
    const lesson = couplingLesson(now.situation.rule, now.t);
    return [`Iteration ${now.t + 1}: ${nameOf(i)} gives ${two(c)} to ${j < PARENTS ? NAMES[j] : "no parent"}`, lesson];
  });

  const rowsOf = ({ history }) => PARENTS + (history[0].orphans ? 1 : 0);

  function renderCouplings({ history, t, parent }) {
    const { couplings, orphans } = history[t], rows = rowsOf(now), [more, less] = [rgb("blue"), rgb("orange")];
    paintPixels($("couplings"), rows, CHILDREN, (k) => {
      const c = k < PARENTS * CHILDREN ? couplings[k] : orphans[k % CHILDREN];
      const ratio = Math.log(c * rows) / Math.log(rows); // 0 for an equal share, 1 for all of the child
      return [...(ratio > 0 ? more : less), 255 * Math.min(1, Math.abs(ratio))];
    });
    $("parents").innerHTML = [...NAMES, "none"].slice(0, rows).map((name, j) => `<span${j === parent ? ' class="chosen"' : ""}>${escaped(name)}</span>`).join("");
  }

  // ---- all of it

  function render(shown) {
    now = shown;
    const { situation: { rule }, parent, history, t } = shown;
    renderMaps(shown.look.maps[0]);
    renderPrimary(shown.look.primary);
    renderFilm(shown);
    renderVotes(shown);
    renderCouplings(shown);
    document.querySelectorAll(".parent-name").forEach((place) => (place.textContent = NAMES[parent]));
    document.querySelectorAll(".iteration").forEach((place) => (place.textContent = `${t + 1} of ${history.length}`));
    $("trained").textContent = howTrained(shown.situation);
    const [file, number, equation] = ruleLesson(rule);
    $("rule-equation").innerHTML = `${equation} <span class="muted">${linked(file, number)}</span>`;
    $("rule-words").innerHTML = ruleWords(rule);
  }
  return { render };
}

function howTrained({ rule, r }) {
  const trained = RULE_CHOICES.find(([name]) => name === FIRST.rule)[2];
  if (rule !== FIRST.rule) return `The network was trained with ${trained} and ${FIRST.r} iterations; its votes are the same here, only the rule is another.`;
  return r === FIRST.r || rule === "learned" ? "This is how the network was trained." : `The network was trained with ${FIRST.r} iterations of this rule.`;
}

function nameOf(i) {
  const place = Math.floor(i / GRID.types);
  return `Child ${i + 1} (row ${Math.floor(place / GRID.columns) + 1}, column ${(place % GRID.columns) + 1}, type ${(i % GRID.types) + 1})`;
}

// The unit vector across `along` in which votes (I, D) vary most, by power iteration
function mainDirection(votes, along) {
  let found = Float32Array.from({ length: SIZE }, (_, d) => (d % 2 ? 1 : -1) + 0.1 * d);
  for (let round = 0; round < 30; round++) {
    const next = new Float32Array(SIZE);
    for (let i = 0; i < CHILDREN; i++) {
      const x = dot(votes, i, along), y = dot(votes, i, found);
      for (let d = 0; d < SIZE; d++) next[d] += y * (votes[i * SIZE + d] - x * along[d]);
    }
    found = squash(next, SIZE, "unit");
  }
  return found;
}
