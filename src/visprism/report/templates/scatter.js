
"use strict";
(() => {
  // Many models: a point for each, at two quantities of their table.
  const place = document.querySelector("#scatter");
  const table = document.querySelector("#glance");
  const headings = [...table.tHead.rows[0].cells].filter((cell, i) => !i || !cell.classList.contains("t"));
  const names = headings.map((cell) => cell.textContent.trim()); // of numbers, which come first
  const value = (row, column) => Number(row.cells[column].dataset.value ?? NaN);
  const choices = [1, names.length > 2 ? names.length - 1 : 1].map((chosen, axis) => {
    const label = document.createElement("label");
    label.textContent = axis ? " against " : "";
    const choice = document.createElement("select");
    names.slice(1).forEach((name, i) => choice.append(new Option(name, i + 1, false, i + 1 === chosen)));
    label.append(choice);
    place.append(label);
    choice.addEventListener("change", () => draw());
    return choice;
  });
  const svg = (tag, values, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, one] of Object.entries(values)) made.setAttribute(name, one);
    made.textContent = text;
    return made;
  };
  const [width, height, left, bottom] = [720, 420, 70, 40];
  const axis = (values, from, to) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const scale = low > 0 && high > 20 * low ? Math.log10 : (x) => x; // sizes differ by factors
    const span = scale(high) - scale(low) || 1;
    const at = (x) => from + ((scale(x) - scale(low)) / span) * (to - from);
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => scale(low) + part * span);
    return { at, ticks: ticks.map((x) => (scale === Math.log10 ? 10 ** x : x)) };
  };
  const draw = () => {
    place.querySelector("svg")?.remove();
    const [up, across] = choices.map((choice) => Number(choice.value));
    const points = table.forward
      .map((row) => ({ name: row.dataset.model, x: value(row, across), y: value(row, up) }))
      .filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
    const label = `${names[up]} against ${names[across]}`;
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "scatter" });
    place.append(picture);
    if (!points.length) {
      picture.append(svg("text", { x: left, y: height / 2 }, "No model has both numbers"));
      return;
    }
    const x = axis(points.map((point) => point.x), left + 20, width - 130);
    const y = axis(points.map((point) => point.y), height - bottom - 20, 20);
    const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
    for (const tick of x.ticks) {
      picture.append(svg("text", { x: x.at(tick), y: height - bottom + 15, "text-anchor": "middle" }, short.format(tick)));
    }
    for (const tick of y.ticks) {
      picture.append(svg("text", { x: left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, short.format(tick)));
    }
    picture.append(svg("path", { d: `M${left} 10V${height - bottom}H${width - 110}` }));
    picture.append(svg("text", { x: (left + width - 110) / 2, y: height - 6, "text-anchor": "middle" }, names[across]));
    const middle = (height - bottom) / 2;
    const turned = { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` };
    picture.append(svg("text", turned, names[up]));
    for (const point of points) {
      const dot = svg("circle", { cx: x.at(point.x), cy: y.at(point.y), r: 4 });
      dot.append(svg("title", {}, `${point.name}: ${point.x}, ${point.y}`));
      picture.append(dot);
      if (points.length <= 20) {
        picture.append(svg("text", { x: x.at(point.x) + 7, y: y.at(point.y) + 4 }, point.name));
      }
    }
  };
  place.addEventListener("toggle", draw, { once: true });
})();
