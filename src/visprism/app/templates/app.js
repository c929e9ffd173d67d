"use strict";
// The form of a new study.
const setUpForm = async (form) => {
  const catalog = await ask("api/catalog");
  fill(catalog);
  const models = find("#models");
  const addModel = (name = "") => {
    const row = make("p", { class: "model" },
      make("input", { list: "model-names", value: name, "aria-label": "Model", placeholder: "resnet20, timm:resnet18, ...", autocomplete: "off", spellcheck: "false" }),
      make("select", { "aria-label": "Checkpoint", hidden: !catalog.checkpoints.length }, make("option", { value: "" }, "no checkpoint"), ...catalog.checkpoints.map((file) => make("option", {}, file))),
      make("button", { type: "button", class: "tool", "aria-label": "Remove this model", onclick: () => row.remove() }, "\u00d7"));
    models.append(row);
    return row;
  };
  addModel("resnet20.shapes");
  addModel("vit_pico_patch4_32.shapes");
  find("#add-model").addEventListener("click", () => find("input", addModel()).focus());

  const list = find("#analyses");
  const controls = []; // of options, with their values by effort
  let group = "";
  for (const analysis of catalog.analyses) {
    if (analysis.group !== group) list.append(make("h2", {}, (group = analysis.group)));
    const options = analysis.options.map((option) => {
      const shared = { "data-analysis": analysis.name, "data-option": option.name };
      const values = option.type === "flag" ? ["True", "False"] : option.choices;
      const control = values
        ? make("select", shared, ...values.map((value) => make("option", {}, value)))
        : make("input", { ...shared, title: option.constraint });
      control.dataset.default = control.value;
      controls.push([control, option.defaults]);
      return make("label", { class: "option" }, `${option.name.replaceAll("_", " ")}: ${option.help}`, control);
    });
    list.append(make("div", { class: "one" },
      make("label", {}, make("input", { type: "checkbox", name: "analysis", value: analysis.name }), analysis.name),
      make("p", { title: analysis.source }, analysis.help),
      ...(options.length ? [make("details", {}, make("summary", {}, "Options"), ...options)] : [])));
  }
  const boxes = all("input[name=analysis]", form);
  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.value);
  const tell = () => { find("#chosen").textContent = `${chosen().length} of ${boxes.length} analyses: ${chosen().join(", ")}`; };
  const choosePreset = () => {
    const names = catalog.presets[form.elements.preset.value];
    for (const box of boxes) box.checked = names.includes(box.value);
    tell();
  };
  for (const radio of all("[name=preset]")) radio.addEventListener("change", choosePreset);
  list.addEventListener("change", ({ target }) => {
    if (target.name === "analysis") for (const radio of all("[name=preset]")) radio.checked = false;
    tell();
  });
  choosePreset();
  const chooseEffort = () => {
    for (const [control, defaults] of controls) {
      const changed = control.value !== control.dataset.default;
      control.dataset.default = defaults[form.elements.effort.value];
      if (!changed) control.value = control.dataset.default;
    }
  };
  form.elements.effort.addEventListener("change", chooseEffort);
  chooseEffort();

  const request = () => {
    const number = (name) => (form.elements[name].value === "" ? null : Number(form.elements[name].value));
    const analyses = chosen();
    const options = {};
    for (const [control] of controls) {
      const { analysis, option } = control.dataset;
      if (control.value !== control.dataset.default && analyses.includes(analysis)) (options[analysis] ??= {})[option] = control.value;
    }
    return {
      title: form.elements.title.value,
      models: all(".model", form).map((row) => ({ name: find("input", row).value.trim(), checkpoint: find("select", row).value })),
      data: form.elements.data.value,
      analyses,
      options,
      effort: form.elements.effort.value,
      minutes: number("minutes"),
      limit: number("limit"),
      seed: number("seed") ?? 0,
      pretrained: form.elements.random_weights.checked ? false : null,
    };
  };
  form.addEventListener("submit", guarded(async (event) => {
    event.preventDefault();
    const { name } = await ask("api/studies", request());
    location.href = `study/${encodeURIComponent(name)}`;
  }));
  find("#images").addEventListener("change", guarded(async ({ target }) => {
    const [data, note] = await upload(target.files);
    addChoice(form.elements.data, data);
    notice(note);
  }));
  find("#checkpoint").addEventListener("change", guarded(async ({ target }) => {
    const [file] = target.files;
    const { checkpoint } = await ask(`api/checkpoints/${encodeURIComponent(file.name)}`, file, "application/octet-stream");
    target.value = "";
    catalog.checkpoints.push(checkpoint);
    for (const select of all(".model select")) { select.append(make("option", {}, checkpoint)); select.hidden = false; }
    find("select", [...all(".model")].at(-1)).value = checkpoint;
  }));
  find("[type=submit]", form).disabled = false;
  form.dataset.ready = "yes";
};

// The list of studies: an entry is made again when its study has changed.
const numbers = (summary) => {
  const models = summary.models.slice(0, 3);
  const more = summary.models.length - models.length;
  return make("table", { class: "headline" },
    make("thead", {}, make("tr", {}, make("td", {}), ...models.map((name) => make("th", { scope: "col" }, name)), ...(more ? [make("th", { scope: "col" }, `${more} more`)] : []))),
    make("tbody", {}, ...summary.lines.slice(0, 3).map((line) => make("tr", {}, make("th", { scope: "row" }, line.label),
      ...models.map((name) => make("td", { class: line.better === name ? "better" : null }, line.cells[name] ?? "\u2013")), ...(more ? [make("td", {})] : [])))));
};
const visible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) {
      visible.unobserve(target);
      target.summarize();
    }
  }
});
const entry = (study) => {
  const address = `study/${encodeURIComponent(study.name)}`;
  const what = make("div", {},
    make("div", { class: "row" }, make("input", { type: "checkbox", value: study.name, disabled: !study.results, "aria-label": `compare ${study.title}` }),
      make("a", { href: address }, study.title), make("span", { class: `state ${study.state}` }, study.state), make("span", { class: "faint" }, study.date)),
    ...(study.reason ? [make("p", { class: "failed" }, study.reason)] : []));
  const item = make("li", {}, what);
  if (study.results && !["waiting", "running"].includes(study.state)) {
    item.summarize = () => ask(`api/studies/${encodeURIComponent(study.name)}/summary`).then((summary) => what.append(numbers(summary)), () => {});
    visible.observe(item);
  } else if (study.models) what.append(make("p", { class: "faint" }, study.models));
  return item;
};
const follow = async (list) => {
  const shown = new Map();
  const compare = find("#compare");
  const checked = () => all("input:checked", list).map((box) => box.value);
  list.addEventListener("change", () => { compare.disabled = checked().length !== 2; });
  compare.addEventListener("click", () => { location.href = `compare?${new URLSearchParams(checked().map((name) => ["study", name]))}`; });
  for (;;) {
    const studies = await ask("api/studies").catch(() => null);
    for (const study of studies ?? []) {
      const text = JSON.stringify(study);
      if (shown.get(study.name)?.text !== text) shown.set(study.name, { text, item: entry(study) });
    }
    const items = studies?.map((study) => shown.get(study.name).item) ?? [];
    if (studies && items.some((item, i) => list.children[i] !== item)) list.replaceChildren(...items);
    find("#none").hidden = !studies || items.length > 0;
    await pause(3000);
  }
};

// The vertical position in a frame, which is set if it is given. A frame that shows an error page
// of the browser, as when the server has ended, has another origin and cannot be read.
const scrollTop = (frame, top = null) => {
  try {
    if (top !== null) frame.contentWindow.scrollTo(0, top);
    return frame.contentWindow?.scrollY ?? 0;
  } catch {
    return 0;
  }
};

// One study: its events, and its report as results come.
const setUpStudy = (box) => {
  const { name } = box.dataset;
  const encoded = encodeURIComponent(name);
  const frame = find("#report");
  let measured = -1;
  const load = (address) => new Promise((done) => {
    const top = scrollTop(frame);
    frame.addEventListener("load", () => { scrollTop(frame, top); done(); }, { once: true });
    frame.src = address;
    frame.hidden = false;
  });
  const refresh = latest(async (number) => {
    find("#drawing").hidden = false;
    const first = frame.hidden;
    if (first) await load(`${encoded}/report?figures=no`);
    let drawn;
    while ((drawn = await fetch(`${encoded}/report?results=${number}`)).status === 503) await pause(3000);
    const complete = first && drawn.headers.get("x-page") === "stored"; // with figures at once
    if (drawn.ok && !complete) await load(`${encoded}/report?results=${number}`);
    find("#drawing").hidden = true;
  });
  const show = (state) => {
    const active = ["waiting", "running"].includes(state.state);
    const badge = find("#state");
    badge.textContent = state.state === "watched" ? state.finished.at(-1).analysis : state.state;
    badge.className = `state ${state.state}`;
    find("#cancel").hidden = !active;
    find("#resume").hidden = active || ["complete", "unreadable"].includes(state.state) || box.dataset.resumable !== "yes";
    find("#reason").hidden = !state.reason;
    find("#reason").textContent = state.reason;
    find("#progress").hidden = !active;
    find("#exports").hidden = !state.finished.length;
    const { started, progress } = state;
    find("#doing").textContent = state.state === "waiting" ? "Waiting for another study to end."
      : started ? `${started.analyses.join(", ")} of ${started.model}, ${started.images} images` : "Loading and timing the models.";
    const bar = find("#bar");
    if (progress?.total) { bar.max = progress.total; bar.value = progress.done; } else bar.removeAttribute("value");
    find("#plan-lines").hidden = !state.plan.length;
    find("#plan-lines pre").textContent = state.plan.join("\n");
    find("#finished").hidden = state.state === "watched" || (!state.finished.length && !state.failures.length);
    find("#finished summary").textContent = `${state.finished.length} measured, ${state.failures.length} not measured`;
    find("#finished ul").replaceChildren(
      ...state.finished.map((entry) => make("li", {}, `${entry.analysis} of ${(entry.models ?? []).join(" and ")}: ${entry.seconds?.toFixed(1)} s${entry.resumed ? ", stored before" : ""}`)),
      ...state.failures.map((failure) => make("li", { class: "faint" }, `${failure.analysis} of ${failure.model}: ${failure.kind}, ${failure.reason}`)));
    const number = state.finished.length + (active ? 0 : 0.5);
    if (state.finished.length && number !== measured) { measured = number; refresh(number); }
  };
  let source;
  const listen = () => {
    source?.close();
    source = new EventSource(`../api/studies/${encoded}/events`);
    source.onmessage = (event) => {
      const state = JSON.parse(event.data);
      show(state);
      if (!state.followed && !["waiting", "running"].includes(state.state)) source.close();
    };
  };
  for (const action of ["cancel", "resume"]) {
    find(`#${action}`).addEventListener("click", guarded(async ({ currentTarget: button }) => {
      button.disabled = true;
      try { show(await ask(`api/studies/${encoded}/${action}`, {})); } finally { button.disabled = false; }
      listen();
    }));
  }
  listen();
};

if (find("#new")) guarded(setUpForm)(find("#new"));
if (find("#studies")) follow(find("#studies"));
if (find("#study")) setUpStudy(find("#study"));
