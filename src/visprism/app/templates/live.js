"use strict";
// What all panels share: the loaded models side by side, and the images and points they show.
let sides = [];
const state = { images: [0], query: "patch" };
let requests = new AbortController(); // ends what is asked about models that are replaced
const live = (subject, panel, values) => ask(`api/live/${panel}`, { ...subject, ...values }, "application/json", requests.signal);
const send = (side, panel, values) => live(side.subject, panel, { images: state.images, ...values });
const pictureOf = (side, index) => {
  if (!side.pictures.has(index)) side.pictures.set(index, live(side.subject, "images", { images: [index] }).then((answer) => answer.pictures[0]));
  return side.pictures.get(index);
};
const busy = (box, action) => latest(async (...given) => {
  box.classList.add("busy");
  try { await action(...given); } finally { box.classList.remove("busy"); }
});
const views = {}; // by section: (side, box) => a function that brings the box up to date
const update = (...sections) => { for (const section of sections) for (const side of sides) side.updates[section]?.(); };

// Colors of maps: black to violet to orange to pale yellow, in equal steps of lightness.
const STOPS = [[0, 0, 4], [59, 15, 112], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]];
const color = (value) => {
  const at = Math.min(Math.max(value, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((channel, i) => Math.round(channel + (at - low) * (STOPS[low + 1][i] - channel)));
};
const paint = (canvas, { weights, rows, columns }, scale = (value, most) => value / most) => {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const most = Math.max(...weights) || 1;
  weights.forEach((weight, i) => pixels.data.set([...color(scale(weight, most)), 255], 4 * i));
  context.putImageData(pixels, 0, 0);
  return canvas;
};

// Charts: lines [{ name, kind, x, y }] over one axis. `names` are labels of x, `at` is a mark.
const NS = "http://www.w3.org/2000/svg";
const svg = (tag, attributes, ...children) => {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const ticksOf = (low, high) => {
  const raw = (high - low || 1) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k += 1) ticks.push(Number((k * step).toPrecision(6)));
  return ticks;
};
const chart = (title, label, lines, { names = null, at = null } = {}) => {
  const [width, height, left, below] = [440, names ? 270 : 220, 44, names ? 92 : 38];
  const xs = lines.flatMap((line) => line.x);
  const ys = lines.flatMap((line) => line.y).filter((y) => y !== null);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const px = (x) => left + 6 + ((x - x0) / (x1 - x0 || 1)) * (width - left - 18);
  const py = (y) => height - below - 4 - ((y - y0) / (y1 - y0 || 1)) * (height - below - 16);
  const text = (x, y, content, anchor, extra = {}) => svg("text", { x, y, "text-anchor": anchor, ...extra }, content);
  const sign = (value) => String(value).replace("-", "\u2212");
  const base = height - below;
  const every = names ? Math.ceil(names.length / 18) : 1;
  const below_axis = names
    ? names.map((name, i) => (i % every ? "" : text(px(xs[i]), base + 10, name, "end", { transform: `rotate(-40 ${px(xs[i])} ${base + 10})` })))
    : ticksOf(x0, x1).map((x) => text(px(x), base + 14, sign(x), "middle"));
  const marks = [...ticksOf(y0, y1).map((y) => `M${left - 4} ${py(y)}H${left}`), ...(names ? xs.slice(0, names.length) : ticksOf(x0, x1)).map((x) => `M${px(x)} ${base}V${base + 4}`)];
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${lines.map((line) => line.name).join(", ")}` },
    svg("path", { class: "axis", fill: "none", d: `M${left} 8V${base}H${width - 8}${marks.join("")}` }),
    ...(at === null ? [] : [svg("path", { class: "axis", d: `M${px(at)} 8V${base}` })]),
    ...lines.map((line) => svg("polyline", { class: line.kind, points: line.x.map((x, k) => (line.y[k] === null ? "" : `${px(x).toFixed(1)},${py(line.y[k]).toFixed(1)}`)).join(" ") })),
    ...ticksOf(y0, y1).map((y) => text(left - 6, py(y) + 4, sign(y), "end")), ...below_axis,
    text((left + width) / 2, height - 4, label, "middle"));
  const keys = lines.length < 2 ? [] : lines.map((line) => make("span", { class: `key ${line.kind}` }, line.name));
  return make("figure", {}, make("figcaption", { class: "faint" }, title, ...keys), picture);
};

// The most probable classes of each image; the true one is marked, or added below them.
const answers = async (box, side, { predictions, pictures }, before) => {
  const shown = pictures ?? await Promise.all(state.images.map((index) => pictureOf(side, index)));
  box.replaceChildren(...predictions.map(({ top, true: truth }, i) => {
    const inside = truth && top.some((entry) => entry.class === truth.class);
    const line = (entry) => {
      const old = before?.[i].top.find((other) => other.class === entry.class);
      const made = make("li", { class: entry.class === truth?.class ? "true" : null, title: `logit ${entry.logit}${old ? `, before ${old.logit}` : ""}` },
        make("span", {}, entry.name, ...(entry.class === truth?.class ? [make("b", {}, " true class")] : [])),
        make("span", { class: "number" }, `${(100 * entry.probability).toFixed(1)}%`));
      made.style.setProperty("--p", entry.probability);
      return made;
    };
    const entries = inside || !truth ? top : [...top.slice(0, -1), truth];
    return make("figure", { class: "answer" }, make("img", { src: shown[i], alt: `image ${state.images[i]}` }),
      make("ol", { "aria-label": `predictions of image ${state.images[i]}` }, ...entries.map(line)));
  }));
};
const answersBox = () => make("div", { class: "answers-of" });

// An image with a map over it, and a point that a pointer or arrow keys move. Its section shares
// point and opacity between the models.
const points = { attention: { x: 0.5, y: 0.5 }, receptive: { x: 0.5, y: 0.5 } };
const stage = (section, side, label, grid) => {
  const point = points[section];
  const picture = make("img", { alt: "" });
  const canvas = make("canvas", { role: "img", "aria-label": "map over the image" });
  const cross = make("span", { class: "cross" });
  const box = make("div", { class: "stage", tabindex: 0, role: "application", "aria-label": label }, picture, canvas, cross);
  const moveTo = (x, y) => {
    point.x = Math.min(Math.max(x, 0), 0.9999);
    point.y = Math.min(Math.max(y, 0), 0.9999);
    if (section === "attention") setQuery("patch");
    update(section);
  };
  const to = (event) => {
    const area = box.getBoundingClientRect();
    moveTo((event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height);
  };
  box.addEventListener("pointerdown", (event) => { box.setPointerCapture(event.pointerId); to(event); });
  box.addEventListener("pointermove", (event) => { if (box.hasPointerCapture(event.pointerId)) to(event); });
  box.addEventListener("keydown", (event) => {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (!dx && !dy) return;
    event.preventDefault();
    const [rows, columns] = grid();
    moveTo((Math.floor(point.x * columns) + dx + 0.5) / columns, (Math.floor(point.y * rows) + dy + 0.5) / rows);
  });
  const show = async (map, scale) => {
    picture.src = await pictureOf(side, state.images[0]);
    cross.style.left = `${100 * point.x}%`;
    cross.style.top = `${100 * point.y}%`;
    cross.hidden = section === "attention" && asksClass(side);
    canvas.style.opacity = find(`#${section} [name=opacity]`).value;
    paint(canvas, map, scale);
  };
  return { box, show };
};

views.prediction = (side, box) => {
  box.append(answersBox());
  return busy(box, async () => {
    const of = (name) => find(`#prediction [name=${name}]`).value;
    const change = of("change");
    const answer = change === "none" ? await send(side, "images", {})
      : change === "frequency_noise" ? await send(side, change, { frequency: Number(of("frequency")), rms: Number(of("rms")) })
        : await send(side, "corruption", { corruption: change, severity: Number(of("severity")) });
    await answers(find(".answers-of", box), side, answer);
  });
};

const setQuery = (name) => {
  state.query = name;
  find("#class-query").setAttribute("aria-pressed", name === "class");
};
const asksClass = (side) => state.query === "class" && side.info.class_token;
const meanOf = (heads) => heads[0].map((_, i) => heads.reduce((sum, head) => sum + head[i], 0) / heads.length);
views.attention = (side, box) => {
  const [first] = side.info.attentions;
  if (!first) {
    box.append(make("p", { class: "faint" }, "This model has no attention whose weights can be read."));
    return () => {};
  }
  const { box: image, show } = stage("attention", side, "Image; arrow keys choose the patch that attends", () => first.grid);
  const caption = make("p", { class: "faint", "aria-live": "polite" });
  const table = make("table", { class: "heads" });
  const rolled = make("div", { class: "rollouts" });
  box.append(image, caption, rolled, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Attention by layer and head" }, table));
  let chosen = `${side.info.attentions.at(-1).name}, mean of heads`;
  let maps = new Map();
  const choose = (name) => {
    chosen = name;
    const [row, column] = [Math.floor(points.attention.y * first.grid[0]), Math.floor(points.attention.x * first.grid[1])];
    const query = chosen.includes("rollout") ? "" : asksClass(side) ? "; query: class token" : `; query: patch row ${row + 1}, column ${column + 1} of ${first.grid.join(" x ")}`;
    caption.textContent = `${chosen}${query}`;
    for (const button of all("button", box)) button.setAttribute("aria-pressed", String(button.value === chosen));
    show(maps.get(chosen));
  };
  const button = (name, label, map) => {
    maps.set(name, map);
    return make("button", { type: "button", value: name, title: name, onclick: () => choose(name) },
      paint(make("canvas", { role: "img", "aria-label": name }), map), label);
  };
  let rollouts = null; // of the image that is shown
  return busy(box, async () => {
    const [height, width] = side.info.size;
    const values = asksClass(side) ? { query: "class" } : { row: Math.floor(points.attention.y * height), column: Math.floor(points.attention.x * width) };
    const { layers } = await send(side, "attention", values);
    if (rollouts?.image !== state.images[0]) {
      rollouts = { image: state.images[0], ...await send(side, "rollout", {}).catch((error) => ({ maps: [], reason: error.message })) };
    }
    maps = new Map();
    rolled.replaceChildren(...(rollouts.reason ? [make("p", { class: "faint" }, `No rollout: ${rollouts.reason}.`)]
      : rollouts.maps.map((map) => {
        const low = Math.min(...map.weights);
        const name = map.method === "gradient" ? "gradient rollout" : "attention rollout";
        return button(name, name, { ...map, weights: map.weights.map((weight) => weight - low) });
      })));
    table.replaceChildren(...layers.map((layer, i) => {
      const others = side.info.attentions[i].others;
      const map = (weights) => ({ weights, rows: layer.rows, columns: layer.columns });
      return make("tr", {}, make("th", { scope: "row" }, layer.name),
        make("td", {}, button(`${layer.name}, mean of heads`, "mean", map(meanOf(layer.heads)))),
        ...layer.heads.map((weights, head) => make("td", {}, button(`${layer.name}, head ${head + 1}`, `head ${head + 1}`, map(weights)),
          ...(others ? [make("span", { title: "weight on patches; the rest is on class tokens and registers" }, `patches ${layer.on_grid[head].toFixed(2)}`)] : []))));
    }));
    choose(maps.has(chosen) ? chosen : [...maps.keys()].at(-1));
  });
};

views.ablation = (side, box) => {
  let intact = null;
  let images = null; // of the intact answer
  const blocks = make("div", { class: "blocks", role: "group", "aria-label": "Blocks" });
  const charts = make("div", { class: "charts" });
  const result = answersBox();
  const run = busy(box, async () => {
    const chosen = all("[aria-pressed=true]", blocks).map((button) => button.value);
    const now = state.images; // others may be chosen while the answer is awaited
    if (images !== now) { images = now; intact = null; }
    const answer = await send(side, "ablation", { blocks: chosen, images: now });
    intact ??= chosen.length ? await send(side, "ablation", { blocks: [], images: now }) : answer;
    await answers(result, side, answer, intact.predictions);
    const lines = (of) => (chosen.length ? [{ name: "intact", kind: "before", ...of(intact) }, { name: "ablated", kind: "after", ...of(answer) }]
      : [{ name: "intact", kind: "after", ...of(intact) }]);
    charts.replaceChildren(
      chart(`Spectrum of ${answer.spectrum.block}: log amplitude relative to the mean`, "Frequency (π rad/pixel)", lines(({ spectrum }) => ({ x: spectrum.frequency, y: spectrum.relative }))),
      chart("High-frequency log amplitude after each block", "", lines(({ high }) => ({ x: high.depth, y: high.relative })), { names: answer.high.blocks }));
  });
  blocks.append(...side.info.blocks.map((block) => make("button", {
    type: "button", value: block.name, "aria-pressed": "false", disabled: !block.ablatable, title: `${block.kind}, stage ${block.stage}`,
    onclick: ({ currentTarget: button }) => { button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true"); run(); },
  }, block.name)), make("button", { type: "button", class: "tool", onclick: () => {
    for (const button of all("[aria-pressed]", blocks)) button.setAttribute("aria-pressed", "false");
    run();
  } }, "Restore all"));
  box.append(blocks, result, charts);
  return run;
};

views.receptive = (side, box) => {
  const grids = side.info.blocks.filter((block) => block.grid);
  if (!grids.length) {
    box.append(make("p", { class: "faint" }, "This model has no feature map on a grid."));
    return () => {};
  }
  const select = make("select", { "aria-label": `Block of ${side.info.name}`, onchange: () => run() }, ...grids.map((block) => make("option", {}, block.name)));
  select.value = grids[Math.floor(grids.length / 2)].name;
  const { box: image, show } = stage("receptive", side, "Image; arrow keys move the center of the receptive field", () => grids.find((block) => block.name === select.value).grid);
  const caption = make("p", { class: "faint", "aria-live": "polite" });
  box.append(select, image, caption);
  const run = busy(box, async () => {
    const { x, y } = points.receptive;
    const answer = await send(side, "receptive_field", { block: select.value, x, y });
    caption.textContent = `${answer.block}: row ${answer.position[0] + 1}, column ${answer.position[1] + 1} of ${answer.grid.join(" x ")}`;
    await show(answer, (value) => 1 + Math.log10(Math.max(value, 1e-3)) / 3);
  });
  return run;
};

const along = (name) => Number(find(`#landscape [name=${name}]`).value);
const drawCurves = () => {
  const drawn = sides.filter((side) => side.curve?.losses);
  const reasons = sides.filter((side) => side.curve?.reason).map((side) => make("p", { class: "faint" }, `${side.info.name}: ${side.curve.reason}`));
  const lines = drawn.map((side) => ({ name: `${side.info.name} (${side.curve.images} images)`, kind: side.kind, x: side.curve.distances, y: side.curve.losses }));
  find("#curves").replaceChildren(...(lines.length ? [chart("Mean loss (NLL in nats) ", "Distance t", lines, { at: along("distance") })] : []), ...reasons);
};
views.landscape = (side, box) => {
  box.append(answersBox());
  return busy(box, async () => {
    const direction = along("direction");
    await answers(find(".answers-of", box), side, await send(side, "landscape", { direction, distance: along("distance") }));
    if (side.curve?.direction !== direction) {
      side.curve = { direction, ...side.info.without_targets ? { reason: `no loss, for ${side.info.without_targets}` } : await live(side.subject, "loss_curve", { direction }) };
    }
    drawCurves();
  });
};

// Controls: sliders show their value, and what they change is asked for.
const UNITS = { frequency: " π rad/pixel" };
const showValues = () => {
  for (const input of all("#panels input[type=range]")) {
    find("output", input.parentElement).textContent = `${Number(input.value)}${UNITS[input.name] ?? ""}`;
  }
  const change = find("[name=change]").value;
  for (const label of all("[data-for]")) {
    label.hidden = label.dataset.for !== (["none", "frequency_noise"].includes(change) ? change : "corruption");
  }
};
for (const section of all("#panels section")) {
  for (const control of all("input, select", section)) {
    control.addEventListener("input", () => {
      showValues();
      if (control.name !== "opacity") update(section.id);
      else for (const canvas of all(".stage canvas", section)) canvas.style.opacity = control.value;
    });
  }
}
find("#class-query").addEventListener("click", () => { setQuery(state.query === "class" ? "patch" : "class"); update("attention"); });

// Images and models.
find("#look").addEventListener("click", ({ currentTarget }) => {
  currentTarget.href = `look?request=${encodeURIComponent(JSON.stringify({ subjects: sides.map((side) => side.subject), image: state.images[0] }))}`;
});
const SECTIONS = Object.keys(views);
const choose = (index) => {
  const chosen = state.images.includes(index) ? state.images.filter((other) => other !== index) : [...state.images, index].slice(-4);
  state.images = chosen.length ? chosen : [index];
  for (const button of all("#strip button")) button.setAttribute("aria-pressed", state.images.includes(Number(button.value)));
  update(...SECTIONS);
};
const strip = async (side) => {
  const number = Math.min(side.info.images, 16);
  for (let start = 0; start < number; start += 4) {
    const indices = [...Array(Math.min(4, number - start)).keys()].map((i) => start + i);
    const { pictures } = await live(side.subject, "images", { images: indices });
    find("#strip").append(...indices.map((index, i) => {
      side.pictures.set(index, Promise.resolve(pictures[i]));
      const label = side.info.labels?.[index];
      const name = `image ${index}${label ? `, ${label}` : ""}`;
      return make("button", { type: "button", value: index, title: name, "aria-pressed": String(state.images.includes(index)), onclick: () => choose(index) }, make("img", { src: pictures[i], alt: name }));
    }));
  }
};
const described = ({ info }) => [
  make("b", {}, info.name), `: ${info.parameters.toLocaleString("en-US")} parameters, ${info.blocks.length} blocks, images of ${info.size.join(" x ")} pixels, ${info.classes} classes`,
  ...(info.trained ? [] : [make("span", { class: "failed" }, ", random weights")])];
const load = guarded(async () => {
  const { elements } = find("#subject");
  const about = find("#about");
  requests.abort();
  const { signal } = requests = new AbortController();
  sides = [];
  find("#panels").hidden = true;
  find("#panels").removeAttribute("data-ready");
  for (const box of all(".sides, #strip, #curves")) box.replaceChildren();
  about.replaceChildren(make("p", {}, "Loading."));
  const subjects = [...elements.model].map((input, i) => ({
    model: { name: input.value.trim(), checkpoint: elements.checkpoint[i].value },
    data: elements.data.value,
    pretrained: elements.random_weights.checked ? false : null,
  })).filter(({ model }) => model.name || model.checkpoint);
  const loaded = await Promise.allSettled(subjects.map((subject) => live(subject, "model", {})));
  if (signal.aborted) return;
  sides = subjects.map((subject, i) => ({ subject, info: loaded[i].value, pictures: new Map(), kind: `side${i}`, updates: {} })).filter(({ info }) => info);
  about.replaceChildren(...loaded.map((one, i) => (one.value ? make("p", { class: "faint" }, ...described({ info: one.value }))
    : make("p", { class: "failed" }, `${subjects[i].model.name || subjects[i].model.checkpoint}: ${one.reason.message}`))));
  if (!sides.length) return;
  state.images = [0];
  setQuery("patch");
  find("#class-query").hidden = !sides.some((side) => side.info.class_token);
  await strip(sides[0]);
  for (const section of SECTIONS) {
    for (const side of sides) {
      const box = make("div", { class: `side ${side.kind}` }, make("h3", {}, side.info.name));
      side.updates[section] = views[section](side, box);
      find(`#${section} .sides`).append(box);
    }
  }
  find("#panels").hidden = false;
  update(...SECTIONS);
  find("#panels").dataset.ready = "yes";
});
find("#subject").addEventListener("submit", (event) => { event.preventDefault(); load(); });
const show = guarded(async (files) => {
  const [data, note] = await upload(files);
  addChoice(find("#subject").elements.data, data);
  await load();
  if (note) notice(note);
});
find("#images").addEventListener("change", ({ target }) => show(target.files));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const { files, items } = event.dataTransfer;
  if ([...items].some((item) => item.webkitGetAsEntry()?.isDirectory)) notice("Drop the images of a folder, not the folder.");
  else if (files.length) show(files);
});
guarded(async () => {
  const catalog = await ask("api/catalog");
  fill(catalog);
  for (const select of all("[name=checkpoint]")) select.append(...catalog.checkpoints.map((file) => make("option", {}, file)));
  find("[name=change]").append(...catalog.corruptions.map((name) => make("option", { value: name }, name.replaceAll("_", " "))));
  showValues();
  await load();
})();
