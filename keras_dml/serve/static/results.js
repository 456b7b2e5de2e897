// Results: what was found, as lists of pictures.

import { breakable, byId, element, fixed, plural } from "./elements.js";
import { ask } from "./server.js";

export const fileName = ({ file, key }) => file || `key ${key}`;

const called = (hit) => hit.name || fileName(hit);

// The token is in a header, which the address of an image has not.
const thumbnail = async ({ key }) => {
  const value = encodeURIComponent(JSON.stringify(key));
  return (await ask(`page/thumbnail?key=${value}`)).blob();
};

// The picture of a row; what it is called where there is none.
const picture = (hit, alt) => {
  const frame = element("div", "missing waiting");
  thumbnail(hit).then(
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

// How sure a hit is: by how many images of other classes are expected to score
// as high in the whole gallery. Of so many pairs, none is as good as half a one.
// What the threshold rejects is at most perhaps the same.
const confidence = (hit, { rows, negative_pairs: pairs }) => {
  const expected = rows * Math.max(hit.false_matches, 0.5 / pairs);
  if (expected >= 5) return "probably different";
  if (expected >= 0.5 || hit.is_match === false) return "perhaps the same";
  return `${expected < 0.05 ? "almost certainly" : "probably"} the same`;
};

const columnsOf = ({ row }) => Object.entries(row)
  .filter(([, value]) => value !== null)
  .map(([name, value]) => `${name}: ${typeof value === "string"
    ? value : JSON.stringify(value)}`)
  .join("\n");

const leaveOutButton = (hit, leaveOut) => {
  const button = element("button", "", "Leave it out");
  button.type = "button";
  button.addEventListener("click", () => leaveOut(hit));
  return button;
};

const hitItem = (hit, rank, gallery, leaveOut) => {
  const item = element("li");
  const figure = element("figure");
  const caption = element("figcaption");
  caption.append(element("strong", "", `${rank}. ${called(hit)}`),
    element("span", "number", fixed(hit.score)));
  if (hit.false_matches !== null) {
    caption.append(element("span", "", confidence(hit, gallery)));
  }
  if (hit.is_match !== null) {
    caption.append(element("span", hit.is_match ? "right" : "wrong",
      hit.is_match ? "✓ match" : "✗ below the threshold"));
  }
  const details = element("details");
  details.append(element("summary", "", fileName(hit)),
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
    `This picture is in the gallery: ${[copy.name, fileName(copy)]
      .filter(Boolean).join(", ")}.`),
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
    ? " How sure a hit is follows from how often images of different classes "
      + `score as high, among ${plural(pairs, "pair")} of the gallery.`
    : "";
  byId("scores").textContent = gallery.scores + rates + calibrated;
};

// Offers rows of the gallery: `tryOut` gets one, and its picture.
export const showExamples = (rows, tryOut) => {
  byId("examples").hidden = !rows.length;
  byId("example-pictures").replaceChildren(...rows.map((row) => {
    const item = element("li");
    const button = element("button", "example");
    button.type = "button";
    button.append(picture(row, `Search for ${called(row)}`));
    button.addEventListener("click", async () =>
      tryOut(row, await thumbnail(row)));
    item.append(button);
    return item;
  }));
};

// Shows an answer, and says in a sentence what it is. `leaveOut` gets a
// hit that is not to be found again.
export const showResults = (about, answer, leaveOut) => {
  byId("found").hidden = false;
  byId("empty").hidden = true;
  byId("examples").hidden = true;
  showHits(about, answer.hits, leaveOut);
  if (!answer.hits) return "There is no gallery to search in.";
  if (!answer.hits.length) return "No image passes the filter.";
  const matches = answer.hits.filter((hit) => hit.is_match).length;
  const matching = answer.hits[0].is_match === null ? ""
    : ` ${matches ? matches : "None"} of them ${matches === 1
      ? "reaches" : "reach"} the threshold.`;
  return `${plural(answer.hits.length, "image")} found.${matching}`;
};
