// Results: what was found, as lists of pictures.

import { breakable, byId, element, fixed, plural } from "./elements.js";
import { overlaid } from "./attention.js";
import { ask } from "./server.js";

const MOST_OF_PART = 6; // Pictures that are shown for a learner.

// Addresses of thumbnails of the result that is shown, by key.
let pictures = new Map();

const forgetPictures = () => {
  for (const known of pictures.values()) {
    // What was shown before may still be loading.
    known.then((address) => address
      && setTimeout(() => URL.revokeObjectURL(address), 10_000));
  }
  pictures = new Map();
};

// One request for a row, however often it was found.
const pictureOf = (key) => {
  const text = JSON.stringify(key);
  if (!pictures.has(text)) {
    pictures.set(text, ask(`page/thumbnail?key=${encodeURIComponent(text)}`)
      .then((answer) => answer.blob())
      .then((blob) => URL.createObjectURL(blob))
      .catch(() => null));
  }
  return pictures.get(text);
};

const called = (hit) => hit.name || hit.file || `key ${hit.key}`;

// The picture of a row; what it is called where there is none.
const picture = (hit, alt) => {
  const frame = element("div", "missing waiting");
  pictureOf(hit.key).then((address) => {
    frame.classList.remove("waiting");
    if (!address) {
      frame.append(breakable(called(hit)));
      frame.setAttribute("role", "img");
      frame.setAttribute("aria-label", `${alt}, without a picture`);
      return;
    }
    const image = element("img");
    image.alt = alt;
    image.src = address;
    frame.replaceWith(image);
  });
  return frame;
};

const percent = (share) =>
  `${(100 * share).toLocaleString("en", { maximumSignificantDigits: 2 })}\u00a0%`;

// A share of pairs; of so many, none says no more than that it is small.
const rate = (share, pairs) =>
  (share ? percent(share) : `under ${percent(1 / pairs)}`);

const verdict = (isMatch) => element("span", isMatch ? "right" : "wrong",
  isMatch ? "✓ match" : "✗ no match");

const columnsOf = ({ row }) => Object.entries(row)
  .filter(([, value]) => value !== null)
  .map(([name, value]) => `${name}: ${typeof value === "string"
    ? value : JSON.stringify(value)}`)
  .join("\n");

const leaveOutButton = (hit, leaveOut) => {
  const button = element("button", "", "Leave it out");
  button.type = "button";
  button.addEventListener("click", () => leaveOut(hit.key));
  return button;
};

const hitItem = (hit, rank, gallery, leaveOut) => {
  const item = element("li");
  const figure = element("figure");
  const caption = element("figcaption");
  caption.append(element("strong", "", `${rank}. ${called(hit)}`),
    element("span", "number", fixed(hit.score)));
  if (hit.false_matches !== null) {
    caption.append(element("span", "number",
      `false matches ${rate(hit.false_matches, gallery.negative_pairs)}`));
  }
  if (hit.is_match !== null) caption.append(verdict(hit.is_match));
  const details = element("details");
  details.append(element("summary", "", `key ${hit.key}`),
    element("p", "columns-of", columnsOf(hit) || "no columns"),
    leaveOutButton(hit, leaveOut));
  caption.append(details);
  figure.append(picture(hit, `Result ${rank}: ${called(hit)}`), caption);
  item.append(figure);
  return item;
};

const smallItem = (hit, rank) => {
  const item = element("li");
  item.append(picture(hit, `Result ${rank}`),
    breakable(called(hit)),
    element("span", "number", fixed(hit.score, 3)));
  return item;
};

const sayVerdict = (hits, gallery) => {
  const threshold = gallery?.threshold ?? null;
  const shown = byId("verdict");
  shown.hidden = threshold === null || !hits.length;
  if (shown.hidden) return;
  const [nearest] = hits;
  const sign = nearest.is_match ? "≥" : "<";
  shown.className = `verdict ${nearest.is_match ? "right" : "wrong"}`;
  shown.textContent = nearest.is_match
    ? `✓ Match: ${called(nearest)}` : "✗ No match in the gallery";
  shown.append(element("span", "note", `${fixed(nearest.score)} ${sign} `
    + `${fixed(threshold)}, the threshold: ${gallery.threshold_meaning}.`));
};

// A picture finds itself first, which is no news.
const offerToLeaveOut = (hits, leaveOut) => {
  const copy = hits.find((hit) => hit.is_copy);
  byId("copy").hidden = !copy;
  if (!copy) return;
  byId("copy").replaceChildren(element("span", "",
    `This picture is in the gallery, as ${called(copy)} (key ${copy.key}).`),
  leaveOutButton(copy, leaveOut));
};

const showHits = (about, hits, leaveOut) => {
  const { gallery } = about;
  byId("hits").hidden = hits === null;
  byId("hits").replaceChildren(...(hits ?? []).map((hit, i) =>
    hitItem(hit, i + 1, gallery, leaveOut)));
  sayVerdict(hits ?? [], gallery);
  offerToLeaveOut(hits ?? [], leaveOut);
  if (!gallery) {
    byId("scores").textContent = "Start the server with --gallery to find "
      + "images.";
    return;
  }
  const calibrated = gallery.threshold === null
    ? " The gallery has no threshold, so scores do not say what is a match."
    : "";
  const pairs = gallery.negative_pairs;
  const rates = pairs
    ? " False matches: the share of pairs of different classes that score as "
      + `high, among ${plural(pairs, "pair")} of the gallery.`
    : "";
  byId("scores").textContent = gallery.scores + rates + calibrated;
};

const partRow = (part, number, answer) => {
  const row = element("div", "row");
  const maps = answer.attention?.maps ?? [];
  if (number < maps.length) {
    const side = element("div", "query");
    side.append(overlaid(answer, number, part.name),
      element("span", "name", "where it looks"));
    row.append(side);
  }
  if (part.hits) {
    const list = element("ol");
    list.setAttribute("aria-label", `Nearest images of ${part.name}`);
    list.append(...part.hits.slice(0, MOST_OF_PART)
      .map((hit, i) => smallItem(hit, i + 1)));
    row.append(list);
  }
  const made = element("div", "part");
  made.append(element("h4", "", part.name), row);
  return made;
};

const showParts = (about, answer) => {
  // A model may attend with one head, which is no learner among several.
  const maps = answer.attention?.maps ?? [];
  const parts = answer.parts.length ? answer.parts
    : maps.map((map, i) => ({ name: `attention ${i + 1}`, hits: null }));
  byId("parts-section").hidden = !parts.length
    || (!maps.length && !parts.some(({ hits }) => hits));
  byId("parts-head").textContent = answer.parts.length && answer.hits
    ? "What each learner finds" : "Where the model looks";
  const notes = [];
  if (maps.length) notes.push("Bright: where it looks at the picture.");
  if (answer.hits && parts.some(({ hits }) => hits)) {
    notes.push(about.parts_are_cosines
      ? "Each searches by its part of the embedding alone; scores are cosines."
      : "Each searches by its slice of the embedding alone; scores are dot "
        + "products of slices.");
  }
  byId("parts-note").textContent = notes.join(" ");
  byId("parts").replaceChildren(...parts.map((part, i) =>
    partRow(part, i, answer)));
};

// Shows an answer, and says in a sentence what it is. `leaveOut` gets the key
// of a hit that is not to be found again.
export const showResults = (about, answer, leaveOut) => {
  forgetPictures();
  byId("found").hidden = false;
  byId("empty").hidden = true;
  showHits(about, answer.hits, leaveOut);
  showParts(about, answer);
  if (!answer.hits) return "There is no gallery to search in.";
  if (!answer.hits.length) return "No image passes the filters.";
  const matches = answer.hits.filter((hit) => hit.is_match).length;
  const matching = answer.hits[0].is_match === null ? ""
    : ` ${matches ? matches : "None"} of them ${matches === 1
      ? "reaches" : "reach"} the threshold.`;
  return `${plural(answer.hits.length, "image")} found.${matching}`;
};

export const hideResults = () => {
  byId("found").hidden = true;
};
