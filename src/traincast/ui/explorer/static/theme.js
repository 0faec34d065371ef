// Light, dark, or as the system has it; remembered on this device.

import { byId } from "./dom.js";

const THEMES = ["system", "light", "dark"];

function stored() {
  try {
    return localStorage.getItem("traincast-theme") ?? "system";
  } catch {
    return "system";
  }
}

function set(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("traincast-theme", theme);
  } catch {
    // a browser that keeps nothing
  }
}

export function prepare() {
  let theme = stored();
  set(theme);
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    set(theme);
  });
}
