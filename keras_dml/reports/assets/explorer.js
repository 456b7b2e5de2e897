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

  // Attention as a veil: what is not attended to is dark.
  const veil = (row, part) => {
    const { height, width, maps } = data.attention;
    const canvas = element("canvas");
    canvas.width = width;
    canvas.height = height;
    canvas.setAttribute("aria-hidden", "true");
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(width, height);
    const levels = atob(maps[row][part]);
    for (let i = 0; i < levels.length; i += 1) {
      const alpha = 0.8 * (255 - levels.charCodeAt(i));
      pixels.data.set([0, 0, 0, alpha], 4 * i);
    }
    context.putImageData(pixels, 0, 0);
    return canvas;
  };

  const picture = (row, text, part) => {
    const made = element("div", "picture");
    made.append(image(row, text));
    if (part >= 0 && data.attention) made.append(veil(row, part));
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
    const below = element("span", "cosine", cosine.toFixed(2));
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

  const show = (query) => {
    const { className, name } = about(query);
    found.replaceChildren(element("h3", "", `${className}, ${name}`));
    data.embeddings.forEach((embedding, number) => {
      found.append(
        element("h4", "", `${embedding}: ${count(query, number)}`),
        results(query, number));
    });
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

  const columns = () =>
    getComputedStyle(list).gridTemplateColumns.split(" ").length;

  const move = (event) => {
    const rows = [...options.keys()];
    const at = rows.findIndex((row) => options.get(row) === event.target);
    const steps = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + columns(),
      ArrowUp: at - columns(),
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

  for (const row of data.queries) {
    const { className, name } = about(row);
    const option = element("div");
    option.setAttribute("role", "option");
    option.setAttribute("aria-label", `${className}, ${name}`);
    option.title = `${className}, ${name}`;
    option.dataset.row = row;
    option.append(image(row, ""));
    option.addEventListener("click", () => select(row, true));
    options.set(row, option);
    list.append(option);
  }
  list.addEventListener("keydown", move);
  if (data.queries.length) select(data.queries[0], false);

  const worst = document.getElementById("worst-list");
  data.worst.rows.forEach((row, i) => {
    const { className, name } = about(row);
    const value = data.worst.values[i].toFixed(4);
    worst.append(
      element("h3", "", `${className}, ${name}: ${data.worst.metric} ${value}`),
      results(row, 0));
  });
})();
