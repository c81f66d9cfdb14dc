// Draws the figures of the page in place, with D3. Every chart can be read with the arrow keys; its text and numbers are
// next to it as HTML.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // The ledger: show only claims of one verdict, in documents that are then open.
  const filters = [...document.querySelectorAll("[data-filter]")];
  for (const button of filters) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const other of filters) other.setAttribute("aria-pressed", String(on && other === button));
      for (const row of document.querySelectorAll("tr.entry")) row.hidden = on && !row.classList.contains(button.dataset.filter);
      for (const part of document.querySelectorAll("details.document")) {
        part.hidden = !part.querySelector("tr.entry:not([hidden])");
        part.open = on;
      }
    });
  }

  // A link into something closed opens it first.
  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.querySelector(":scope > details")?.setAttribute("open", "");
    if (target.hidden) filters.filter((b) => b.getAttribute("aria-pressed") === "true").forEach((b) => b.click());
    target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  // Also a link to where we are already.
  document.addEventListener("click", (event) => { if (location.hash && event.target.closest?.("a")?.getAttribute("href") === location.hash) reveal(); });

  // The contents follow the reader.
  const links = [...document.querySelectorAll("nav a")];
  const places = links.map((link) => document.querySelector(link.getAttribute("href")));
  function follow() {
    const at = places.reduce((last, place, i) => place && place.getBoundingClientRect().top < innerHeight / 3 ? i : last, 0);
    links.forEach((link, i) => {
      if (i !== at) return link.removeAttribute("aria-current");
      if (link.hasAttribute("aria-current")) return;
      link.setAttribute("aria-current", "true");
      link.parentElement.scrollTo({ left: link.offsetLeft - 40 });
    });
  }
  if (links.length) {
    links.forEach((link, i) => { link.hidden = !places[i]; });
    addEventListener("scroll", follow, { passive: true });
    new ResizeObserver(follow).observe(document.body);
  }
  if (typeof d3 === "undefined") return;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // 0.371, 1.2e-5, 65,536
  function text(x) {
    if (x === null || Number.isNaN(x)) return "none";
    const size = Math.abs(x);
    if (x === 0) return "0";
    if (Number.isInteger(x) && size < 1e6) return d3.format(",")(x).replace(/^-/, "−");
    return d3.format(size >= 1e6 || size < 1e-3 ? ".2~e" : ".4~r")(x).replace(/^-/, "−");
  }

  // What is drawn has no markup: d_k with Unicode's own small k.
  const written = (label) => label.replaceAll("d_k", "dₖ");

  // A series' look. Arms have their colours in every chart, the others take the palette in turn; a theory has the colour of the
  // series before it. Where several series belong to one arm, dashes tell them apart.
  const ARMS = [[/^(unscaled|q·k|dot)$|, unscaled$|(^|, )dot(, d_k|$)/, "--unscaled"], [/^(divided by|q·k \/) √d_k$|, divided by √d_k$|scaled dot|^τ = √d_k$|^attention$/, "--scaled"],
    [/additive|^divided by √d_model$|^τ = √d_k \/ 2$|^dS$/, "--c2"], [/general$|^learned τ$|^dQ$/, "--c3"], [/^GRU$|^τ = 2 √d_k$|^dV$/, "--c4"],
    [/^dX$/, "--c5"], [/^no attention$|^dW_V$/, "--c6"], [/^query-dependent$|^dW_Q$/, "--c7"]];
  const PALETTE = ["--c2", "--c3", "--c4", "--c7", "--c6", "--c5", "--c0", "--c1"];
  const DASHES = [null, "9 3", "3 3", "12 3 3 3"];
  function looks(series) {
    let next = 0, last = "--muted";
    const used = {};
    return series.map((s) => {
      let dash = s.role === "theory" ? "6 4" : "2 3";
      if (s.role === "measured") {
        const arm = [...ARMS].reverse().find(([pattern]) => pattern.test(s.name));
        last = arm ? arm[1] : PALETTE[next++ % PALETTE.length];
        used[last] = (used[last] ?? -1) + 1;
        dash = arm ? DASHES[used[last] % DASHES.length] : null;
      }
      return { stroke: `var(${s.role === "reference" ? "--muted" : last})`, dash };
    });
  }

  // How wide a label is, in the charts' type.
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = '11.5px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
  const widest = (labels) => Math.max(0, ...labels.map((label) => ruler.measureText(label).width));

  function scaleOf(axis, values, range) {
    let [low, high] = d3.extent(values);
    if (axis.log) {
      if (low === high) [low, high] = [low / 2, high * 2];
      return d3.scaleLog().domain([low, high]).range(range).clamp(true);
    }
    if (low > 0 && low < 0.6 * high) low = 0;
    if (low === high) [low, high] = [low - 1, high + 1];
    return d3.scaleLinear().domain([low, high]).nice().range(range);
  }

  // Powers of two where all the data lies on them, else 1-2-5 steps or powers of ten: from end to end, never more than fit.
  function ticks(scale, axis, values, most) {
    if (!axis.log) return scale.ticks(most);
    const [low, high] = scale.domain(), inside = (x) => x >= low * 0.999 && x <= high * 1.001;
    let marks = [];
    if (values.every((x) => Number.isInteger(Math.log2(x)))) {
      for (let p = Math.floor(Math.log2(low)); p <= Math.ceil(Math.log2(high)); ++p) marks.push(2 ** p);
    } else {
      const decades = Math.log10(high / low);
      const steps = decades > 3 ? [1] : decades > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
      for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p) {
        for (const s of steps) marks.push(Number((s * 10 ** p).toPrecision(3)));
      }
    }
    marks = marks.filter(inside);
    const stride = Math.ceil(marks.length / most);
    return marks.filter((_, i) => i % stride === 0);
  }

  // The SVG with its two axes; returns where to draw and the scales.
  function frame(chart, spec) {
    const { width, height, x, y } = spec;
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height)
      .attr("aria-hidden", "true");
    const m = spec.margin;
    const bottom = height - m.bottom;
    svg.append("g").attr("class", "grid").selectAll("line").data(y.ticks).join("line")
      .attr("x1", m.left).attr("x2", width - m.right).attr("y1", y.scale).attr("y2", y.scale);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${bottom})`)
      .call(d3.axisBottom(x.scale).tickValues(x.ticks).tickFormat(text).tickSizeOuter(0));
    svg.append("g").attr("class", "axis").attr("transform", `translate(${m.left},0)`)
      .call(d3.axisLeft(y.scale).tickValues(y.ticks).tickFormat(text).tickSizeOuter(0));
    svg.append("text").attr("class", "label").attr("x", 0).attr("y", 11).text(written(y.label));
    svg.append("text").attr("class", "label").attr("x", width - m.right).attr("y", height - 4).attr("text-anchor", "end")
      .text(written(x.label));
    chart.appendChild(svg.node());
    return svg;
  }

  // Buttons that show and hide a series.
  function legend(chart, figure, names, look, redraw) {
    const box = document.createElement("div");
    box.className = "legend";
    names.forEach((name, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!figure.hidden.has(name)));
      const mark = d3.create("svg").attr("width", 26).attr("height", 10).attr("aria-hidden", "true");
      mark.append("line").attr("x1", 1).attr("x2", 25).attr("y1", 5).attr("y2", 5).attr("stroke-width", 2.5)
        .style("stroke", look[i].stroke).attr("stroke-dasharray", look[i].dash);
      button.append(mark.node(), Object.assign(document.createElement("span"), { textContent: name }));
      button.addEventListener("click", () => {
        if (!figure.hidden.delete(name)) figure.hidden.add(name);
        redraw();
        const again = chart.querySelectorAll(".legend button")[i];
        if (again) again.focus();
      });
      box.append(button);
    });
    if (figure.band) {
      const band = document.createElement("span");
      band.className = "band";
      band.textContent = `Band: ${figure.band}`;
      box.append(band);
    }
    chart.append(box);
  }

  // A tooltip that follows the pointer or the arrow keys over `stops`: {x, y, text} in the drawing's coordinates.
  // `move` turns an arrow key and the present stop into the next one.
  function tooltip(chart, drawing, stops, move, mark) {
    const tip = document.createElement("div"), live = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    live.className = "unseen";
    live.setAttribute("aria-live", "polite");
    chart.append(tip, live);
    let at = -1;
    const show = (i, spoken) => {
      at = i;
      const stop = stops[i];
      const shrink = drawing.getBoundingClientRect().width / drawing.dataset.width;
      tip.textContent = stop.text;
      tip.hidden = false;
      const left = drawing.offsetLeft + stop.x * shrink, top = drawing.getBoundingClientRect().top - chart.getBoundingClientRect().top;
      const side = left > chart.clientWidth / 2 ? left - tip.offsetWidth - 10 : left + 10;
      tip.style.left = `${Math.max(0, Math.min(side, chart.clientWidth - tip.offsetWidth))}px`;
      tip.style.top = `${Math.max(0, top + stop.y * shrink - tip.offsetHeight / 2)}px`;
      if (spoken) live.textContent = stop.text;
      mark(stop);
    };
    const hide = () => { tip.hidden = true; mark(null); };
    const near = (event) => {
      const box = drawing.getBoundingClientRect();
      const px = (event.clientX - box.left) * drawing.dataset.width / box.width;
      const py = (event.clientY - box.top) * drawing.dataset.width / box.width;
      let best = 0, least = Infinity;
      stops.forEach((stop, i) => {
        const away = stop.free ? Math.abs(stop.x - px) : Math.hypot(stop.x - px, stop.y - py);
        if (away < least) [best, least] = [i, away];
      });
      if (stops.length) show(best, false);
    };
    drawing.addEventListener("pointermove", near);
    drawing.addEventListener("pointerdown", near);
    drawing.addEventListener("pointerleave", hide);
    chart.onkeydown = (event) => {
      if (event.target !== chart || !stops.length) return;
      if (event.key === "Escape") return hide();
      const next = move(event.key, at);
      if (next === null) return;
      event.preventDefault();
      show(Math.max(0, Math.min(stops.length - 1, next)), true);
    };
    chart.onblur = hide;
  }

  const along = (key, at) => key === "ArrowRight" || key === "ArrowDown" ? at + 1 : key === "ArrowLeft" || key === "ArrowUp" ? at - 1
    : key === "Home" ? 0 : key === "End" ? Infinity : null;

  function drawLines(chart, figure, redraw) {
    const width = chart.clientWidth, height = Math.max(230, Math.min(340, width * 0.62));
    const look = looks(figure.series);
    legend(chart, figure, figure.series.map((s) => s.name), look, redraw);
    const shown = figure.series.map((s, i) => ({ ...s, look: look[i] })).filter((s) => !figure.hidden.has(s.name));
    // Two charts side by side have one scale.
    const points = [figure, data[chart.dataset.beside]].flatMap((f) => f?.series ?? []).flatMap((s) => s.points);
    const xs = points.map((p) => p[0]);
    let ys = points.flatMap((p) => [p[1], p[2], p[3]]);
    if (figure.y.log) ys = points.flatMap((p) => [p[1], p[2], p[3]].filter((v) => v > 0.05 * p[1] && v > 0));
    const margin = { top: 22, bottom: 36 };
    const y = scaleOf(figure.y, ys, [height - margin.bottom, margin.top]), marks = ticks(y, figure.y, ys, 6);
    margin.left = 14 + widest(marks.map(text));
    margin.right = 8 + widest([text(d3.max(xs))]) / 2;
    const x = scaleOf(figure.x, xs, [margin.left + 4, width - margin.right]);
    if (!figure.x.log) x.domain(d3.extent(xs));
    const svg = frame(chart, {
      width, height, margin,
      x: { scale: x, ticks: ticks(x, figure.x, xs, Math.floor((width - margin.left) / 58)), label: figure.x.label },
      y: { scale: y, ticks: marks, label: figure.y.label },
    });
    const cursor = svg.append("line").attr("class", "cursor").attr("y1", margin.top).attr("y2", height - margin.bottom)
      .style("display", "none");
    for (const s of shown) {
      if (s.points.some((p) => p[2] !== p[3])) {
        svg.append("path").datum(s.points).style("fill", s.look.stroke).attr("fill-opacity", 0.16)
          .attr("d", d3.area().x((p) => x(p[0])).y0((p) => y(figure.y.log ? Math.max(p[2], y.domain()[0]) : p[2])).y1((p) => y(p[3])));
      }
    }
    for (const s of shown) {
      svg.append("path").datum(s.points).attr("fill", "none").style("stroke", s.look.stroke).attr("stroke-width", 2)
        .attr("stroke-dasharray", s.look.dash).attr("d", d3.line().x((p) => x(p[0])).y((p) => y(p[1])));
      if (s.role !== "measured" || s.points.length > 40) continue;
      svg.append("g").selectAll("circle").data(s.points).join("circle").attr("r", 2.8).style("fill", s.look.stroke)
        .attr("cx", (p) => x(p[0])).attr("cy", (p) => y(p[1]));
    }
    const stops = [...new Set(xs)].sort(d3.ascending).map((at) => ({
      x: x(at), y: height * 0.35, free: true,
      text: [`${figure.x.label} ${text(at)}`].concat(shown.flatMap((s) => s.points.filter((p) => p[0] === at).map((p) =>
        `${s.name}: ${text(p[1])}${p[2] === p[3] ? "" : ` (${text(p[2])} to ${text(p[3])})`}`))).join("\n"),
    }));
    finish(chart, svg, stops, along, (stop) => {
      cursor.style("display", stop ? null : "none");
      if (stop) cursor.attr("x1", stop.x).attr("x2", stop.x);
    });
  }

  function drawDots(chart, figure, redraw) {
    const width = chart.clientWidth, narrow = width < 460;
    const look = looks(figure.series).map((l, i) => figure.series[i].role === "measured" ? l
      : { stroke: "var(--text)", dash: figure.series[i].role === "theory" ? null : "2 3" });
    legend(chart, figure, figure.series.map((s) => s.name), look, redraw);
    const shown = figure.series.map((s, i) => ({ ...s, look: look[i] })).filter((s) => !figure.hidden.has(s.name));
    const measured = shown.filter((s) => s.role === "measured");
    const each = Math.max(narrow ? 40 : 30, 14 * measured.length + (narrow ? 22 : 8));
    const margin = { left: narrow ? 8 : 14 + widest(figure.categories), right: 26, top: 4, bottom: 36 };
    const height = margin.top + each * figure.categories.length + margin.bottom;
    const values = figure.series.flatMap((s) => s.points.flatMap((p) => [p[1], p[2], p[3]])).filter((v) => !figure.x.log || v > 0);
    const x = scaleOf(figure.x, values, [margin.left + 6, width - margin.right - 4]);
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height)
      .attr("aria-hidden", "true");
    const marks = ticks(x, figure.x, values, Math.floor((width - margin.left) / 52));
    svg.append("g").attr("class", "grid").selectAll("line").data(marks).join("line").attr("x1", x).attr("x2", x)
      .attr("y1", margin.top).attr("y2", height - margin.bottom);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - margin.bottom})`)
      .call(d3.axisBottom(x).tickValues(marks).tickFormat(text).tickSizeOuter(0));
    svg.append("text").attr("class", "label").attr("x", width - margin.right).attr("y", height - 4).attr("text-anchor", "end")
      .text(written(figure.x.label));
    const stops = [];
    figure.categories.forEach((name, c) => {
      const top = margin.top + c * each, from = top + (narrow ? 18 : 0), room = each - (narrow ? 20 : 4);
      svg.append("text").attr("class", "label").attr("x", narrow ? 8 : margin.left - 8).attr("y", narrow ? top + 13 : top + each / 2 + 4)
        .attr("text-anchor", narrow ? "start" : "end").text(written(name));
      if (c > 0) svg.append("g").attr("class", "grid").append("line").attr("x1", 0).attr("x2", width).attr("y1", top).attr("y2", top);
      const lines = [name];
      shown.forEach((s) => {
        const p = s.points.find((q) => q[0] === c);
        if (!p) return;
        lines.push(`${s.name}: ${text(p[1])}${p[2] === p[3] ? "" : ` (${text(p[2])} to ${text(p[3])})`}`);
        const turn = measured.indexOf(s);
        const y = from + room * (turn < 0 ? 0.5 : (turn + 0.5) / measured.length);
        if (turn < 0) {
          svg.append("line").attr("x1", x(p[1])).attr("x2", x(p[1])).attr("y1", from + 2).attr("y2", from + room - 2)
            .style("stroke", s.look.stroke).attr("stroke-width", 2).attr("stroke-dasharray", s.look.dash);
          return;
        }
        svg.append("line").attr("x1", x(Math.max(p[2], x.domain()[0]))).attr("x2", x(p[3])).attr("y1", y).attr("y2", y)
          .style("stroke", s.look.stroke).attr("stroke-width", 2.5).attr("stroke-opacity", 0.55);
        svg.append("circle").attr("cx", x(p[1])).attr("cy", y).attr("r", 4.5).style("fill", s.look.stroke);
      });
      stops.push({ x: width / 2, y: top + each / 2, text: lines.join("\n") });
    });
    chart.appendChild(svg.node());
    finish(chart, svg, stops, along, () => {});
  }

  function drawDistribution(chart, figure, redraw) {
    const width = chart.clientWidth, height = Math.max(220, Math.min(320, width * 0.55));
    const look = looks(figure.arms);
    legend(chart, figure, figure.arms.map((a) => a.name), look, redraw);
    const shown = figure.arms.map((a, i) => ({ ...a, look: look[i] })).filter((a) => !figure.hidden.has(a.name));
    const margin = { top: 22, bottom: 36 };
    const y = d3.scaleLinear().domain([0, d3.max(figure.arms.flatMap((a) => a.shares))]).nice().range([height - margin.bottom, margin.top]);
    margin.left = 14 + widest(y.ticks(5).map(text));
    margin.right = 8 + widest([text(d3.max(figure.edges))]) / 2;
    const x = d3.scaleLinear().domain(d3.extent(figure.edges)).range([margin.left + 1, width - margin.right]);
    const svg = frame(chart, {
      width, height, margin,
      x: { scale: x, ticks: x.ticks(Math.floor(width / 70)), label: figure.x.label },
      y: { scale: y, ticks: y.ticks(5), label: "share of values" },
    });
    for (const arm of shown) {
      const bins = arm.shares.map((share, i) => [figure.edges[i], share]).concat([[figure.edges[figure.edges.length - 1], arm.shares[arm.shares.length - 1]]]);
      const shape = (maker) => maker.curve(d3.curveStepAfter).x((b) => x(b[0]));
      if (arm.role === "measured") {
        svg.append("path").datum(bins).style("fill", arm.look.stroke).attr("fill-opacity", 0.25)
          .attr("d", shape(d3.area()).y0(y(0)).y1((b) => y(b[1])));
      }
      svg.append("path").datum(bins).attr("fill", "none").style("stroke", arm.look.stroke).attr("stroke-width", 1.8)
        .attr("stroke-dasharray", arm.look.dash).attr("d", shape(d3.line()).y((b) => y(b[1])));
    }
    const cursor = svg.append("rect").attr("y", margin.top).attr("height", height - margin.top - margin.bottom)
      .style("fill", "var(--muted)").attr("fill-opacity", 0.2).style("display", "none");
    const stops = figure.edges.slice(0, -1).map((edge, i) => ({
      x: (x(edge) + x(figure.edges[i + 1])) / 2, y: height * 0.35, free: true, bin: i,
      text: [`${text(edge)} to ${text(figure.edges[i + 1])}`].concat(shown.map((a) => `${a.name}: ${d3.format(".2~%")(a.shares[i])}`)).join("\n"),
    }));
    finish(chart, svg, stops, along, (stop) => {
      cursor.style("display", stop ? null : "none");
      if (stop) cursor.attr("x", x(figure.edges[stop.bin])).attr("width", x(figure.edges[stop.bin + 1]) - x(figure.edges[stop.bin]));
    });
  }

  // On a canvas: a cell costs no node.
  function drawHeatmap(chart, figure) {
    const width = chart.clientWidth, columns = figure.columns.length, rows = figure.rows.length;
    const font = (size) => `${size}px system-ui, "Noto Sans", "DejaVu Sans", sans-serif`;
    const margin = { left: Math.max(62, 10 + widest(figure.rows)), right: 6, top: 24, bottom: 66 };
    const across = (width - margin.left - margin.right) / columns;
    // Words that do not fit side by side are set upright, so that none is left out.
    const upright = figure.columns.some((name) => isNaN(name)) && widest(figure.columns) > across - 2;
    if (upright) margin.bottom += widest(figure.columns) - 8;
    const down = Math.max(upright ? 18 : 26, Math.min(46, across)), labels = margin.bottom - 66;
    const height = margin.top + rows * down + margin.bottom, bottom = margin.top + rows * down;
    const ratio = Math.max(2, window.devicePixelRatio || 1);
    const canvas = document.createElement("canvas");
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.setAttribute("aria-hidden", "true");
    const dark = d3.lab(colour("--page")).l < 50;
    const place = figure.log ? d3.scaleLog().domain([figure.from, figure.to]).clamp(true) : d3.scaleLinear().domain([figure.from, figure.to]).clamp(true);
    const unscaled = figure.title.startsWith("Unscaled");
    const ramp = figure.log ? d3.interpolateRgbBasis(dark ? ["#3aa0e8", "#24425c", "#26292d", "#6b3f1d", "#ff8a3d"] : ["#0072b2", "#8ec1e0", "#f4f4f2", "#f0b48c", "#c04d00"])
      : unscaled ? d3.interpolateRgbBasis(dark ? ["#2b211a", "#7a3f14", "#d9772b", "#ffc79a"] : ["#fdf6ef", "#f4c39a", "#de7f38", "#8a3a00"])
      : dark ? d3.interpolateRgbBasis(["#1d2733", "#1f4f7a", "#3a8fc9", "#9ad8f5"]) : d3.interpolateRgbBasis(["#f1f6fa", "#9ec9e2", "#3d8fc0", "#08427c"]);
    const shade = (value) => ramp(place(value));
    const brush = canvas.getContext("2d");
    const paint = (chosen) => {
      brush.setTransform(ratio, 0, 0, ratio, 0, 0);
      brush.clearRect(0, 0, width, height);
      brush.textBaseline = "middle";
      figure.values.forEach((value, i) => {
        const cx = margin.left + (i % columns) * across, cy = margin.top + Math.floor(i / columns) * down;
        brush.fillStyle = value === null ? colour("--line") : shade(value);
        brush.fillRect(cx + 0.5, cy + 0.5, across - 1, down - 1);
        if (value === null) {  // masked: crossed out
          brush.strokeStyle = colour("--muted");
          brush.beginPath();
          brush.moveTo(cx + 0.5, cy + down - 0.5);
          brush.lineTo(cx + across - 0.5, cy + 0.5);
          brush.stroke();
        } else if (across > 34 && !(upright && value < 0.01 * figure.to)) {  // between words a blank reads better than 1e-9
          brush.fillStyle = d3.lab(shade(value)).l > 55 ? "#111" : "#fff";
          brush.font = font(11);
          brush.textAlign = "center";
          brush.fillText(value !== 0 && Math.abs(value) < 0.01 ? (Math.abs(value) < 0.001 ? value.toExponential(0) : value.toPrecision(1)) : text(Number(value.toPrecision(2))), cx + across / 2, cy + down / 2);
        }
        if (i === chosen) {
          brush.strokeStyle = colour("--text");
          brush.lineWidth = 2.5;
          brush.strokeRect(cx + 1.5, cy + 1.5, across - 3, down - 3);
          brush.lineWidth = 1;
        }
      });
      brush.fillStyle = colour("--muted");
      brush.font = font(11.5);
      brush.textAlign = "right";
      figure.rows.forEach((name, i) => brush.fillText(name, margin.left - 6, margin.top + (i + 0.5) * down));
      brush.textAlign = "center";
      const stride = upright ? 1 : Math.ceil(widest(figure.columns) / (across - 2));
      figure.columns.forEach((name, i) => {
        if (i % stride !== 0) return;
        brush.save();
        brush.translate(margin.left + (i + 0.5) * across, bottom + (upright ? 6 : 12));
        if (upright) {
          brush.rotate(-Math.PI / 2);
          brush.textAlign = "right";
        }
        brush.fillText(name, 0, 0);
        brush.restore();
      });
      brush.textAlign = "left";
      brush.fillText(written(figure.row_label), 0, 10);
      brush.textAlign = "right";
      brush.fillText(written(figure.column_label), width - margin.right, bottom + 27 + labels);
      // The colour scale.
      const wide = Math.min(200, width - margin.left - margin.right), at = bottom + 40 + labels;
      for (let i = 0; i < wide; ++i) {
        brush.fillStyle = ramp(i / wide);
        brush.fillRect(margin.left + i, at, 1.5, 10);
      }
      brush.fillStyle = colour("--muted");
      brush.textAlign = "right";
      brush.fillText(text(figure.from), margin.left - 6, at + 5);
      brush.textAlign = "left";
      brush.fillText(text(figure.to), margin.left + wide + 6, at + 5);
      brush.fillText(written(figure.value_label), margin.left, at + 19);
    };
    paint(-1);
    chart.append(canvas);
    const stops = figure.values.map((value, i) => ({
      x: margin.left + (i % columns + 0.5) * across, y: margin.top + (Math.floor(i / columns) + 0.5) * down, cell: i,
      text: `${figure.row_label} ${figure.rows[Math.floor(i / columns)]}, ${figure.column_label} ${figure.columns[i % columns]}\n` +
        (value === null ? "masked" : `${figure.value_label}: ${text(value)}`),
    }));
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const move = (key, cell) => key in step ? (cell < 0 ? 0 : cell + step[key] in figure.values ? cell + step[key] : cell) : key === "Home" ? 0 : key === "End" ? Infinity : null;
    canvas.dataset.width = width;
    tooltip(chart, canvas, stops, move, (stop) => paint(stop ? stop.cell : -1));
  }

  function finish(chart, svg, stops, move, mark) {
    const drawing = svg.node();
    drawing.dataset.width = svg.attr("width");
    tooltip(chart, drawing, stops, move, mark);
  }

  const kinds = { lines: drawLines, dots: drawDots, distribution: drawDistribution, heatmap: drawHeatmap };

  function draw(chart) {
    const figure = data[chart.dataset.figure];
    figure.hidden = figure.hidden || new Set();
    chart.replaceChildren();
    chart.tabIndex = 0;
    chart.setAttribute("role", "group");
    chart.setAttribute("aria-label", `Chart: ${figure.title}. ${figure.text} Arrow keys read the values.`);
    kinds[figure.kind](chart, figure, () => draw(chart));
    if (typeof Draw !== "undefined") Draw.subscripts(chart);  // web/draw.js, where the page has it
    chart.dataset.drawn = chart.clientWidth;
  }

  // A chart is drawn when it is first seen: what is closed has no width.
  const charts = [...document.querySelectorAll(".chart")];
  const seen = (redraw) => charts.filter((c) => c.clientWidth && (redraw || c.clientWidth !== Number(c.dataset.drawn))).forEach(draw);
  let pending = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => seen(false));
  }).observe(document.body);
  document.addEventListener("toggle", () => seen(false), true);
  seen(true);
  reveal();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => seen(true));
  addEventListener("beforeprint", () => { document.documentElement.classList.add("print"); seen(true); });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("print"); seen(true); });
})();
