// The server: requests with the token, and errors that say what to do.

const TOKEN = "keras_dml token";
const MAX_TRIES = 4;

export class NeedsToken extends Error {}

export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

export const forgetToken = () => sessionStorage.removeItem(TOKEN);

const wait = (seconds, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, 1000 * seconds);
  signal?.addEventListener("abort", () => {
    clearTimeout(timer);
    reject(signal.reason);
  });
});

const send = async (path, options) => {
  const headers = new Headers(options.headers);
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
};

const reason = async (answer) => {
  try {
    const { error } = await answer.json();
    if (error) return error;
  } catch { /* An answer that is not JSON says nothing. */ }
  if (answer.status === 413) return "The file is too large for this server.";
  if (answer.status === 504) return "The server took too long. Try again.";
  return `The server answered ${answer.status} ${answer.statusText}.`;
};

// An answer that is fine. `onBusy` hears when a full queue makes it wait.
export const ask = async (path, options = {}, onBusy = () => {}) => {
  for (let tries = 1; ; tries += 1) {
    const answer = await send(path, options);
    if (answer.ok) return answer;
    if (answer.status === 401) throw new NeedsToken(await reason(answer));
    if (answer.status !== 503 || tries === MAX_TRIES) {
      throw new Error(await reason(answer));
    }
    const seconds = Number(answer.headers.get("Retry-After")) || 1;
    onBusy(seconds);
    await wait(seconds, options.signal);
  }
};
