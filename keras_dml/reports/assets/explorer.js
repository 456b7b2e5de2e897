const data = JSON.parse(byId("data").textContent);
const list = byId("queries");
const explorable = new Set(data.queries);

const about = (row) => {
  const [className, file, source] = data.images[row];
  return { className, source, words: `${className}, ${file}` };
};

const image = (row, text) => {
  const made = element("img");
  made.src = about(row).source;
  made.alt = text;
  return made;
};

const picture = (row, text, part) => {
  const attends = part >= 0 && data.attention;
  const made = element("div", attends ? "picture gray" : "picture");
  made.append(image(row, text));
  if (attends) {
    made.append(overlay(atob(data.attention.maps[row][part]), data.attention));
  }
  return made;
};

const neighbor = ([row, cosine, right]) => {
  const { className, words } = about(row);
  const item = element("li", right ? "right" : "wrong");
  const inside = explorable.has(row) ? element("button") : item;
  if (inside !== item) {
    inside.type = "button";
    inside.addEventListener("click", () => select(row, true));
    item.append(inside);
  }
  inside.append(picture(row, `${right ? "right" : "wrong"}: ${words}`, -1),
    element("span", "mark", right ? "✓ " : "✗ "),
    element("span", "cosine", fixed(cosine, 3)), breakable(className));
  item.title = words;
  return item;
};

// One embedding: the query as that part sees it, and what it finds.
const results = (query, number) => {
  const made = element("div", "row");
  const { className } = about(query);
  const side = element("div", "query");
  const part = data.attention ? number - 1 : -1;
  const seen = part >= 0 ? ", with the attention of this part" : "";
  side.append(picture(query, `query: ${className}${seen}`, part),
    element("span", "name", part >= 0 ? "where it looks" : "query"));
  const items = element("ol");
  items.setAttribute("aria-label", data.embeddings[number]);
  items.append(...data.neighbors[query][number].map(neighbor));
  made.append(side, items);
  return made;
};

const count = (query, number) => {
  const neighbors = data.neighbors[query][number];
  const right = neighbors.filter(([, , isRight]) => isRight);
  return `${right.length} of ${neighbors.length} right`;
};

// A result under its heading, which stay together in columns.
const entry = (text, query, number) => {
  const made = element("div");
  made.append(element("h4", "", text), results(query, number));
  return made;
};

const show = (query) => {
  const { className, words } = about(query);
  const [full, ...parts] = data.embeddings.map((embedding, number) =>
    entry(`${embedding}: ${count(query, number)}`, query, number));
  const columns = element("div", "columns");
  columns.append(...parts);
  byId("found").replaceChildren(element("h3", "", words), full, columns);
  byId("status").textContent =
    `${className}: ${count(query, 0)} under the full embedding`;
};

const options = new Map();

const select = (row, focus) => {
  for (const [other, option] of options) {
    const chosen = other === row;
    option.setAttribute("aria-selected", String(chosen));
    option.tabIndex = chosen ? 0 : -1;
  }
  if (focus) options.get(row).focus();
  show(row);
};

const across = () =>
  getComputedStyle(list).gridTemplateColumns.split(" ").length;

const move = (event) => {
  const rows = [...options.keys()];
  const at = rows.findIndex((row) => options.get(row) === event.target);
  const steps = {
    ArrowRight: at + 1,
    ArrowLeft: at - 1,
    ArrowDown: at + across(),
    ArrowUp: at - across(),
    Home: 0,
    End: rows.length - 1,
  };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    select(rows[at], true);
  } else if (event.key in steps) {
    event.preventDefault();
    const to = Math.max(0, Math.min(rows.length - 1, steps[event.key]));
    for (const option of options.values()) option.tabIndex = -1;
    options.get(rows[to]).tabIndex = 0;
    options.get(rows[to]).focus();
  }
};

// Whether the image that is nearest to a query is of another class.
const isMissed = (query) => {
  const [nearest] = data.neighbors[query][0];
  return nearest !== undefined && !nearest[2];
};

for (const row of data.queries) {
  const { words } = about(row);
  const missed = isMissed(row);
  const option = element("div", missed ? "wrong" : "");
  option.setAttribute("role", "option");
  option.setAttribute(
    "aria-label", missed ? `${words}, nearest image wrong` : words);
  option.title = words;
  option.dataset.row = row;
  option.append(image(row, ""));
  option.addEventListener("click", () => select(row, true));
  options.set(row, option);
  list.append(option);
}
list.addEventListener("keydown", move);
// There is more to see where something is wrong.
const first = data.queries.find(isMissed) ?? data.queries[0];
if (first !== undefined) select(first, false);

for (const [kind, queries] of Object.entries(data.examples)) {
  byId(kind).append(...queries.map(([row, value]) =>
    entry(`${about(row).className}: ${data.metric} ${value.toFixed(2)}`,
      row, 0)));
}
