// Light, dark, or as the system has it; remembered on this device.

import { byId } from "./dom.js";

const THEMES = ["system", "light", "dark"];
const KEY = "traincast-theme";

/** What a browser that keeps nothing throws on is left out. */
function attempt(storing) {
  try {
    return storing();
  } catch {
    return null;
  }
}

function set(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  attempt(() => localStorage.setItem(KEY, theme));
}

export function prepare() {
  let theme = attempt(() => localStorage.getItem(KEY)) ?? "system";
  set(theme);
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    set(theme);
  });
}
