// What a page lacks for readers who do not see it well or at all: names of controls and pictures, contrast (WCAG AA), order of
// headings, unique ids. Evaluates to a list of faults. Only what is shown is looked at.
(() => {
  const faults = [];
  const where = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}${e.className?.baseVal ?? e.className ? "." + (e.className.baseVal ?? e.className) : ""} "${(e.textContent || "").trim().slice(0, 30)}"`;
  const shown = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && e.getClientRects().length > 0;

  const named = (e) => (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || document.getElementById(e.getAttribute("aria-labelledby"))?.textContent ||
    (["BUTTON", "A", "SUMMARY"].includes(e.tagName) ? e.textContent : "") || "").trim();
  for (const e of document.querySelectorAll("input, select, textarea, button, a, summary, [role=img], [role=group], [role=region], nav, [tabindex]")) {
    if (shown(e) && !named(e) && !(e.hasAttribute("tabindex") && e.textContent.trim())) faults.push(`name: ${where(e)} has none`);
  }
  for (const e of document.querySelectorAll("canvas, svg, img")) {
    if (shown(e) && !e.closest("[aria-hidden=true]") && !named(e)) faults.push(`name: ${where(e)} is neither named nor hidden`);
  }

  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (text) => {  // any CSS colour as red, green, blue, alpha
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = text;
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = probe.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const layer = colour(getComputedStyle(at).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), colour("Canvas"));
  };
  const seen = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || seen.has(e) || ["SCRIPT", "STYLE"].includes(e.tagName) || !shown(e) || e.closest(":disabled, .unseen, .skip")) continue;
    seen.add(e);
    const style = getComputedStyle(e), background = behind(e), size = parseFloat(style.fontSize);
    let opacity = 1;
    for (let at = e; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const ink = colour(e.namespaceURI.endsWith("svg") ? style.fill : style.color);
    ink[3] *= opacity;
    const [high, low] = [light(over(ink, background)), light(background)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05), needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < needed) faults.push(`contrast: ${ratio.toFixed(2)} of ${needed} in ${where(e)}`);
  }

  let level = 0;
  for (const h of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    if (!shown(h)) continue;
    const own = Number(h.tagName[1]);
    if (own > level + 1) faults.push(`heading: ${where(h)} after h${level}`);
    level = own;
  }
  const ids = new Set();
  for (const e of document.querySelectorAll("[id]")) {
    if (ids.has(e.id)) faults.push(`id: ${e.id} twice`);
    ids.add(e.id);
  }
  return faults;
})()
