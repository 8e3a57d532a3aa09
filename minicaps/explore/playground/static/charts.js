// Two charts beside the planes: the objective over iterations, and the parents over the temperature.
"use strict";

const LEFT = 58, RIGHT = 20, TOP = 18, BOTTOM = 38;

// Round numbers from low to high, about `count` of them
function ticks(low, high, count = 4) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= rough * 0.999);
  const from = Math.ceil(low / step - 1e-9);
  return range(Math.floor(high / step + 1e-9) - from + 1).map((n) => +((from + n) * step).toPrecision(12));
}

const short = (value) =>
  (Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(0)
    : String(+value.toPrecision(6))).replace("-", "−");

const words = (x, y, anchor, text) => `<text x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;

class Chart {
  // `picked(x)` is told the place on the horizontal axis that the reader clicks or drags to.
  constructor(element, label, picked) {
    this.back = null; // from pixels to the horizontal axis, once something is drawn
    this.svg = svg("svg", { role: "img", "aria-label": label }, element);
    const pick = (event) => {
      if (!this.back || (event.type === "pointermove" && !event.buttons)) return;
      const box = this.svg.getBoundingClientRect();
      picked(this.back(event.clientX - box.left));
    };
    this.svg.addEventListener("pointerdown", pick);
    this.svg.addEventListener("pointermove", pick);
  }

  // Begin a drawing with these limits; `log` spaces the horizontal axis by powers.
  open({ x, y, log = false, xLabel, xTicks }) {
    const width = Math.max(this.svg.clientWidth, 200), height = Math.max(170, Math.min(230, width * 0.52));
    const put = log ? Math.log : (value) => value;
    const least = 1e-4 * Math.max(Math.abs(y[0]), Math.abs(y[1]), 1e-6); // more would enlarge rounding errors
    const pad = Math.max(0.06 * (y[1] - y[0]), least), [low, high] = [y[0] - pad, y[1] + pad];
    const span = put(x[1]) - put(x[0]) || 1;
    this.x = (value) => LEFT + ((put(value) - put(x[0])) / span) * (width - LEFT - RIGHT);
    this.y = (value) => height - BOTTOM - ((value - low) / (high - low)) * (height - TOP - BOTTOM);
    this.back = (px) => {
      const part = Math.min(Math.max((px - LEFT) / (width - LEFT - RIGHT), 0), 1) * span + put(x[0]);
      return log ? Math.exp(part) : part;
    };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const floor = height - BOTTOM;
    const rows = ticks(low, high).map((value) =>
      `<path class="grid" d="M${LEFT} ${this.y(value)}H${width - RIGHT}"/>`
      + words(LEFT - 6, this.y(value) + 4, "end", short(value)));
    const columns = xTicks.map((value) =>
      `<path class="axis" d="M${this.x(value)} ${floor}v4"/>`
      + words(this.x(value), floor + 17, "middle", short(value)));
    const name = words((LEFT + width - RIGHT) / 2, height - 4, "middle", xLabel);
    const axis = `<path class="axis" d="M${LEFT} ${floor}H${width - RIGHT}"/>`;
    this.parts = [...rows, axis, ...columns, name];
    this.bottom = floor;
  }

  line(points, kind, color = "") {
    const path = points.map(([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("L");
    const style = color && `stroke:${color}`;
    if (points.length) this.parts.push(`<path class="${kind}" style="${style}" d="M${path}"/>`);
  }

  dots(points, kind, size) {
    for (const [x, y] of points) {
      const [cx, cy] = [this.x(x).toFixed(1), this.y(y).toFixed(1)];
      this.parts.push(`<circle class="${kind}" cx="${cx}" cy="${cy}" r="${size}"/>`);
    }
  }

  upright(x, kind, text = "") {
    this.parts.push(`<path class="${kind}" d="M${this.x(x)} ${TOP}V${this.bottom}"/>`);
    if (text) this.parts.push(words(this.x(x), TOP - 5, "middle", text)); // above all curves
  }

  close(label) {
    this.svg.innerHTML = this.parts.join("");
    this.svg.setAttribute("aria-label", label);
  }
}

// states: those of iterations `first`, …, T; r: the iteration that the planes show
function drawObjective(chart, states, first, T, r) {
  const at = (n) => states[Math.min(n, states.length - 1)];
  const shown = range(T - first + 1).map((n) => [n + first, at(n)]);
  const points = shown.filter(([, { value }]) => value !== null).map(([t, { value }]) => [t, value]);
  const bounds = shown.filter(([, { bound }]) => bound !== null).map(([t, { bound }]) => [t, bound]);
  const heights = column([...points, ...bounds], 1);
  chart.open({
    x: [first, Math.max(T, first + 1)], y: [Math.min(...heights), Math.max(...heights)],
    xLabel: "iteration r", xTicks: ticks(first, Math.max(T, first + 1), 5).filter(Number.isInteger),
  });
  chart.upright(r, "now");
  chart.line(bounds, "bound-line");
  chart.line(points, "objective");
  if (T <= 40) {
    chart.dots(bounds, "bound", 2.6);
    chart.dots(points, "value", 2.6);
  }
  chart.dots(points.filter(([t]) => t === r), "value here", 5.5);
  const name = (value) => value.toPrecision(4);
  const ends = points.length ? `from ${name(points[0][1])} to ${name(points.at(-1)[1])}` : "no value";
  chart.close(`Objective over ${T} iterations, ${ends}`);
}

// lines: for each temperature, [temperature, places of the parents]; threshold: where 2K · variance = 1
function drawSweep(chart, lines, now, name, threshold, colors) {
  const temperatures = column(lines, 0), heights = lines.flatMap(([, places]) => column(places, 0));
  const limits = [temperatures[0], temperatures.at(-1)];
  chart.open({
    x: limits, y: [Math.min(...heights), Math.max(...heights)], log: true, xLabel: name,
    xTicks: [0.001, 0.01, 0.1, 1, 10, 100].filter((value) => value >= limits[0] && value <= limits[1]),
  });
  if (threshold >= limits[0] && threshold <= limits[1]) chart.upright(threshold, "threshold", "2K · variance = 1");
  if (now >= limits[0] && now <= limits[1]) chart.upright(now, "now");
  const parents = range(lines[0][1].length);
  for (const j of parents) {
    const points = lines.map(([K, places]) => [K, places[j][0]]);
    chart.line(points, `branch branch-${j}`, `rgb(${colors[j]})`);
  }
  chart.close(`Horizontal places of ${parents.length} parents over ${name}`);
}
