"use strict";
const root = document.body.dataset.root;
const find = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
// An element with attributes and children; texts are never read as HTML.
const make = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};
let noticeTimer = 0;
const notice = (text) => {
  const box = find("#notice");
  box.textContent = text;
  box.hidden = !text;
  clearTimeout(noticeTimer);
  if (text) noticeTimer = setTimeout(() => notice(""), 12000);
};
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
// Ask the server; one that starts again, or is busy, is asked again.
const ask = async (path, body, type = "application/json", signal = undefined) => {
  const options = body === undefined ? { signal } : {
    signal,
    method: "POST",
    headers: { "content-type": type },
    body: type === "application/json" ? JSON.stringify(body) : body,
  };
  for (let attempt = 0; ; attempt += 1) {
    let response;
    try {
      response = await fetch(`${root}/${path}`, options);
    } catch (error) {
      if (signal?.aborted) throw error; // the reader moved on
      if (attempt >= 5) throw new Error("The server does not answer. Is it running?");
      await pause(1000);
      continue;
    }
    if (response.status === 503 && attempt < 20) {
      await pause(1000 * (response.headers.get("retry-after") ?? 3));
      continue;
    }
    const answer = await response.json().catch(() => ({ error: response.statusText }));
    if (!response.ok) throw new Error(answer.error);
    return answer;
  }
};
const guarded = (action) => async (...given) => {
  try {
    notice("");
    return await action(...given);
  } catch (error) {
    if (error.name !== "AbortError") notice(error.message);
    return undefined;
  }
};
// Calls one at a time; of those that come meanwhile only the last is made.
const latest = (action) => {
  let next = null;
  let busy = false;
  return async (...given) => {
    next = given;
    if (busy) return;
    busy = true;
    while (next) {
      const now = next;
      next = null;
      await guarded(action)(...now);
    }
    busy = false;
  };
};
const upload = async (files) => {
  const set = `images-${new Date().toISOString().slice(0, 19).replace(/\D/g, "")}`;
  const refused = [];
  let answer;
  for (const [index, file] of [...files].entries()) {
    notice(`Uploading image ${index + 1} of ${files.length}`);
    // The number tells names apart that are the same as file names: 犬.jpg, 猫.jpg.
    const path = `api/images/${set}/${index + 1}-${encodeURIComponent(file.name)}`;
    try { answer = await ask(path, file, "application/octet-stream"); } catch (error) { refused.push(error.message); }
  }
  if (!answer) throw new Error(refused[0]);
  notice("");
  return [answer.data, refused.length ? `${refused.length} of ${files.length} files are left out: ${refused[0]}` : ""];
};
const addChoice = (select, value) => {
  if (![...select.options].some((option) => option.value === value)) select.append(make("option", {}, value));
  select.value = value;
};
const fill = (catalog) => {
  const { trained, zoo, timm, torchvision } = catalog.models;
  find("#model-names").replaceChildren(...[...trained, ...zoo, ...timm, ...torchvision].map((value) => make("option", { value })));
  for (const select of all("select[name=data]")) select.replaceChildren(...catalog.data.map((name) => make("option", {}, name)));
};
