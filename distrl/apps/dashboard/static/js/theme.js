// Runs before the page is drawn, so that the other theme does not flash.
"use strict";
(() => {
  const stored = localStorage.getItem("distrl-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
})();
