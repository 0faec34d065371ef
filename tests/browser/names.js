// What is nameless, named twice, points nowhere, or skips a level of headings.
() => {
  const named = (one) =>
    one.ariaLabel || one.labels?.[0]?.textContent.trim() || one.textContent.trim() || one.getAttribute("aria-labelledby");
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  const levels = [...document.querySelectorAll("h1, h2, h3")]
    .filter((one) => one.checkVisibility())
    .map((one) => Number(one.tagName[1]));
  return {
    unnamed: [
      ...document.querySelectorAll(
        "input, select, textarea, button, a[href], [role=button], [role=region], [role=img], dialog, nav, form, section",
      ),
    ]
      .filter((one) => !named(one) && !one.closest("dialog form"))
      .map((one) => one.outerHTML.slice(0, 80)),
    twice: ids.filter((id, i) => ids.indexOf(id) !== i),
    dangling: [...document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]")]
      .flatMap((one) => (one.getAttribute("aria-labelledby") ?? one.getAttribute("aria-describedby") ?? one.htmlFor).split(" "))
      .filter((id) => !document.getElementById(id)),
    skipped: levels.filter((level, i) => i && level > levels[i - 1] + 1),
    unspoken: [...document.querySelectorAll("figure svg")].filter((one) => one.checkVisibility() && !one.ariaLabel).length,
    cells: [...document.querySelectorAll("table")].filter((one) => !one.caption || !one.querySelector("th[scope=row]")).length,
  };
};
