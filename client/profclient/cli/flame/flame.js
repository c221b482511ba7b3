// Zoom and search in a flame graph. A name is only ever the content of a text node.
"use strict";
(() => {
  const svg = document.documentElement;
  const CHARACTER = 7.3; // pixels
  const boxes = [...svg.querySelectorAll("g.box")].map((group) => ({
    group,
    rect: group.querySelector("rect"),
    text: group.querySelector("text"),
    name: group.querySelector("title").textContent.split("\n")[0],
    left: Number(group.dataset.left),
    width: Number(group.dataset.width),
    depth: Number(group.dataset.depth),
  }));
  const told = svg.querySelector("#told");
  let zoomed = boxes[0];

  const shorter = (name, room) => {
    let text = name.replace(/^.*\/(?=[^/]*\.py\(\d+\): )/, "");
    if (text.length > room) text = text.replace(/^[^/]*\.py\(\d+\): /, "");
    if (text.length <= room) return text;
    return room >= 3 ? text.slice(0, room - 1) + "\u2026" : "";
  };

  const draw = () => {
    const right = zoomed.left + zoomed.width;
    const pixels = svg.getBoundingClientRect().width;
    for (const box of boxes) {
      const around = box.depth < zoomed.depth && box.left <= zoomed.left && box.left + box.width >= right;
      const begin = around ? 0 : (box.left - zoomed.left) / zoomed.width;
      const share = around ? 1 : box.width / zoomed.width;
      const seen = begin + share > 1e-9 && begin < 1 - 1e-9 && (around || box.depth >= zoomed.depth);
      box.group.style.display = seen ? "" : "none";
      if (!seen) continue;
      box.rect.setAttribute("x", `${begin * 100}%`);
      box.rect.setAttribute("width", `${share * 100}%`);
      box.text.setAttribute("x", `${begin * 100}%`);
      box.text.textContent = shorter(box.name, Math.floor((share * pixels - 6) / CHARACTER));
    }
  };

  const zoom = (box) => { zoomed = box; draw(); };

  const search = () => {
    const wanted = window.prompt("Names that contain (empty: none):", "");
    if (wanted === null) return;
    let covered = 0;
    let until = -1; // of the last box found that none found is around
    const hits = boxes.filter((box) => wanted !== "" && box.depth >= 0 && box.name.includes(wanted));
    for (const box of boxes) box.group.classList.remove("found");
    for (const box of hits) box.group.classList.add("found");
    for (const box of hits.sort((a, b) => a.left - b.left || a.depth - b.depth)) {
      if (box.left < until) continue;
      covered += box.width;
      until = box.left + box.width;
    }
    told.textContent = wanted === "" ? "" : `${hits.length} found, ${((100 * covered) / boxes[0].width).toFixed(1)} %`;
  };

  for (const box of boxes) {
    box.group.addEventListener("click", () => zoom(box));
    box.group.addEventListener("keydown", (event) => { if (event.key === "Enter") zoom(box); });
  }
  svg.querySelector("#search").addEventListener("click", search);
  svg.querySelector("#reset").addEventListener("click", () => zoom(boxes[0]));
  window.addEventListener("keydown", (event) => {
    if (event.key === "Escape") zoom(boxes[0]);
    if (event.key === "/") { event.preventDefault(); search(); }
  });
  window.addEventListener("resize", draw);
  draw();
})();
