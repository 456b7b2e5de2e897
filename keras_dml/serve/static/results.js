// Results: what was found, as lists of pictures.

import { breakable, byId, element, fixed, plural } from "./elements.js";
import { ask } from "./server.js";

const called = (hit) => hit.name || hit.file || `key ${hit.key}`;

// The picture of a row; what it is called where there is none.
const picture = (hit, alt) => {
  const frame = element("div", "missing waiting");
  const key = encodeURIComponent(JSON.stringify(hit.key));
  // The token is in a header, which the address of an image has not.
  ask(`page/thumbnail?key=${key}`).then((answer) => answer.blob()).then(
    (blob) => {
      const image = element("img");
      image.alt = alt;
      image.src = URL.createObjectURL(blob);
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      frame.replaceWith(image);
    },
    () => {
      frame.classList.remove("waiting");
      frame.append(breakable(called(hit)));
      frame.setAttribute("role", "img");
      frame.setAttribute("aria-label", `${alt}, without a picture`);
    },
  );
  return frame;
};

// A share of pairs; of so many, none says no more than that it is small.
const rate = (share, pairs) => {
  const percent = (100 * (share || 1 / pairs)).toLocaleString("en",
    { maximumSignificantDigits: 2 });
  return `${share ? "" : "under "}${percent}\u00a0%`;
};

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
  if (hit.is_match !== null) {
    caption.append(element("span", hit.is_match ? "right" : "wrong",
      hit.is_match ? "✓ match" : "✗ no match"));
  }
  const details = element("details");
  details.append(element("summary", "", `key ${hit.key}`),
    element("p", "columns-of", columnsOf(hit) || "no columns"),
    leaveOutButton(hit, leaveOut));
  caption.append(details);
  figure.append(picture(hit, `Result ${rank}: ${called(hit)}`), caption);
  item.append(figure);
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

// Shows an answer, and says in a sentence what it is. `leaveOut` gets the key
// of a hit that is not to be found again.
export const showResults = (about, answer, leaveOut) => {
  byId("found").hidden = false;
  byId("empty").hidden = true;
  showHits(about, answer.hits, leaveOut);
  if (!answer.hits) return "There is no gallery to search in.";
  if (!answer.hits.length) return "No image passes the filter.";
  const matches = answer.hits.filter((hit) => hit.is_match).length;
  const matching = answer.hits[0].is_match === null ? ""
    : ` ${matches ? matches : "None"} of them ${matches === 1
      ? "reaches" : "reach"} the threshold.`;
  return `${plural(answer.hits.length, "image")} found.${matching}`;
};
