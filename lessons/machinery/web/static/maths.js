// Settings of MathJax. Formulas too wide for their column shrink, to no less than 60 %.
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
  for (const text of document.querySelectorAll(".highlight-text pre")) { // wide tables shrink in print
    text.style.setProperty("--columns", Math.max(...text.textContent.split("\n").map((line) => line.length)));
  }
  addEventListener("resize", fit);
  document.addEventListener("toggle", fit, true); // formulas in a solution have no width until it opens
  const target = document.getElementById(location.hash.slice(1));
  if (target) target.scrollIntoView(); // formulas and figures above it have grown in the meantime
}

window.MathJax = {
  options: {
    ignoreHtmlClass: ".*",
    processHtmlClass: "math",
    enableMenu: false, // it would add every formula to the Tab order
  },
  startup: {
    pageReady: () => MathJax.startup.defaultPageReady().then(drawn),
  },
};
