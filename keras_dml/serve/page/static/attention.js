// Attention maps over the picture, as in reports.

import { element } from "./elements.js";

// The colors of the figures, "magma" of matplotlib, from dark to bright.
const COLORS = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97],
  [252, 253, 191]];

const color = (level) => {
  const place = level / 255 * (COLORS.length - 1);
  const below = Math.min(Math.floor(place), COLORS.length - 2);
  return COLORS[below].map((low, channel) =>
    low + (place - below) * (COLORS[below + 1][channel] - low));
};

const third = (place, size, names) =>
  names[Math.min(2, Math.floor(3 * (place + 0.5) / size))];

// In words, for those who do not see it: "at the upper left".
const strongest = (levels, { width, height }) => {
  let best = 0;
  for (let i = 1; i < levels.length; i += 1) {
    if (levels.charCodeAt(i) > levels.charCodeAt(best)) best = i;
  }
  const vertical = third(Math.floor(best / width), height,
    ["upper", "", "lower"]);
  const horizontal = third(best % width, width, ["left", "", "right"]);
  const place = [vertical, horizontal].filter(Boolean).join(" ");
  if (!place) return "in the middle";
  return `at the ${place}${vertical && horizontal ? "" : " edge"}`;
};

// The picture in gray, as the model sees it; on it one of the maps.
export const overlaid = ({ seen, attention }, number, name) => {
  const { width, height, maps } = attention;
  const levels = atob(maps[number]);
  const frame = element("div", "picture gray");
  const image = element("img");
  image.src = seen;
  image.alt = `Your picture. The attention of ${name} is strongest `
    + `${strongest(levels, attention)}.`;
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
  frame.append(image, canvas);
  return frame;
};
