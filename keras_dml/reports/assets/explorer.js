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
    inside.addEventListener("click", () => select(row).focus());
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

// Whether the image that is nearest to a query is of another class.
const isMissed = (query) => {
  const [nearest] = data.neighbors[query][0];
  return nearest !== undefined && !nearest[2];
};

// Radio buttons: the browser moves among them by the arrow keys.
for (const row of data.queries) {
  const { words } = about(row);
  const missed = isMissed(row);
  const option = element("label", missed ? "wrong" : "");
  const choice = element("input", "unseen");
  choice.type = "radio";
  choice.name = "query";
  choice.value = row;
  choice.addEventListener("change", () => show(row));
  option.title = words;
  option.append(choice,
    image(row, missed ? `${words}, nearest image wrong` : words));
  list.append(option);
}

const select = (row) => {
  const choice = list.querySelector(`[value="${row}"]`);
  choice.checked = true;
  show(row);
  return choice;
};

// There is more to see where something is wrong.
const first = data.queries.find(isMissed) ?? data.queries[0];
if (first !== undefined) select(first);

for (const [kind, queries] of Object.entries(data.examples)) {
  byId(kind).append(...queries.map(([row, value]) =>
    entry(`${about(row).className}: ${data.metric} ${value.toFixed(2)}`,
      row, 0)));
}
