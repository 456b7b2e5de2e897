// The page: from a picture to what is found for it.

import { byId, element, plural } from "./elements.js";
import { fileName, showExamples, showResults } from "./results.js";
import { NeedsToken, ask, forgetToken, keepToken } from "./server.js";

const NARROW = matchMedia("(max-width: 900px)");

let about = null;
let picture = null; // The file that is searched for.
let preview = null; // Its address.
let running = null; // The request that has not been answered.
let leftOut = null; // A row that is not to be found.

const say = (text) => {
  byId("status").textContent = text;
};

const complain = (text) => {
  byId("error").textContent = text;
  byId("error").hidden = !text;
  if (text) say("");
};

const askForToken = (isWrong) => {
  forgetToken();
  byId("served").textContent = "";
  byId("layout").hidden = true;
  byId("token-form").hidden = false;
  byId("token").focus();
  byId("token").setCustomValidity("");
  if (isWrong) {
    byId("token").setCustomValidity("The server does not know this token.");
    byId("token").reportValidity();
  }
};

const showAbout = () => {
  const { model, gallery, k } = about;
  byId("served").textContent = [
    model,
    gallery ? `gallery of ${plural(gallery.rows, "image")}` : "no gallery",
  ].join(" · ");
  byId("options").hidden = !gallery;
  byId("k").max = k.max;
  byId("k").value ||= k.default;
  setColumns();
};

const option = (value, text) => {
  const item = element("option", "", text);
  item.value = value;
  return item;
};

const chosenColumn = () =>
  about.gallery?.columns.find(({ name }) => name === byId("column").value);

// Offers the values of the column that is chosen.
const setValues = () => {
  const column = chosenColumn();
  byId("value-field").hidden = !column;
  byId("value").value = "";
  const values = column?.kind === "boolean" ? ["true", "false"]
    : column?.values ?? [];
  byId("values").replaceChildren(...values.map((value) => option(value)));
};

const setColumns = () => {
  const before = byId("column").value;
  const names = (about.gallery?.columns ?? []).map(({ name }) => name);
  byId("column").replaceChildren(option("", "any"),
    ...names.map((name) => option(name, name)));
  byId("column").value = names.includes(before) ? before : "";
  if (byId("column").value !== before || !before) setValues();
};

// The rows to search among, as `Index.search` takes them.
const condition = () => {
  const column = chosenColumn();
  const text = byId("value").value.trim();
  if (!column || !text) return null;
  const values = { text, number: Number(text), boolean: text === "true" };
  return { [column.name]: values[column.kind] };
};

const load = async (isRetry = false) => {
  try {
    about = await (await ask("page/about")).json();
  } catch (error) {
    if (error instanceof NeedsToken) {
      askForToken(isRetry);
      return;
    }
    byId("served").textContent = "";
    complain(error.message);
    return;
  } finally {
    byId("served").classList.remove("loading");
    byId("layout").inert = false;
  }
  byId("token-form").hidden = true;
  byId("layout").hidden = false;
  showAbout();
  if (!picture && !about.refusal) {
    // A picture of the gallery is to find others, not itself.
    showExamples(about.gallery?.examples ?? [], (row, content) =>
      choose(new File([content], fileName(row)), row));
  }
  if (about.refusal) {
    byId("layout").classList.add("without-pictures");
    byId("empty").hidden = true;
    complain(about.refusal);
  }
  if (isRetry) byId("file").focus();
};

const showPreview = (file) => {
  if (preview) URL.revokeObjectURL(preview);
  preview = URL.createObjectURL(file);
  const image = byId("chosen");
  image.alt = `Your picture: ${file.name}`;
  image.src = preview;
  image.hidden = false;
  byId("drop-hint").hidden = true;
};

const searchQuery = () => {
  const query = new URLSearchParams({ k: byId("k").value });
  const where = condition();
  if (where) query.set("where", JSON.stringify(where));
  if (leftOut !== null) query.set("exclude", JSON.stringify(leftOut.key));
  return query;
};

const fetchAnswer = async (query, signal) => {
  const answer = await ask(`search?${query}`, {
    method: "POST",
    body: picture,
    headers: { "Content-Type": "application/octet-stream" },
    signal,
  }, (seconds) => say(`The server is busy. Trying again in ${
    plural(seconds, "second")}.`));
  const found = await answer.json();
  // The gallery may have been replaced.
  if (found.version !== about.version) {
    about = await (await ask("page/about", { signal })).json();
    showAbout();
  }
  return found;
};

const search = async () => {
  if (!picture || !about || about.refusal) return;
  running?.abort();
  const own = new AbortController();
  running = own;
  complain("");
  say("Searching…");
  byId("results").setAttribute("aria-busy", "true");
  try {
    const answer = await fetchAnswer(searchQuery(), own.signal);
    if (running !== own) return;
    say(showResults(about, answer, leaveOut));
    // On a phone they are below the options, where nobody would see them.
    if (NARROW.matches) byId("results").scrollIntoView();
    if (byId("chosen").hidden) byId("chosen").src = answer.seen;
    byId("chosen").hidden = false;
    byId("drop-hint").hidden = true;
  } catch (error) {
    if (running !== own || error.name === "AbortError") return;
    byId("found").hidden = true;
    if (error instanceof NeedsToken) askForToken(true);
    else complain(error.message);
  } finally {
    if (running === own) {
      running = null;
      byId("results").removeAttribute("aria-busy");
    }
  }
};

const setLeftOut = (row) => {
  leftOut = row;
  byId("left-out").hidden = row === null;
  byId("left-out-name").textContent = row && `Left out: ${fileName(row)}`;
};

const leaveOut = (row) => {
  setLeftOut(row);
  byId(row === null ? "again" : "take-back").focus();
  search();
};

// `row` is the row of the gallery whose picture this is, if any.
const choose = (file, row = null) => {
  if (!about || about.refusal) return;
  if (file.size > about.max_body) {
    complain(`${file.name} has ${plural(file.size, "byte")}; the server takes `
      + `at most ${plural(about.max_body, "byte")}.`);
    return;
  }
  setLeftOut(row);
  picture = file;
  showPreview(file);
  search();
};

const chooseFirst = (files, source) => {
  if (files.length) choose(files[0]);
  else complain(`There is no picture in what was ${source}. Use the file `
    + "itself.");
};

byId("file").addEventListener("change", ({ target }) => {
  if (target.files.length) choose(target.files[0]);
  target.value = ""; // So that the same file can be chosen again.
});
byId("chosen").addEventListener("error", () => {
  // Formats that the browser does not show, the server may read.
  byId("chosen").hidden = true;
  byId("drop-hint").hidden = false;
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) event.preventDefault();
  else if (event.target.closest("input")) return;
  chooseFirst(event.clipboardData.files, "pasted");
});
const drop = byId("drop");
drop.addEventListener("click", () => byId("file").click());
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) drop.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  chooseFirst(event.dataTransfer.files, "dropped");
});

byId("column").addEventListener("change", setValues);
byId("search-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (picture) search();
  else complain("Choose a picture first.");
});
byId("take-back").addEventListener("click", () => leaveOut(null));
byId("token").addEventListener("input", ({ target }) =>
  target.setCustomValidity(""));
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken(byId("token").value);
  byId("token").value = "";
  load(true);
});

load();
