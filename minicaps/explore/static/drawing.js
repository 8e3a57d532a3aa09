"use strict";
// The paper: strokes by pointer or keyboard, files, and test images.

const ZOOM = Math.max(1, Math.round(280 / Math.max(HEIGHT, WIDTH))); // pixels of paper for one of the network
const PEN = (HEIGHT * ZOOM) / 12, ERASER = 2 * PEN;

function makeDrawing(change) {
  const paper = $("paper"), context = paper.getContext("2d", { willReadFrequently: true });
  Object.assign(paper, { width: WIDTH * ZOOM, height: HEIGHT * ZOOM });
  let tool = "draw", ink = blank(NETWORK.shape, GROUND), text = null;
  let onlyStrokes = false; // then the drawing is centered, as the training images were
  let shown = ""; // what the paper shows, so that it is not painted over while somebody draws

  // ---- strokes

  const gray = (value) => `rgb(${[0, 0, 0].fill(Math.round(255 * value)).join(" ")})`;

  function clear() {
    context.fillStyle = gray(GROUND);
    context.fillRect(0, 0, paper.width, paper.height);
    onlyStrokes = true;
  }

  function begin() {
    if (tool === "draw" && shown !== "ink") clear(); // a stroke on a test image begins a drawing
  }

  function stroke([x, y], [u, v]) {
    const erases = tool === "erase";
    Object.assign(context, { lineCap: "round", lineJoin: "round", lineWidth: erases ? ERASER : PEN });
    context.strokeStyle = erases ? gray(GROUND) : CHANNELS === 3 ? $("color").value : gray(1 - GROUND);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(u, v);
    context.stroke();
    shown = "ink";
    keep(fromCanvas(paper));
  }

  function keep(image) {
    const one = inChannels(image, CHANNELS);
    show(onlyStrokes && NETWORK.centred && CHANNELS === 1 ? centred(one, HEIGHT, WIDTH) : fit(one, HEIGHT, WIDTH));
  }

  // An image that fits into the address is shown as it will be when somebody opens the link.
  function show(image) {
    text = inkToText(image);
    ink = text === "" ? image : textToInk(text);
    change({ image: -1, ink: text });
  }

  function place(event) {
    const box = paper.getBoundingClientRect();
    return [((event.clientX - box.left) * paper.width) / box.width, ((event.clientY - box.top) * paper.height) / box.height];
  }

  let from = null;
  paper.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    pointed = true;
    paper.focus({ preventScroll: true });
    showCursor();
    paper.setPointerCapture(event.pointerId);
    begin();
    from = place(event);
    stroke(from, from);
  });
  paper.addEventListener("pointermove", (event) => {
    if (!from) return;
    const to = place(event);
    stroke(from, to);
    from = to;
  });
  for (const name of ["pointerup", "pointercancel"]) paper.addEventListener(name, () => (from = null));

  // ---- the keyboard: a cursor on the grid of the network's pixels, which paints with Shift or Space

  let pointed = false; // whether a pointer was used last
  let cursor = [Math.floor(WIDTH / 2), Math.floor(HEIGHT / 2)];
  const middle = ([x, y]) => [(x + 0.5) * ZOOM, (y + 0.5) * ZOOM];
  paper.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], " ": [0, 0] };
    const step = steps[event.key];
    if (event.key === "Delete" || event.key === "Backspace") $("clear").click();
    else if (!step) return;
    event.preventDefault();
    if (!step) return;
    pointed = false;
    const before = cursor;
    cursor = [cursor[0] + step[0], cursor[1] + step[1]].map((x, axis) => Math.min([WIDTH, HEIGHT][axis] - 1, Math.max(0, x)));
    if (event.shiftKey || event.key === " ") {
      begin();
      stroke(middle(before), middle(cursor));
    }
    showCursor();
  });
  const showCursor = () => {
    $("cursor").hidden = pointed || document.activeElement !== paper;
    $("cursor").style.cssText = `left:${(100 * (cursor[0] + 0.5)) / WIDTH}%;top:${(100 * (cursor[1] + 0.5)) / HEIGHT}%`;
  };
  paper.addEventListener("focus", showCursor);
  paper.addEventListener("blur", () => ((pointed = false), showCursor()));

  // ---- files

  async function read(file) {
    if (!file) return;
    try {
      const bitmap = await createImageBitmap(file), most = 512 / Math.max(bitmap.width, bitmap.height, 512);
      const canvas = element("canvas");
      Object.assign(canvas, { width: Math.ceil(bitmap.width * most), height: Math.ceil(bitmap.height * most) });
      const area = canvas.getContext("2d");
      area.fillStyle = "#fff"; // behind transparent pixels
      area.fillRect(0, 0, canvas.width, canvas.height);
      area.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      onlyStrokes = false;
      shown = "";
      show(prepared(fromCanvas(canvas), NETWORK));
      $("notice").textContent = "";
    } catch {
      $("notice").textContent = `${file.name} is not an image that this browser reads: try a PNG or JPEG file.`;
    }
  }
  $("file").addEventListener("change", () => read($("file").files[0]));
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  document.addEventListener("drop", (event) => read(event.dataTransfer.files[0]));

  // ---- buttons and test images

  for (const name of ["draw", "erase"]) $(name).addEventListener("click", () => ((tool = name), showTool()));
  const showTool = () => ["draw", "erase"].forEach((name) => $(name).setAttribute("aria-pressed", String(name === tool)));
  $("clear").addEventListener("click", () => {
    clear();
    [tool, shown] = ["draw", "ink"];
    showTool();
    keep(fromCanvas(paper));
  });
  $("color-label").hidden = CHANNELS !== 3;
  const strip = makeStrip($("examples"), (n) => change({ image: n, ink: "" }));
  clear();
  showTool();

  // The image of a situation, before it is spoiled.
  function imageOf({ image, ink: wanted }) {
    if (image >= 0) return example(image);
    if (wanted !== text) [ink, text, shown] = [textToInk(wanted), wanted, ""];
    return ink;
  }

  function render({ situation: { image }, base, image: seen }) {
    const wanted = image >= 0 ? `example ${image}` : "ink";
    if (shown !== wanted) {
      [shown, onlyStrokes] = [wanted, false];
      const small = element("canvas");
      paint(small, base);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, paper.width, paper.height);
    }
    paint($("seen"), seen);
    strip.mark(image);
  }
  return { render, imageOf };
}

// An image of three channels from what a canvas shows.
function fromCanvas(canvas) {
  const { width, height } = canvas, size = width * height;
  const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const image = blank([3, height, width]);
  for (let k = 0; k < 3 * size; k++) image.data[k] = pixels[4 * (k % size) + Math.floor(k / size)] / 255;
  return image;
}

// A row of test images, of which the arrow keys choose one.
function makeStrip(place, choose) {
  const buttons = DATA.examples.labels.map((label, n) => {
    const button = element("button", { type: "button", role: "radio", "aria-label": `test image ${n + 1}: ${label}` });
    const picture = element("canvas", { class: "pixels" });
    paint(picture, example(n));
    button.append(picture);
    button.addEventListener("click", () => choose(n));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = buttons[(n + step + buttons.length) % buttons.length];
      next.focus();
      next.click();
    });
    place.append(button);
    return button;
  });
  place.hidden = buttons.length === 0;
  return {
    mark(chosen) {
      buttons.forEach((button, n) => {
        button.setAttribute("aria-checked", String(n === chosen));
        button.tabIndex = n === Math.max(0, chosen) ? 0 : -1;
      });
    },
  };
}
