
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const element = (tag, text, className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    made.className = className;
    return made;
  };
  const button = (text, label, action) => {
    const made = element("button", text, "tool");
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.addEventListener("click", action);
    return made;
  };
  const download = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // Tables: a click on a heading sorts up, down, then back to the first order.
  const order = { none: "ascending", ascending: "descending", descending: "none" };
  const words = new Intl.Collator("en", { numeric: true });
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent;
    return { text, number: Number(text.replaceAll("−", "-")), missing: cell.textContent === "–" };
  };
  const compare = (a, b) =>
    Number.isNaN(a.number) || Number.isNaN(b.number) ? words.compare(a.text, b.text) : a.number - b.number;
  const sort = (table, column, direction) => {
    const sign = direction === "descending" ? -1 : 1;
    const rows = table.forward.map((row) => ({ row, key: key(row, column) }));
    if (direction !== "none") {
      rows.sort((a, b) => a.key.missing - b.key.missing || sign * compare(a.key, b.key));
    }
    table.tBodies[0].append(...rows.map(({ row }) => row));
  };
  const csv = (table) =>
    [...table.rows]
      .map((row) =>
        [...row.cells]
          .map((cell) => {
            const text = (cell.dataset.value ?? cell.textContent).trim().replace(/\s+/g, " ").replace(/−/g, "-");
            const safe = /^[=+@\t]/.test(text) || (text[0] === "-" && Number.isNaN(Number(text))) ? `'${text}` : text;
            return /[",\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
          })
          .join(","),
      )
      .join("\n") + "\n";
  const copy = async (table, made) => {
    try {
      await navigator.clipboard.writeText(csv(table));
      made.textContent = "Copied";
    } catch {
      download("table.csv", "text/csv", csv(table));
      made.textContent = "Saved as a file";
    }
    setTimeout(() => { made.textContent = "Copy as CSV"; }, 2000);
  };
  for (const table of all("table.sortable, table.answers")) {
    const label = table.parentElement.getAttribute("aria-label");
    const made = button("Copy as CSV", `Copy as CSV: ${label}`, () => copy(table, made));
    table.parentElement.after(made);
    if (!table.classList.contains("sortable")) continue;
    table.forward = [...table.tBodies[0].rows];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const inner = document.createElement("button");
      inner.type = "button";
      inner.append(...heading.childNodes);
      heading.append(inner);
      heading.setAttribute("aria-sort", "none");
      inner.addEventListener("click", () => {
        const next = order[heading.getAttribute("aria-sort")];
        for (const other of headings) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", next);
        sort(table, column, next);
      });
    });
  }

  // Questions: further measures of a question are shown on demand.
  for (const first of all(".answers tr:not(.more)")) {
    const rest = [];
    let row = first.nextElementSibling;
    for (; row?.classList.contains("more"); row = row.nextElementSibling) rest.push(row);
    if (!rest.length) continue;
    const label = `${rest.length} more measure${rest.length > 1 ? "s" : ""}`;
    const toggle = (open) => {
      for (const row of rest) row.hidden = !open;
      made.setAttribute("aria-expanded", open);
      made.textContent = open ? "Fewer measures" : label;
    };
    const question = first.cells[0].firstChild.textContent.trim();
    const made = button(label, `${label}: ${question}`, () => toggle(rest[0].hidden));
    made.classList.add("expand");
    first.cells[0].append(made);
    toggle(false);
  }

  // Figures and terms: values at the pointer or the keyboard's focus, and a file of each figure.
  const tip = document.getElementById("tip");
  const explain = (artist, x, y) => {
    tip.hidden = !artist;
    if (!artist) return;
    tip.textContent = artist.dataset.tip;
    const left = Math.min(x + 12, innerWidth - tip.offsetWidth - 8);
    const above = y - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${above < 8 ? y + 20 : above}px`;
  };
  document.addEventListener("pointermove", (event) =>
    explain(event.target.closest?.("[data-tip]"), event.clientX, event.clientY));
  document.addEventListener("focusin", (event) => {
    const term = event.target.closest?.("[data-tip]");
    const box = event.target.getBoundingClientRect();
    explain(term, box.left, box.top);
  });
  const standalone = (svg) => {
    const made = svg.cloneNode(true);
    const [, , width, height] = made.getAttribute("viewBox").split(" ");
    made.setAttribute("width", `${width}pt`);
    made.setAttribute("height", `${height}pt`);
    made.setAttribute("style", "stroke-linejoin:round;stroke-linecap:butt");
    return new XMLSerializer().serializeToString(made);
  };
  for (const figure of all("figure[data-stem]")) {
    const stem = figure.dataset.stem;
    const shown = () => all("svg", figure).find((svg) => !svg.closest("[hidden]"));
    const save = () => download(`${stem}.svg`, "image/svg+xml", standalone(shown()));
    figure.append(button("SVG", `Download figure ${stem} as SVG`, save));
  }

  // Blocks: the chosen one is marked in every figure and table of its model.
  const select = document.getElementById("block");
  const modelOf = (node) => node.closest("[data-model]")?.dataset.model;
  const mark = (model, block) => {
    for (const old of all(".marked")) old.classList.remove("marked");
    for (const svg of all("svg.marks")) svg.classList.remove("marks");
    if (!block) return;
    for (const artist of all(`svg [data-block="${CSS.escape(block)}"]`)) {
      if (model && modelOf(artist) !== model) continue;
      artist.classList.add("marked");
      artist.closest("svg").classList.add("marks");
    }
    for (const table of all("table.sortable")) {
      const column = [...table.tHead.rows[0].cells].findIndex((head) => head.dataset.name === "block");
      if (column < 0 || (model && table.dataset.model !== model)) continue;
      for (const row of table.forward) {
        if (row.cells[column].textContent === block) row.classList.add("marked");
      }
    }
  };
  if (select) {
    const chosen = () => {
      const option = select.selectedOptions[0];
      mark(option.dataset.model, option.dataset.model ? option.value : "");
    };
    select.addEventListener("change", chosen);
    document.addEventListener("click", (event) => {
      const artist = event.target.closest?.("[data-block]");
      if (!artist) return;
      const model = modelOf(artist);
      const options = [...select.options];
      const same = (o) => o.value === artist.dataset.block && o.dataset.model && (!model || o.dataset.model === model);
      const option = options.find(same);
      select.selectedIndex = option && !option.selected ? option.index : 0;
      chosen();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !select.selectedIndex) return;
      select.selectedIndex = 0;
      chosen();
    });
  }

  // Models: those that are not checked are hidden everywhere.
  const boxes = all("input[data-show]");
  for (const box of boxes) {
    box.addEventListener("change", () => {
      if (!boxes.some((b) => b.checked)) box.checked = true;
      const hidden = new Set(boxes.filter((b) => !b.checked).map((b) => b.dataset.show));
      for (const node of all("[data-model]")) node.classList.toggle("off", hidden.has(node.dataset.model));
    });
  }
  for (const toolbar of all(".toolbar")) toolbar.hidden = !toolbar.children.length;

  // Surfaces turn when they are dragged, or by the arrow keys; all on the page turn together.
  const HEIGHT = 0.75; // of the scale's end, in sides of the square; as in the figure
  const view = { turn: (-58 * Math.PI) / 180, rise: (38 * Math.PI) / 180 };
  const canvases = all("canvas[data-surface]");
  const project = (x, y, z) => {
    const [ct, st, cr, sr] = [Math.cos(view.turn), Math.sin(view.turn), Math.cos(view.rise), Math.sin(view.rise)];
    const back = st * x + ct * y;
    const height = 2 * HEIGHT * (z - 0.5);
    return { x: ct * x - st * y, y: cr * height + sr * back, near: sr * height - cr * back };
  };
  const draw = (canvas) => {
    const surface = canvas.surface;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const scale = Math.min(width / 3.3, height / 3.1);
    const at = (p) => [width / 2 + scale * p.x, height / 2 - scale * p.y];
    const path = (points) => {
      context.beginPath();
      points.forEach((p, i) => (i ? context.lineTo(...at(p)) : context.moveTo(...at(p))));
    };
    const square = (z) => [[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]].map(([x, y]) => project(x, y, z));
    const style = getComputedStyle(canvas);
    context.strokeStyle = style.getPropertyValue("--strip");
    path(square(0));
    context.stroke();
    context.fillStyle = style.getPropertyValue("--faint");
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(surface.axes[0], ...at(project(0, -1.2, 0)));
    context.fillText(surface.axes[1], ...at(project(1.2, 0, 0)));
    const along = (i, n) => (2 * i) / (n - 1) - 1;
    const corners = surface.height.map((row, j) =>
      row.map((z, i) => project(along(i, row.length), along(j, surface.height.length), z)));
    const cells = surface.color.flatMap((row, j) => row.map((color, i) => {
      const points = [corners[j][i], corners[j][i + 1], corners[j + 1][i + 1], corners[j + 1][i]];
      return { points, color, near: points.reduce((sum, p) => sum + p.near, 0) };
    }));
    cells.sort((a, b) => a.near - b.near); // far ones first
    context.lineWidth = 0.5;
    context.strokeStyle = "rgba(0, 0, 0, 0.35)";
    for (const cell of cells) {
      path(cell.points);
      context.closePath();
      context.fillStyle = cell.color;
      context.fill();
      context.stroke();
    }
    if (surface.level) {
      const ring = square(surface.level.height);
      context.setLineDash([5, 3]);
      context.strokeStyle = context.fillStyle = style.getPropertyValue("--ink");
      path(ring);
      context.stroke();
      const [x, y] = at(ring.reduce((left, p) => (p.x < left.x ? p : left)));
      context.textAlign = "left";
      context.setLineDash([]);
      [context.lineWidth, context.lineJoin] = [4, "round"];
      context.strokeStyle = style.getPropertyValue("--paper"); // around the letters
      context.strokeText(surface.level.label, x, y - 5);
      context.fillText(surface.level.label, x, y - 5);
    }
  };
  const turn = (across, up) => {
    view.turn += across;
    view.rise = Math.max(0.05, Math.min(Math.PI / 2, view.rise + up));
    canvases.forEach(draw);
  };
  for (const canvas of canvases) {
    canvas.surface = JSON.parse(canvas.dataset.surface);
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) turn(event.movementX / 150, event.movementY / 150);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!step) return;
      event.preventDefault();
      turn(...step);
    });
  }
  window.addEventListener("resize", () => canvases.forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => canvases.forEach(draw));
  canvases.forEach(draw);
})();
