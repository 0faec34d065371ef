// What the search rejected, by the first rule broken or by memory, and the faster plans that memory excludes.

import { button, byId, h, table } from "./dom.js";
import { change, gib, quarterGibs, seconds, whole } from "./format.js";

/** Show the table of reasons with a bar for each. */
export function reasons({ rejected, candidates }) {
  const counts = Object.entries(rejected).filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
  const meet = `${whole(candidates)} meet every rule.`;
  byId("rejected-says").textContent = counts.length
    ? `Each by the first rule it breaks; memory is checked last. ${meet}`
    : "Nothing was rejected.";
  const rows = counts.map(([reason, count]) => {
    const bar = h("span.meter", { "aria-hidden": "true" });
    bar.style.setProperty("--share", (count / counts[0][1]).toFixed(4));
    return [h("th.text", { scope: "row" }, reason), h("td", bar, whole(count))];
  });
  const head = ["Reason", "Candidates"];
  const reasonTable = table("Candidates rejected by reason", head, rows, { class: "reasons" });
  reasonTable.tHead.classList.add("hidden");
  byId("rejected-body").replaceChildren(reasonTable, h("div", { id: "lost" }));
}

/** Show the faster plans that memory excludes, and the explanation line by line. */
export function lost(explanation, { plans: [best], system }, apply) {
  const misses = [
    [explanation.nearest_faster_miss, "The nearest to fitting that would be faster"],
    [explanation.unlimited_memory, "The fastest if memory were unlimited"],
  ].filter(([plan]) => best && plan);
  const rows = misses.map(([{ step_seconds: time, memory_bytes: bytes, label }, words]) => {
    const times = `${seconds(time, 4)} (${change(time / best.step_seconds - 1)})`;
    const give = () => apply({ figures: { "accelerator.hbm_bytes": quarterGibs(bytes + system.driver_bytes) } });
    const giving = button("give the GPUs that much", give, { class: "link" });
    return h("li", `${words}: ${times}, needs ${gib(bytes)}. `, h("span.mono", label), " ", giving);
  });
  byId("lost")?.replaceChildren(h("ul.misses", rows));
  byId("why").querySelector("pre").textContent = explanation.text.join("\n");
}
