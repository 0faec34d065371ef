// Pairs of colours whose ratio is below 4.5, as WCAG 2.2 has it.
() => {
  const part = (value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const probe = document.body.appendChild(document.createElement("i"));
  const of = (name) => {
    probe.style.color = `var(--${name})`;
    return light(getComputedStyle(probe).color);
  };
  const pairs = [
    ["ink", "ground"],
    ["soft", "ground"],
    ["soft", "raised"],
    ["accent", "ground"],
    ["accent", "raised"],
    ["bad", "bad-tint"],
    ["on-accent", "accent"],
    ["on-accent", "pin-a"],
    ["on-accent", "pin-b"],
  ];
  const ratios = pairs.map(([a, b]) => [of(a), of(b)].sort((x, y) => y - x)).map(([x, y]) => (x + 0.05) / (y + 0.05));
  probe.remove();
  return pairs.map((pair, i) => [pair.join(" on "), ratios[i]]).filter(([, value]) => value < 4.5);
};
