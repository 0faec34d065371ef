// What the search rejected, by the first rule broken, or by memory; and what lost for it.

import { byId, h } from "./dom.js";
import { change, gib, seconds, whole } from "./format.js";

/** The table of reasons with a bar for each. */
export function reasons(answer) {
  const rows = Object.entries(answer.rejected)
    .filter(([, count]) => count)
    .sort((a, b) => b[1] - a[1]);
  const most = Math.max(...rows.map(([, count]) => count), 1);
  byId("rejected-says").textContent = rows.length
    ? `Each by the first rule it breaks; memory is asked last. ${whole(answer.candidates)} meet every rule.`
    : "Nothing was rejected.";
  byId("rejected-body").replaceChildren(
    h(
      "table",
      { class: "reasons" },
      h("caption", { class: "hidden" }, "Candidates rejected by reason"),
      h("thead", { class: "hidden" }, h("tr", {}, h("th", { scope: "col" }, "Reason"), h("th", { scope: "col" }, "Candidates"))),
      h(
        "tbody",
        {},
        rows.map(([reason, count]) =>
          h("tr", {}, h("th", { scope: "row", class: "text" }, reason), h("td", {}, meter(count / most), whole(count))),
        ),
      ),
    ),
    h("div", { id: "lost" }),
  );
}

function meter(share) {
  const bar = h("span", { class: "meter", "aria-hidden": "true" });
  bar.style.setProperty("--share", share.toFixed(4));
  return bar;
}

/** What memory keeps from being faster, and the explanation line by line. */
export function lost(explanation, answer, apply) {
  const [best] = answer.plans;
  const { nearest_faster_miss: near, unlimited_memory: unlimited } = explanation;
  const told = [
    [near, "The nearest to fitting that would be faster"],
    [unlimited, "The fastest if memory were unlimited"],
  ];
  const rows = best
    ? told
        .filter(([plan]) => plan)
        .map(([plan, words]) =>
          h(
            "li",
            {},
            `${words}: ${seconds(plan.step_seconds, 4)} (${change(plan.step_seconds / best.step_seconds - 1)}), needs ${gib(plan.memory_bytes)}. `,
            h("span", { class: "mono" }, plan.label ?? plan.strategy),
            " ",
            h("button", { type: "button", class: "link", onclick: () => apply(plan.memory_bytes) }, "give the GPUs that much"),
          ),
        )
    : [];
  byId("lost")?.replaceChildren(h("ul", { class: "misses" }, rows));
  byId("why").querySelector("pre").textContent = (explanation.text ?? []).join("\n");
}
