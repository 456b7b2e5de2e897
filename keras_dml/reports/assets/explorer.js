"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const list = document.getElementById("queries");
  const found = document.getElementById("found");
  const status = document.getElementById("status");
  const explorable = new Set(data.queries);

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const about = (row) => {
    const [className, name] = data.images[row];
    return { className, name, source: data.images[row][2] };
  };

  const image = (row, text) => {
    const made = element("img");
    made.src = about(row).source;
    made.alt = text;
    return made;
  };

  // The colors of the figures, "magma" of matplotlib, from dark to bright.
  const COLORS = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97],
    [252, 253, 191]];

  const color = (level) => {
    const place = level / 255 * (COLORS.length - 1);
    const below = Math.min(Math.floor(place), COLORS.length - 2);
    return COLORS[below].map((low, channel) =>
      low + (place - below) * (COLORS[below + 1][channel] - low));
  };

  // Attention on the gray image: bright where it is strong.
  const overlay = (row, part) => {
    const { height, width, maps } = data.attention;
    const canvas = element("canvas");
    canvas.width = width;
    canvas.height = height;
    canvas.setAttribute("aria-hidden", "true");
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(width, height);
    const levels = atob(maps[row][part]);
    for (let i = 0; i < levels.length; i += 1) {
      pixels.data.set([...color(levels.charCodeAt(i)), 0.6 * 255], 4 * i);
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  };

  // With a sign as on the axes of figures.
  const thousandths = (number) => number.toFixed(3).replace("-", "\u2212");

  const picture = (row, text, part) => {
    const attends = part >= 0 && data.attention;
    const made = element("div", attends ? "picture gray" : "picture");
    made.append(image(row, text));
    if (attends) made.append(overlay(row, part));
    return made;
  };

  const neighbor = ([row, cosine, right]) => {
    const { className, name } = about(row);
    const item = element("li", right ? "right" : "wrong");
    const words = `${right ? "right" : "wrong"}: ${className}, ${name}`;
    const inside = explorable.has(row) ? element("button") : item;
    if (inside !== item) {
      inside.type = "button";
      inside.title = "Explore this image";
      inside.addEventListener("click", () => select(row, true));
      item.append(inside);
    }
    const mark = element("span", "mark", right ? "✓ " : "✗ ");
    const below = element("span", "cosine", thousandths(cosine));
    inside.append(picture(row, words, -1), mark, below,
      element("span", "name", className));
    item.title = `${className}, ${name}`;
    return item;
  };

  // One embedding: the query as that part sees it, and what it finds.
  const results = (query, number) => {
    const made = element("div", "row");
    const { className } = about(query);
    const side = element("div", "query");
    const part = data.attention ? number - 1 : -1;
    const words = part >= 0
      ? `query: ${className}, with the attention of this part`
      : `query: ${className}`;
    const below = part >= 0 ? "where it looks" : "query";
    side.append(picture(query, words, part), element("span", "name", below));
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
  const entry = (kind, text, query, number) => {
    const made = element("div");
    made.append(element(kind, "", text), results(query, number));
    return made;
  };

  const show = (query) => {
    const { className, name } = about(query);
    const [full, ...parts] = data.embeddings.map((embedding, number) =>
      entry("h4", `${embedding}: ${count(query, number)}`, query, number));
    const columns = element("div", "columns");
    columns.append(...parts);
    found.replaceChildren(
      element("h3", "", `${className}, ${name}`), full, columns);
    status.textContent =
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
    const { className, name } = about(row);
    const words = `${className}, ${name}`;
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

  const worst = document.getElementById("worst-list");
  data.worst.rows.forEach((row, i) => {
    const { className, name } = about(row);
    const value = data.worst.values[i].toFixed(4);
    const text = `${className}, ${name}: ${data.worst.metric} ${value}`;
    worst.append(entry("h3", text, row, 0));
  });
})();
