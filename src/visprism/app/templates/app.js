"use strict";
// The form of a new study.
const setUpForm = async (form) => {
  const catalog = await ask("api/catalog");
  fill(catalog);
  const models = find("#models");
  const addModel = (name = "") => {
    const row = make("p", { class: "row model" },
      make("label", {}, "Model ", make("input", { list: "model-names", value: name, placeholder: "resnet20, timm:resnet18, ...", autocomplete: "off", spellcheck: "false" })),
      make("label", {}, "Checkpoint ", make("select", {}, make("option", { value: "" }, "none"), ...catalog.checkpoints.map((file) => make("option", {}, file)))),
      make("button", { type: "button", class: "tool", "aria-label": "Remove this model", onclick: () => row.remove() }, "Remove"));
    models.append(row);
    return row;
  };
  addModel("resnet20.shapes");
  addModel("vit_pico_patch4_32.shapes");
  find("#add-model").addEventListener("click", () => find("input", addModel()).focus());

  const list = find("#analyses");
  let group = "";
  for (const analysis of catalog.analyses) {
    if (analysis.group !== group) list.append(make("h3", {}, (group = analysis.group)));
    const options = analysis.options.map((option) => {
      const shared = { "data-analysis": analysis.name, "data-option": option.name, "data-default": option.default };
      const values = option.type === "flag" ? ["True", "False"] : option.choices;
      const control = values
        ? make("select", shared, ...values.map((value) => make("option", { selected: value === option.default }, value)))
        : make("input", { ...shared, value: option.default, title: option.constraint });
      return make("label", { class: "option" }, `${option.name.replaceAll("_", " ")}: ${option.help}`, control);
    });
    list.append(make("div", { class: "one" },
      make("label", {}, make("input", { type: "checkbox", name: "analysis", value: analysis.name, checked: analysis.default, "data-default": analysis.default ? "yes" : "no" }), analysis.name),
      make("p", { title: analysis.source }, analysis.help),
      ...(options.length ? [make("details", {}, make("summary", {}, "Options"), ...options)] : [])));
  }
  const boxes = all("input[name=analysis]", form);
  const count = () => { find("#count").textContent = `${boxes.filter((box) => box.checked).length} of ${boxes.length}`; };
  form.addEventListener("change", count);
  for (const button of all("[data-select]")) {
    button.addEventListener("click", () => {
      for (const box of boxes) box.checked = button.dataset.select === "default" && box.dataset.default === "yes";
      count();
    });
  }
  count();

  const request = () => {
    const number = (name) => (form.elements[name].value === "" ? null : Number(form.elements[name].value));
    const chosen = boxes.filter((box) => box.checked).map((box) => box.value);
    const options = {};
    for (const control of all("[data-option]", form)) {
      const { analysis, option } = control.dataset;
      if (control.value !== control.dataset.default && chosen.includes(analysis)) (options[analysis] ??= {})[option] = control.value;
    }
    return {
      title: form.elements.title.value,
      models: all(".model", form).map((row) => ({ name: find("input", row).value.trim(), checkpoint: find("select", row).value })),
      data: form.elements.data.value,
      analyses: chosen,
      options,
      effort: form.elements.effort.value,
      minutes: number("minutes"),
      limit: number("limit"),
      seed: number("seed") ?? 0,
      pretrained: form.elements.random_weights.checked ? false : null,
    };
  };
  const planned = find("#planned");
  find("#plan").addEventListener("click", guarded(async () => {
    planned.replaceChildren(make("p", { class: "faint" }, "Loading and timing the models."));
    try {
      const plan = await ask("api/plan", request());
      planned.replaceChildren(make("h3", {}, `Plan: about ${Math.ceil(plan.seconds)} s`), make("pre", { tabindex: 0 }, plan.lines.join("\n")),
        ...(plan.skipped.length ? [make("details", {}, make("summary", {}, `${plan.skipped.length} not measured`), make("ul", {}, ...plan.skipped.map((line) => make("li", {}, line))))] : []));
    } catch (error) {
      planned.replaceChildren();
      throw error;
    }
  }));
  form.addEventListener("submit", guarded(async (event) => {
    event.preventDefault();
    const { name } = await ask("api/studies", request());
    location.href = `study/${encodeURIComponent(name)}`;
  }));
  find("#images").addEventListener("change", guarded(async ({ target }) => addChoice(form.elements.data, await upload(target))));
  find("#checkpoint").addEventListener("change", guarded(async ({ target }) => {
    const [file] = target.files;
    const { checkpoint } = await ask(`api/checkpoints/${encodeURIComponent(file.name)}`, file, "application/octet-stream");
    target.value = "";
    catalog.checkpoints.push(checkpoint);
    for (const select of all(".model select")) select.append(make("option", {}, checkpoint));
    find("select", [...all(".model")].at(-1)).value = checkpoint;
  }));
  form.dataset.ready = "yes";
};
const follow = async (list) => {
  for (;;) {
    await pause(3000);
    const studies = await ask("api/studies").catch(() => null);
    if (!studies) continue;
    if (!studies.length) continue;
    list.replaceChildren(...studies.map((study) => make("li", {},
      make("a", { href: `study/${encodeURIComponent(study.name)}` }, study.title), " ", make("span", { class: `state ${study.state}` }, study.state), ...(study.reason ? [" ", make("span", { class: "failed" }, study.reason)] : []))));
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
    if (frame.hidden) await load(`${encoded}/report?figures=no`);
    const drawn = await fetch(`${encoded}/report?results=${number}`);
    if (drawn.ok) await load(`${encoded}/report?results=${number}`);
    find("#drawing").hidden = true;
  });
  const show = (state) => {
    const active = ["waiting", "running"].includes(state.state);
    const badge = find("#state");
    badge.textContent = state.state;
    badge.className = `state ${state.state}`;
    find("#cancel").hidden = !active;
    find("#resume").hidden = active || ["complete", "unreadable"].includes(state.state) || box.dataset.resumable !== "yes";
    find("#reason").hidden = !state.reason;
    find("#reason").textContent = state.reason;
    find("#progress").hidden = !active;
    const { started, progress } = state;
    find("#doing").textContent = state.state === "waiting" ? "Waiting for another study to end."
      : started ? `${started.analyses.join(", ")} of ${started.model}, ${started.images} images` : "Loading and timing the models.";
    const bar = find("#bar");
    if (progress?.total) { bar.max = progress.total; bar.value = progress.done; } else bar.removeAttribute("value");
    find("#plan-lines").hidden = !state.plan.length;
    find("#plan-lines pre").textContent = state.plan.join("\n");
    find("#finished").hidden = !state.finished.length && !state.failures.length;
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
      if (!["waiting", "running"].includes(state.state)) source.close();
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
