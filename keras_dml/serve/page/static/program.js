// The request as code: what was asked last, for a shell and in Python.

import { byId } from "./elements.js";
import { addressOf, hasToken } from "./server.js";

// Between single quotes a shell takes everything but these as it is.
const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const python = (text) => JSON.stringify(text);

// A name of a file that no program takes for one of its options.
const named = (name) => (name.startsWith("-") ? `./${name}` : name);

const predictCurl = (address, name, k) => {
  const header = hasToken()
    ? " \\\n    -H \"Authorization: Bearer $TOKEN\"" : "";
  return `printf '{"signature_name": "lookup_k", "inputs": `
    + `{"images": [{"b64": "%s"}], "k": [${k}]}}' \\\n`
    + `    "$(base64 < ${shell(name)} | tr -d '\\n')" |\n`
    + `  curl -s --fail-with-body --data-binary @- \\\n`
    + `    -H 'Content-Type: application/json'${header} \\\n`
    + `    ${shell(address)}`;
};

const predictPython = (address, name, k) => `import base64
import json
${hasToken() ? "import os\n" : ""}import urllib.request

with open(${python(name)}, "rb") as file:
    picture = base64.b64encode(file.read()).decode()
request = urllib.request.Request(
    ${python(address)},
    json.dumps({
        "signature_name": "lookup_k",
        "inputs": {"images": [{"b64": picture}], "k": [${k}]},
    }).encode(),
    {"Content-Type": "application/json"${tokenItem()}},
)
with urllib.request.urlopen(request) as answer:
    found = json.load(answer)["outputs"]
for key, label, score in zip(
    found["ids"][0], found["labels"][0], found["scores"][0]
):
    print(key, label, score)
`;

const tokenItem = () => (hasToken()
  ? ", \"Authorization\": f\"Bearer {os.environ['TOKEN']}\"" : "");

const searchCurl = (address, name) => {
  const header = hasToken()
    ? " \\\n  -H \"Authorization: Bearer $TOKEN\"" : "";
  return `curl -s --fail-with-body \\\n`
    + `  --data-binary @${shell(name)} \\\n`
    + `  -H 'Content-Type: application/octet-stream'${header} \\\n`
    + `  ${shell(address)}`;
};

const searchPython = (address, name) => `import json
${hasToken() ? "import os\n" : ""}import urllib.request

with open(${python(name)}, "rb") as file:
    picture = file.read()
request = urllib.request.Request(
    ${python(address)},
    picture,
    {"Content-Type": "application/octet-stream"${tokenItem()}},
)
with urllib.request.urlopen(request) as answer:
    found = json.load(answer)
for hit in found["hits"] or []:
    print(hit["key"], hit["name"], hit["score"])
`;

// What TensorFlow decodes; the page's own endpoint also takes others, as HEIC.
const DECODED = ["jpeg", "png", "gif", "webp", "bmp"].map((x) => `image/${x}`);

// Only the page's own endpoint knows filters; what TensorFlow Serving
// serves, too, is "lookup_k".
export const showProgram = (about, query, picture) => {
  const name = named(picture.name);
  const isPlain = !query.has("where") && !query.has("exclude")
    && DECODED.includes(picture.type);
  const hasLookup = isPlain && about.gallery !== null
    && about.signatures.includes("lookup_k")
    && Number(query.get("k")) <= about.gallery.rows;
  const path = hasLookup
    ? `v1/models/${encodeURIComponent(about.model.name)}:predict`
    : `page/search?${query}`;
  const address = addressOf(path);
  const k = query.get("k");
  byId("curl").textContent = hasLookup
    ? predictCurl(address, name, k) : searchCurl(address, name);
  byId("python").textContent = hasLookup
    ? predictPython(address, name, k) : searchPython(address, name);
  byId("copy-note").textContent = (hasLookup
    ? "Calls the REST API, the same one as TensorFlow Serving's."
    : "It asks the endpoint of this page, which takes filters and any format.")
    + (hasToken() ? " The variable TOKEN must hold the token." : "");
};

export const setUpCopying = (say) => {
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.addEventListener("click", async () => {
      const shown = byId(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(shown.textContent);
        say(`${button.textContent.replace("Copy ", "The request as ")} is in `
          + "the clipboard.");
      } catch {
        // Pages that are not secure have no clipboard.
        getSelection().selectAllChildren(shown);
        shown.focus();
        say("The text is selected. Copy it with Ctrl+C.");
      }
    });
  }
};
