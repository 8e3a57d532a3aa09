// What MathJax has to know; and formulas that are too wide for their column shrink, to 60 % at most.
function fit() {
  for (const formula of document.querySelectorAll("div.math")) {
    formula.style.fontSize = "";
    for (let size = 1; size > 0.6 && formula.scrollWidth > formula.clientWidth; ) {
      size = Math.max(size * 0.95, 0.6);
      formula.style.fontSize = size + "em";
    }
  }
}

async function drawn() {
  if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done));
  fit();
  addEventListener("resize", fit);
  document.addEventListener("toggle", fit, true); // formulas of a solution have no width before
  const target = document.getElementById(location.hash.slice(1));
  if (target) target.scrollIntoView(); // formulas and pictures above it have grown since
}

window.MathJax = {
  options: {
    ignoreHtmlClass: ".*",
    processHtmlClass: "math",
    enableMenu: false, // its place in the Tab order is at every formula
  },
  startup: {
    pageReady: () => MathJax.startup.defaultPageReady().then(drawn),
  },
};
