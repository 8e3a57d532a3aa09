// Replace a figure that has a stepper (see machinery/steppers.py) by SVG with sliders.
function slider([name, values], show) {
  const label = document.createElement("label");
  const [input, output] = ["input", "output"].map((tag) => document.createElement(tag));
  Object.assign(input, { type: "range", min: 0, max: values.length - 1, value: 0 });
  const say = () => {
    output.textContent = values[input.value];
    input.setAttribute("aria-valuetext", values[input.value]);
  };
  input.addEventListener("input", () => (say(), show()));
  say();
  label.append(name, input, output);
  return { label, input, count: values.length, words: () => `${name} ${output.textContent}` };
}

for (const data of document.querySelectorAll("script.stepper-data")) {
  const { size, sliders, pieces, frames } = JSON.parse(data.textContent);
  const picture = data.parentElement.querySelector("img");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${size.join(" ")}`);
  svg.setAttribute("role", "img");
  svg.style.maxWidth = `${size[0] * 1.6}px`;
  const controls = sliders.map((spec) => slider(spec, show));

  function show() {
    const frame = controls.reduce((at, { input, count }) => at * count + +input.value, 0);
    svg.innerHTML = frames[frame].map((number) => pieces[number]).join("");
    const state = controls.map((control) => control.words()).join(", ");
    svg.setAttribute("aria-label", `Now ${state}. The figure without sliders: ${picture.alt}`);
  }

  const stepper = document.createElement("div");
  stepper.className = "stepper";
  stepper.append(svg, ...controls.map((control) => control.label));
  data.parentElement.after(stepper);
  picture.classList.add("print-only");
  show();
}
