// What the search rejected, by the first rule broken or by memory, and the faster plans that memory excludes.

import { button, byId, h, table } from "./dom.js";
import { change, gib, seconds, whole } from "./format.js";

/** Show the table of reasons with a bar for each. */
export function reasons(answer) {
  const counts = Object.entries(answer.rejected)
    .filter(([, count]) => count)
    .sort((a, b) => b[1] - a[1]);
  const most = Math.max(...counts.map(([, count]) => count), 1);
  byId("rejected-says").textContent = counts.length
    ? `Each by the first rule it breaks; memory is checked last. ${whole(answer.candidates)} meet every rule.`
    : "Nothing was rejected.";
  const rows = counts.map(([reason, count]) => [
    h("th.text", { scope: "row" }, reason),
    h("td", meter(count / most), whole(count)),
  ]);
  const head = ["Reason", "Candidates"];
  const reasonTable = table("Candidates rejected by reason", head, rows, { class: "reasons" });
  reasonTable.tHead.classList.add("hidden");
  byId("rejected-body").replaceChildren(reasonTable, h("div", { id: "lost" }));
}

function meter(share) {
  const bar = h("span.meter", { "aria-hidden": "true" });
  bar.style.setProperty("--share", share.toFixed(4));
  return bar;
}

/** Show the faster plans that memory excludes, and the explanation line by line. */
export function lost(explanation, answer, apply) {
  const [best] = answer.plans;
  const misses = [
    [explanation.nearest_faster_miss, "The nearest to fitting that would be faster"],
    [explanation.unlimited_memory, "The fastest if memory were unlimited"],
  ].filter(([plan]) => best && plan);
  const rows = misses.map(([plan, words]) => {
    const slower = change(plan.step_seconds / best.step_seconds - 1);
    return h(
      "li",
      `${words}: ${seconds(plan.step_seconds, 4)} (${slower}), needs ${gib(plan.memory_bytes)}. `,
      h("span.mono", plan.label ?? plan.strategy),
      " ",
      button("give the GPUs that much", () => apply(plan.memory_bytes), { class: "link" }),
    );
  });
  byId("lost")?.replaceChildren(h("ul.misses", rows));
  byId("why").querySelector("pre").textContent = (explanation.text ?? []).join("\n");
}
