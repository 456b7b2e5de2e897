// Attention maps over the picture, as in reports.

import { element, overlay } from "./elements.js";

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
  const levels = atob(attention.maps[number]);
  const frame = element("div", "picture gray");
  const image = element("img");
  image.src = seen;
  image.alt = `Your picture. The attention of ${name} is strongest `
    + `${strongest(levels, attention)}.`;
  frame.append(image, overlay(levels, attention));
  return frame;
};
