// What pages have in common. Text is always text, never HTML.

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

// A name whose lines may end after a sign, but not within a word.
export const breakable = (text) => {
  const made = element("span", "name");
  for (const part of text.split(/(?<=[_\-./])/)) {
    made.append(part, element("wbr"));
  }
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

// A map of attention, bytes, to lie on a gray picture: bright where it is
// strong.
export const overlay = (levels, { width, height }) => {
  const canvas = element("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  for (let i = 0; i < levels.length; i += 1) {
    pixels.data.set([...color(levels.charCodeAt(i)), 0.6 * 255], 4 * i);
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
};
