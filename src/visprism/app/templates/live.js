"use strict";
const state = { info: null, subject: null, images: [0], pictures: new Map() };
let subject = new AbortController(); // ends what is asked about a model when another is chosen
const live = (panel, values) => ask(`api/live/${panel}`, { ...state.subject, ...values }, "application/json", subject.signal);
const send = (panel, values) => live(panel, { images: state.images, ...values });
const busy = (box, action) => latest(async (...given) => {
  box.classList.add("busy");
  try { await action(...given); } finally { box.classList.remove("busy"); }
});

// Colors of maps: black to violet to orange to pale yellow, in equal steps of lightness.
const STOPS = [[0, 0, 4], [59, 15, 112], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]];
const color = (value) => {
  const at = Math.min(Math.max(value, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((channel, i) => Math.round(channel + (at - low) * (STOPS[low + 1][i] - channel)));
};
const paint = (canvas, weights, rows, columns, scale = (value, most) => value / most) => {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const most = Math.max(...weights) || 1;
  weights.forEach((weight, i) => pixels.data.set([...color(scale(weight, most)), 255], 4 * i));
  context.putImageData(pixels, 0, 0);
  return canvas;
};
const fromLowest = (weights) => {
  const low = Math.min(...weights);
  return (value, most) => (value - low) / (most - low || 1);
};
const NS = "http://www.w3.org/2000/svg";
const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
// Lines over one axis: [{ name, x, y }]; the first is dashed.
const chart = (title, label, lines) => {
  const [width, height, left, below] = [420, 200, 48, 34];
  const xs = lines.flatMap((line) => line.x);
  const ys = lines.flatMap((line) => line.y).filter((y) => y !== null);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const px = (x) => left + ((x - x0) / (x1 - x0 || 1)) * (width - left - 8);
  const py = (y) => height - below - ((y - y0) / (y1 - y0 || 1)) * (height - below - 14);
  const text = (x, y, content, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor }, content);
  const short = (value) => Number(value.toPrecision(3)).toString().replace("-", "−");
  const parts = lines.map((line, i) => svg("polyline", {
    class: i || lines.length === 1 ? "after" : "before",
    points: line.x.map((x, k) => (line.y[k] === null ? "" : `${px(x).toFixed(1)},${py(line.y[k]).toFixed(1)}`)).join(" "),
  }));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${lines.map((line) => line.name).join(", ")}` },
    svg("path", { class: "axis", fill: "none", d: `M${left} 14V${height - below}H${width - 8}` }), ...parts,
    text(left - 4, py(y1) + 4, short(y1), "end"), text(left - 4, py(y0) + 4, short(y0), "end"),
    text(left, height - below + 14, short(x0), "start"), text(width - 8, height - below + 14, short(x1), "end"),
    text((left + width) / 2, height - 4, label));
  const key = lines.length > 1 ? ` (dashed: ${lines[0].name}, solid: ${lines[1].name})` : "";
  return make("figure", {}, make("figcaption", { class: "faint" }, title + key), picture);
};
const answers = (box, { predictions, pictures }, before) => {
  box.replaceChildren(...predictions.map(({ top }, i) => make("figure", { class: "answer" },
    make("img", { src: pictures?.[i] ?? state.pictures.get(state.images[i])?.picture ?? "data:,", alt: `image ${state.images[i]}` }),
    make("ol", { "aria-label": `predictions of image ${state.images[i]}` }, ...top.map((entry) => {
      const old = before?.[i].top.find((other) => other.class === entry.class);
      const line = make("li", { title: `logit ${entry.logit}${old ? `, before ${old.logit}` : ""}` }, make("span", {}, entry.name),
        make("span", { class: "number" }, `${(100 * entry.probability).toFixed(1)}% · ${entry.logit.toFixed(2)}`));
      line.style.setProperty("--p", entry.probability);
      return line;
    })))));
};

// A point on an image, by pointer or arrow keys; x and y are fractions.
const pointer = (stage, steps, moved) => {
  const point = { x: 0.5, y: 0.5 };
  const set = (x, y) => {
    point.x = Math.min(Math.max(x, 0), 0.9999);
    point.y = Math.min(Math.max(y, 0), 0.9999);
    const cross = find(".cross", stage);
    cross.style.left = `${100 * point.x}%`;
    cross.style.top = `${100 * point.y}%`;
  };
  const to = (event) => {
    const box = stage.getBoundingClientRect();
    set((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    moved(point);
  };
  stage.addEventListener("pointerdown", (event) => { stage.setPointerCapture(event.pointerId); to(event); });
  stage.addEventListener("pointermove", (event) => { if (stage.hasPointerCapture(event.pointerId)) to(event); });
  stage.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (!dx && !dy) return;
    event.preventDefault();
    const [rows, columns] = steps();
    set((Math.floor(point.x * columns) + dx + 0.5) / columns, (Math.floor(point.y * rows) + dy + 0.5) / rows);
    moved(point);
  });
  set(0.5, 0.5);
  return point;
};

// Attention.
const query = { name: "patch" };
const attention = busy(find("#attention"), async () => {
  const [height, width] = state.info.size;
  const values = query.name === "class" ? { query: "class" }
    : { row: Math.floor(patch.y * height), column: Math.floor(patch.x * width) };
  const { layers } = await send("attention", values);
  find("#patch-name").textContent = query.name === "class" ? "query: class token" : `query: the patch at row ${values.row}, column ${values.column}`;
  find("#heads").replaceChildren(...layers.map((layer) => make("tr", {}, make("th", { scope: "row" }, layer.name),
    ...layer.heads.map((weights, head) => make("td", {},
      paint(make("canvas", { role: "img", "aria-label": `${layer.name}, head ${head + 1}` }), weights, layer.rows, layer.columns),
      `head ${head + 1}: ${layer.on_grid[head].toFixed(2)}`)))));
});
const patch = pointer(find("#patch"), () => state.info.attentions[0].grid, () => { setQuery("patch"); attention(); });
const setQuery = (name) => {
  query.name = name;
  find("#class-query").setAttribute("aria-pressed", name === "class");
  find("#patch .cross").hidden = name === "class";
};
find("#class-query").addEventListener("click", () => { setQuery(query.name === "class" ? "patch" : "class"); attention(); });
const rollout = latest(async () => {
  const box = find("#rollouts");
  try {
    const { maps } = await send("rollout", {});
    box.replaceChildren(...maps.map((map) => make("figure", {},
      paint(make("canvas", { role: "img", "aria-label": `rollout by ${map.method}` }), map.weights, map.rows, map.columns, fromLowest(map.weights)),
      make("figcaption", {}, map.method === "gradient" ? "gradient rollout" : "attention rollout"))));
  } catch (error) {
    box.replaceChildren(make("p", { class: "faint" }, `No rollout: ${error.message}.`));
  }
});

// Ablation.
let intact = null;
const ablation = busy(find("#ablation"), async () => {
  const blocks = all("#blocks [aria-pressed=true]").map((button) => button.value);
  const answer = await send("ablation", { blocks });
  if (!blocks.length) intact = answer;
  intact ??= await send("ablation", { blocks: [] });
  answers(find("#ablation .answers-of"), answer, intact.predictions);
  const line = (name, { frequency, relative }) => ({ name, x: frequency, y: relative });
  const high = (name, { depth, relative }) => ({ name, x: depth, y: relative });
  find("#ablation .charts").replaceChildren(
    chart(`Feature spectrum of ${answer.spectrum.block}, log amplitude relative to the mean`, "Frequency (π rad/pixel)",
      [line("intact", intact.spectrum), line("ablated", answer.spectrum)]),
    chart("High-frequency log amplitude of each block", "Normalized depth", [high("intact", intact.high), high("ablated", answer.high)]));
});
find("#restore").addEventListener("click", () => {
  for (const button of all("#blocks [aria-pressed]")) button.setAttribute("aria-pressed", "false");
  ablation();
});

// Noise, corruptions, landscape: controls that ask when they move.
const controls = (box) => all("input, select", box);
const labels = (box, units = {}) => {
  for (const input of all("input[type=range]", box)) {
    find("output", input.parentElement).textContent = `${Number(input.value)}${units[input.name] ?? ""}`;
  }
};
const moved = (box, action, units) => {
  for (const control of controls(box)) control.addEventListener("input", () => { labels(box, units); action(); });
  labels(box, units);
};
const perturbed = (name, values) => {
  const box = find(`#${name}`);
  return busy(box, async () => answers(find(".answers-of", box), await send(name, values(box))));
};
const valueOf = (box, name) => find(`[name=${name}]`, box).value;
const noise = perturbed("frequency_noise", (box) => ({ frequency: Number(valueOf(box, "frequency")), rms: Number(valueOf(box, "rms")) }));
moved(find("#frequency_noise"), noise, { frequency: "π rad/pixel" });
const corruption = perturbed("corruption", (box) => ({ corruption: valueOf(box, "corruption"), severity: Number(valueOf(box, "severity")) }));
moved(find("#corruption"), corruption);
const walked = new Map();
const landscape = busy(find("#landscape"), async () => {
  const box = find("#landscape");
  const direction = Number(valueOf(box, "direction"));
  const answer = await send("landscape", { direction, distance: Number(valueOf(box, "distance")) });
  answers(find(".answers-of", box), answer);
  const key = JSON.stringify([direction, state.images]);
  if (walked.key !== key) { walked.clear(); walked.key = key; }
  walked.set(answer.distance, answer.predictions[0].top[0].probability);
  const points = [...walked].sort((a, b) => a[0] - b[0]);
  find(".charts", box).replaceChildren(...(points.length > 1
    ? [chart("Confidence at the distances so far, first image", "Distance t", [{ name: "confidence", x: points.map((p) => p[0]), y: points.map((p) => p[1]) }])] : []));
});
moved(find("#landscape"), landscape);

// Receptive field, over three decades.
const field = busy(find("#receptive"), async () => {
  const answer = await send("receptive_field", { block: valueOf(find("#receptive"), "block"), x: center.x, y: center.y });
  paint(find("#field canvas"), answer.weights, answer.rows, answer.columns, (value) => 1 + Math.log10(Math.max(value, 1e-3)) / 3);
  find("#field-name").textContent = `${answer.block}: row ${answer.position[0]}, column ${answer.position[1]} of ${answer.grid.join(" x ")}`;
});
const center = pointer(find("#center"), () => state.info.blocks.find((block) => block.name === valueOf(find("#receptive"), "block")).grid, () => field());
find("#receptive select").addEventListener("change", () => field());

// Model and images.
const refresh = async () => {
  intact = null;
  const [first] = state.images;
  for (const image of all(".stage img")) {
    image.src = state.pictures.get(first).picture;
    image.alt = `image ${first}`;
  }
  if (state.info.attentions.length) { attention(); rollout(); }
  ablation(); noise(); corruption(); field(); landscape();
};
const choose = (index) => {
  const chosen = state.images.includes(index) ? state.images.filter((other) => other !== index) : [...state.images, index].slice(-4);
  state.images = chosen.length ? chosen : [index];
  for (const button of all("#strip button")) button.setAttribute("aria-pressed", state.images.includes(Number(button.value)));
  refresh();
};
const strip = async () => {
  const box = find("#strip");
  const number = Math.min(state.info.images, 16);
  box.replaceChildren();
  state.pictures.clear();
  for (let start = 0; start < number; start += 4) {
    const indices = [...Array(Math.min(4, number - start)).keys()].map((i) => start + i);
    const { pictures, predictions } = await live("images", { images: indices });
    indices.forEach((index, i) => {
      state.pictures.set(index, { picture: pictures[i], predictions: predictions[i] });
      const label = state.info.labels?.[index];
      const name = `image ${index}${label ? `, ${label}` : ""}`;
      box.append(make("button", { type: "button", value: index, title: name, "aria-pressed": String(state.images.includes(index)), onclick: () => choose(index) }, make("img", { src: pictures[i], alt: name })));
    });
  }
};
const load = guarded(async () => {
  const form = find("#subject");
  const about = find("#about");
  about.textContent = "Loading the model.";
  subject.abort();
  subject = new AbortController();
  find("#panels").removeAttribute("data-ready");
  state.subject = {
    model: { name: form.elements.model.value.trim(), checkpoint: form.elements.checkpoint.value },
    data: form.elements.data.value,
    pretrained: form.elements.random_weights.checked ? false : null,
  };
  try {
    state.info = await live("model", {});
  } catch (error) {
    about.textContent = "";
    throw error;
  }
  const { info } = state;
  about.textContent = `${info.name}: ${info.parameters.toLocaleString("en-US")} parameters, ${info.blocks.length} blocks, images of ${info.size.join(" x ")} pixels, ${info.classes} classes${info.trained ? "" : ". The weights are random"}.`;
  state.images = [0];
  find("#panels").hidden = false;
  await strip();
  const reason = find("#attention .reason");
  reason.hidden = info.attentions.length > 0;
  reason.textContent = "The model has no attention whose weights can be read.";
  find("#attention .columns").hidden = !info.attentions.length;
  find("#attention .columns").style.display = info.attentions.length ? "" : "none";
  find("#blocks").replaceChildren(...info.blocks.map((block) => make("button", {
    type: "button", value: block.name, "aria-pressed": "false", disabled: !block.ablatable, title: `${block.kind}, stage ${block.stage}`,
    onclick: ({ currentTarget: button }) => { button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true"); ablation(); },
  }, block.name)));
  const grids = info.blocks.filter((block) => block.grid);
  find("#receptive select").replaceChildren(...grids.map((block) => make("option", {}, block.name)));
  find("#receptive select").value = grids[Math.floor(grids.length / 2)]?.name;
  setQuery("patch");
  await refresh();
  find("#panels").dataset.ready = "yes";
});
find("#subject").addEventListener("submit", (event) => { event.preventDefault(); load(); });
find("#images").addEventListener("change", guarded(async ({ target }) => {
  addChoice(find("#subject").elements.data, await upload(target));
  await load();
}));
guarded(async () => {
  const catalog = await ask("api/catalog");
  fill(catalog);
  find("#subject").elements.checkpoint.append(...catalog.checkpoints.map((file) => make("option", {}, file)));
  find("select[name=corruption]").replaceChildren(...catalog.corruptions.map((name) => make("option", { value: name }, name.replaceAll("_", " "))));
  await load();
})();
