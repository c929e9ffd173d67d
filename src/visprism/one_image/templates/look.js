"use strict";
// A chosen position moves the marks and the maps of all pictures; a chosen class its numbers.
const root = document.body;
const positions = Number(root.style.getPropertyValue("--n"));
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const at = (name) => Number(root.style.getPropertyValue(name));
const within = (value) => Math.min(Math.max(Math.floor(value), 0), positions - 1);
const choose = (x, y) => { root.style.setProperty("--qx", within(x)); root.style.setProperty("--qy", within(y)); };
for (const box of all(".chooser, .marked")) {
  const to = (event) => {
    const area = box.getBoundingClientRect();
    choose((event.clientX - area.left) / area.width * positions, (event.clientY - area.top) / area.height * positions);
  };
  box.addEventListener("pointerdown", to);
  box.addEventListener("pointermove", (event) => { if (event.buttons) to(event); });
  box.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (dx || dy) { event.preventDefault(); choose(at("--qx") + dx, at("--qy") + dy); }
  });
}
const percent = (p) => `${(100 * p).toFixed(p >= 0.0995 || p === 0 ? 0 : 1)}%`;
const chooseClass = (name, article) => {
  for (const button of all("[data-class]", article)) button.setAttribute("aria-pressed", String(button.dataset.class === name));
  for (const line of all("[data-name]", article)) line.classList.toggle("chosen", line.dataset.name === name);
  for (const part of all(".block", article)) {
    const k = part.dataset.classes.split("\t").indexOf(name);
    const box = part.querySelector(".without");
    if (k < 0 || !box) continue;
    const [before, after] = [box.dataset.with, box.dataset.without].map((text) => Number(text.split(",")[k]));
    box.querySelector(".name").textContent = name;
    box.querySelector(".p").textContent = `${percent(before)} → ${percent(after)}`;
    box.querySelector("u").style.width = `${100 * before}%`;
    box.querySelector("s").style.width = `${100 * after}%`;
  }
};
for (const article of all("article")) {
  for (const button of all("[data-class]", article)) button.addEventListener("click", () => chooseClass(button.dataset.class, article));
}
const chooseImage = (key) => {
  for (const article of all("article")) article.hidden = article.id !== key;
  for (const button of all("[data-image]")) button.setAttribute("aria-pressed", String(button.dataset.image === key));
};
for (const button of all("[data-image]")) button.addEventListener("click", () => chooseImage(button.dataset.image));
const first = document.querySelector("[data-image]");
if (first) chooseImage(first.dataset.image);
