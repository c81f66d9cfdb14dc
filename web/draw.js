// What the figures of the playground share: numbers as text, controls, bars, matrices.
"use strict";
const Draw = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  // element("p", {class: "x", text: "…", onclick: f}, child, …); names of SVG's elements begin with "svg:".
  function element(name, attributes = {}, ...children) {
    const node = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") node.textContent = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }

  // d_k as d with a small k, in what is written: not in code, not in a control's own text.
  function subscripts(root) {
    const name = /\b(d?W|[dn])_(k|v|a|q|model|[QKVsh])\b/;
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = [];
    while (walk.nextNode()) {
      const parent = walk.currentNode.parentElement;
      if (name.test(walk.currentNode.data) && !parent.closest("code, pre, textarea, option, svg, script, sub")) found.push(walk.currentNode);
    }
    for (const node of found) {
      const parts = node.data.split(name), pieces = [];
      for (let i = 0; i < parts.length; i += 3) pieces.push(i ? parts[i].replace(/^ = (?=[\d√])/, "\u00a0=\u00a0") : parts[i], ...(i + 2 < parts.length ? [parts[i + 1], element("sub", { text: parts[i + 2] })] : []));
      node.replaceWith(...pieces);
    }
  }

  // Three digits that matter: 0.371, 12.4, 1.20e−5.
  function number(x) {
    if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "∞" : "−∞";
    const size = Math.abs(x);
    const text = x === 0 ? "0" : size >= 1e5 || size < 1e-3 ? x.toExponential(2) : size >= 100 ? x.toFixed(0) : x.toPrecision(3);
    return text.replaceAll("-", "−");
  }

  // A slider over `steps`, a list of values: {box, set(index)}. `show` writes a value; `change` gets its place in the list.
  function slider(id, label, steps, at, show, change) {
    const shown = element("output", { for: id, text: show(steps[at]) });
    const input = element("input", { type: "range", id, min: 0, max: steps.length - 1, step: 1, value: at, "aria-valuetext": show(steps[at]) });
    const set = (index) => {
      input.value = index;
      shown.textContent = show(steps[index]);
      input.setAttribute("aria-valuetext", show(steps[index]));
    };
    input.addEventListener("input", () => { set(Number(input.value)); change(Number(input.value)); });
    return { box: element("div", { class: "slider" }, element("label", { for: id, text: label }), shown, input), input, set };
  }

  // Buttons of which one is pressed: {box, set(value)}.
  function choice(label, options, value, change) {
    const buttons = options.map(([key, text, name]) => element("button", {
      type: "button", class: name, "data-choice": key, "aria-pressed": String(key === value), text, onclick: () => { set(key); change(key); },
    }));
    const set = (key) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.choice === key)));
    return { box: element("div", { class: "choice", role: "group", "aria-label": label }, ...buttons), set };
  }

  // One bar per value, and the outline of `other` over them, on one axis that holds both. {values, name} each.
  function bars(box, { chosen, other, height, low }) {
    const width = box.clientWidth, n = chosen.values.length, all = [...chosen.values, ...other.values];
    const top = Math.max(...all, 1e-30), bottom = low === undefined ? Math.min(...all, -top) : low;
    const high = low === undefined ? Math.max(top, -bottom) : top;
    const least = low === undefined ? -high : low;
    const text = [number(high), number(least)], left = 52;
    const y = (value) => 4 + (high - value) / (high - least) * (height - 8);
    const x = (i) => left + i * (width - left - 2) / n, gap = n > 64 ? 0 : 1;
    const svg = element("svg:svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const baseline = y(Math.max(0, least));
    svg.append(element("svg:line", { class: "zero", x1: left, x2: width, y1: baseline, y2: baseline }));
    [[high, 12], [least, height - 2]].forEach(([value, at], i) =>
      svg.append(element("svg:text", { class: "label", x: left - 5, y: at, "text-anchor": "end", "data-end": i, text: text[i] })));
    let filled = "";
    chosen.values.forEach((value, i) => {
      filled += `M${x(i) + gap},${baseline}V${y(value)}H${x(i + 1)}V${baseline}Z`;
    });
    svg.append(element("svg:path", { class: `bars ${chosen.name}`, d: filled }));
    let line = "";
    other.values.forEach((value, i) => { line += `${i ? "L" : "M"}${x(i)},${y(value)}H${x(i + 1)}`; });
    svg.append(element("svg:path", { class: `ghost ${other.name}`, d: line }));
    box.replaceChildren(svg);
  }

  const mixed = (from, to, share) => from.map((c, i) => Math.round(c + (to[i] - c) * share));
  function rgb(name) {
    const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map((i) => parseInt(text.slice(i, i + 2), 16));
  }

  // A matrix as shades from the page's colour to that of --name; masked cells (NaN) are crossed out. With `names`, {rows, columns},
  // they stand beside it and, upright, above it.
  function shades(canvas, { values, columns, name, most, size, names }) {
    const rows = values.length / columns, ratio = 2, brush = canvas.getContext("2d");
    const font = '12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
    brush.font = font;
    const room = (labels) => labels ? 8 + Math.min(90, Math.max(...labels.map((label) => brush.measureText(label).width))) : 0;
    const left = room(names?.rows), top = room(names?.columns);
    const cell = (size - left) / Math.max(rows, columns), gap = cell > 6 ? 1 : 0;
    canvas.width = (left + columns * cell) * ratio;
    canvas.height = (top + rows * cell) * ratio;
    canvas.style.width = `${left + columns * cell}px`;
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    const page = rgb("--page"), ink = rgb(`--${name}`), muted = rgb("--muted");
    brush.font = font;
    brush.textBaseline = "middle";
    brush.fillStyle = `rgb(${rgb("--text")})`;
    const stride = Math.ceil(13 / cell);  // labels that do not fit are left out
    brush.textAlign = "right";
    names?.rows.forEach((label, i) => { if (i % stride === 0) brush.fillText(label, left - 6, top + (i + 0.5) * cell, 90); });
    brush.textAlign = "left";
    names?.columns.forEach((label, i) => {
      if (i % stride !== 0) return;
      brush.save();
      brush.translate(left + (i + 0.5) * cell, top - 6);
      brush.rotate(-Math.PI / 2);
      brush.fillText(label, 0, 0, 90);
      brush.restore();
    });
    values.forEach((value, i) => {
      const x = left + (i % columns) * cell, y = top + Math.floor(i / columns) * cell, side = cell - gap;
      if (!Number.isNaN(value)) {
        brush.fillStyle = `rgb(${mixed(page, ink, 0.04 + 0.96 * Math.min(1, Math.abs(value) / most))})`;
        return brush.fillRect(x, y, side, side);
      }
      brush.strokeStyle = `rgb(${mixed(page, muted, 0.5)})`;
      brush.beginPath();
      brush.moveTo(x + 1, y + side - 1);
      brush.lineTo(x + side - 1, y + 1);
      brush.stroke();
    });
  }

  const norm = (values) => Math.sqrt(values.reduce((sum, v) => sum + v * v, 0));
  const deviation = (values) => {
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length);
  };
  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

  return { element, subscripts, number, slider, choice, bars, shades, norm, deviation, median };
})();
