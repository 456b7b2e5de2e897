// Elements of the page, found and made. Text is always text, never HTML.

export const byId = (id) => document.getElementById(id);

export const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

// With a sign as on the axes of figures.
export const fixed = (number, digits = 4) =>
  number.toFixed(digits).replace("-", "\u2212");

export const plural = (count, noun) =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
