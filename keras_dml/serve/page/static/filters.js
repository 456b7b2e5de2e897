// Filters: conditions by column, as `Index.search` takes them.

import { byId, element } from "./elements.js";

const SIGNS = {
  text: [["==", "is"], ["!=", "is not"]],
  number: [["==", "="], ["!=", "≠"], ["<", "<"], ["<=", "≤"], [">", ">"],
    [">=", "≥"]],
  boolean: [["==", "is"]],
};

const list = byId("filter-list");
let columns = [];
let made = 0;

const labeled = (control, label) => {
  control.setAttribute("aria-label", label);
  return control;
};

const option = (value, text) => {
  const one = element("option", "", text);
  one.value = value;
  return one;
};

const select = (label, options) => {
  const control = labeled(element("select"), label);
  control.append(...options.map(([value, text]) => option(value, text)));
  return control;
};

// What a value is typed into, or chosen from.
const valueControl = ({ name, kind, values }) => {
  const label = `Value of ${name}`;
  if (kind === "boolean") {
    return [select(label, [["true", "true"], ["false", "false"]])];
  }
  const input = labeled(element("input"), label);
  input.type = kind === "number" ? "number" : "text";
  if (kind === "number") input.step = "any";
  if (!values.length) return [input];
  const suggestions = element("datalist");
  made += 1;
  suggestions.id = `values-${made}`;
  suggestions.append(...values.map((value) => option(value, value)));
  input.setAttribute("list", suggestions.id);
  return [input, suggestions];
};

const addFilter = () => {
  const item = element("li", "filter");
  const column = select("Column",
    columns.map(({ name }) => [name, name]));
  const rest = element("span", "comparison");
  const fill = () => {
    const chosen = columns.find(({ name }) => name === column.value);
    rest.replaceChildren(select("Comparison", SIGNS[chosen.kind]),
      ...valueControl(chosen));
  };
  const remove = labeled(element("button", "remove", "×"), "Remove the filter");
  remove.type = "button";
  remove.addEventListener("click", () => {
    item.remove();
    byId("add-filter").focus();
  });
  column.addEventListener("change", fill);
  fill();
  item.append(column, rest, remove);
  list.append(item);
  column.focus();
};

export const setUpFilters = () =>
  byId("add-filter").addEventListener("click", addFilter);

// Filters of columns that are no longer there are taken away.
export const setColumns = (known) => {
  columns = known;
  const names = new Set(known.map(({ name }) => name));
  for (const item of [...list.children]) {
    if (!names.has(item.querySelector("select").value)) item.remove();
  }
  byId("filters").hidden = !known.length;
};

const typed = (text, kind) => {
  if (kind === "text") return text;
  return kind === "number" ? Number(text) : text === "true";
};

// Of several values of a column by "is" any will do; all else must be true.
export const conditions = () => {
  const where = {};
  for (const item of list.children) {
    const [column, sign] = item.querySelectorAll("select");
    const control = item.querySelector(".comparison > :nth-child(2)");
    const { kind } = columns.find(({ name }) => name === column.value);
    if (!control.value.trim()) continue; // It is not yet filled in.
    const value = typed(control.value, kind);
    const own = Object.hasOwn(where, column.value) ? where[column.value] : {};
    where[column.value] = own;
    if (sign.value === "==" || sign.value === "!=") {
      own[sign.value] = [...(own[sign.value] ?? []), value];
    } else if (sign.value in own) {
      throw new Error(`${column.value} has two filters by ${sign.value}. `
        + "Remove one.");
    } else {
      own[sign.value] = value;
    }
  }
  return Object.keys(where).length ? where : null;
};
