// Text whose contrast to its ground is below what WCAG 2.2 asks, 4.5 or 3 for large text: `[text, ratio]`.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const part = (value) => ((value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = channels(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const hasText = (one) => [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const isRead = (one) => one.checkVisibility() && !one.closest("title, script, style, noscript, .hidden, option");
  const texts = [...document.body.querySelectorAll("*")].filter((one) => hasText(one) && isRead(one));
  const found = texts.map((one) => {
    const style = getComputedStyle(one);
    const letter = one.matches("text.letter") && one.previousElementSibling; // on its own disc
    const behind = letter ? channels(getComputedStyle(letter).fill) : ground(one);
    const ink = channels(one instanceof SVGElement ? style.fill : style.color);
    const [low, high] = [light(ink), light(behind)].sort((a, b) => a - b);
    const isLarge = parseFloat(style.fontSize) >= 24;
    return [one.textContent.trim().slice(0, 40), (high + 0.05) / (low + 0.05), isLarge ? 3 : 4.5];
  });
  return { texts: found.length, faint: found.filter(([, ratio, least]) => ratio < least) };
};
