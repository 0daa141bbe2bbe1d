// The link that holds the page's state, in the part of the address that no server sees.

export function writeLink(state) {
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
}

// The state in the address, null where there is none; throws where it is damaged.
export function readLink() {
  if (location.hash.length < 2) return null;
  const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  if (typeof state !== "object" || typeof (state.context ?? {}) !== "object") throw new Error();
  return state;
}

// A click on the button copies the address.
export function makeCopyButton(button) {
  const label = button.textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Link copied";
    } catch {
      button.textContent = "The address bar holds it";
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
