// The live figure: one row of attention, its scores, weights and gradient, with and without the scaling; and the same
// for a square of rows, as two maps. Both follow one state.
"use strict";
const Live = (() => {
  const { element, subscripts, number, slider, choice, bars, shades, norm, deviation, median } = Draw;
  const powers = (from, to, step = 1) => Array.from({ length: Math.round((to - from) / step) + 1 }, (_, i) => 2 ** (from + i * step));
  const ARMS = ["unscaled", "scaled"];
  const NAMES = { unscaled: "Unscaled", scaled: "Divided by √d_k" };
  const SHORT = { unscaled: "unscaled", scaled: "divided by √d_k" };
  const D_V = 16, ROWS = 16;

  // Everything that can be moved. A slider stands at a place in its list.
  const LIVE = {
    size: powers(0, 10), keys: powers(1, 8), temperature: powers(-2, 2, 0.5), spread: powers(-2, 1, 0.5),
  };

  // Rows computed by Keel's kernels from random numbers that a new row draws again. Keys and columns are added to those that are
  // there, so that a step of a slider changes nothing else.
  function computed(keel) {
    const most = { keys: LIVE.keys.at(-1), size: LIVE.size.at(-1) };
    let drawn = -1, numbers = null;
    function draw(row) {
      if (row === drawn) return;
      const take = (count, kind) => keel.normals(count, 8 * row + kind);
      numbers = { q: take(ROWS * most.size, 0), k: take(most.keys * most.size, 1), v: take(most.keys * D_V, 2), dout: take(ROWS * D_V, 3) };
      drawn = row;
    }
    // The first d columns of the first `rows` rows, times `spread`.
    const corner = (matrix, rows, d, spread) => Float32Array.from({ length: rows * d }, (_, i) => spread * matrix[Math.floor(i / d) * most.size + i % d]);
    function call(state, arm, rows, keys) {
      draw(state.row);
      const root = arm === "scaled" ? Math.sqrt(state.size) : 1;
      return {
        n_q: rows, n_k: keys, d_k: state.size, d_v: D_V, scale: Math.fround(1 / (state.temperature * root)),
        q: corner(numbers.q, rows, state.size, state.spread), k: corner(numbers.k, keys, state.size, state.spread),
        v: numbers.v.slice(0, keys * D_V), dout: numbers.dout.slice(0, rows * D_V),
      };
    }
    return {
      lists: LIVE,
      row(state, arm) {
        const given = call(state, arm, 1, state.keys), r = keel.attend(given);
        return { given, scores: keel.scores(given), weights: r.weights, gradient: r.ds, entropy: r.entropy[0], largest: r.max_weight[0] };
      },
      map(state, arm) {
        const r = keel.attend({ ...call(state, arm, ROWS, ROWS), dout: null });
        return { weights: r.weights, largest: r.max_weight };
      },
    };
  }

  // Rows that the program recorded, where the page has no kernels: at some sizes and numbers of keys, and nothing else.
  function recorded(data) {
    const at = (state) => data.rows[`${state.size}/${state.keys}`];
    return {
      lists: { size: data.sizes, keys: data.keys, temperature: [1], spread: [1] },
      row: (state, arm) => ({ given: null, ...at(state)[arm] }),
      map: (state, arm) => data.maps[state.size][arm],
    };
  }

  const readings = {
    scores: ["Scores s = q·k", "standard deviation", (r) => deviation(r.scores)],
    weights: ["Weights softmax(s)", "largest", (r) => r.largest],
    entropy: ["", "entropy", (r) => r.entropy],
    gradient: ["Gradient ∂L/∂s", "norm", (r) => norm(r.gradient)],
  };

  function start(source, keel) {
    const lists = source.lists, near = (list, value) => list.reduce((best, v, i) => Math.abs(v - value) < Math.abs(list[best] - value) ? i : best, 0);
    // Row 22 is a usual one: its scores have a standard deviation of 8.0, and its largest weight, 0.90, is about the median
    // of such rows (0.92 of rows 0 to 39).
    const state = { size: 64, keys: 16, temperature: 1, spread: 1, arm: "unscaled", row: 22 };
    const figures = [];
    const update = () => figures.forEach((draw) => draw());
    const sliders = { size: [] };
    const move = (key) => (index) => {
      state[key] = lists[key][index];
      (sliders[key] || []).forEach((s) => s.set(index));
      update();
    };
    const control = (id, key, label, show) => {
      const s = slider(id, label, lists[key], near(lists[key], state[key]), show, move(key));
      if (lists[key].length === 1) s.input.disabled = true;
      if (sliders[key]) sliders[key].push(s);
      return s.box;
    };

    const place = document.getElementById("live");
    if (place) figures.push(rowFigure(place, source, state, control, update));
    const maps = document.getElementById("maps");
    if (maps) figures.push(mapFigure(maps, source, state, control));
    update();
    addEventListener("resize", update);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
    if (keel) Live.size = keel.bytes;
    if (place && keel) time(place, keel);
    return state;
  }

  function rowFigure(place, source, state, control, update) {
    const head = element("p", { class: "status", role: "status" });
    const panels = {}, numbers = {};
    const rows = ["scores", "weights", "gradient"].map((key) => {
      const reading = element("p", { class: "reading" }, element("span", { class: "what", text: readings[key][0] }));
      for (const part of key === "weights" ? ["weights", "entropy"] : [key]) {
        const shown = ARMS.map((arm) => numbers[`${part}.${arm}`] = element("b", { class: arm, "data-number": `${part}.${arm}` }));
        reading.append(element("span", { class: "pair" }, `${readings[part][1]} `, shown[0], " → ", shown[1]));
      }
      panels[key] = element("div", { class: "bars-box" });
      return element("div", { class: "panel" }, reading, panels[key]);
    });
    const arms = choice("Scaling", [["unscaled", "unscaled", "unscaled"], ["scaled", "÷ √d_k", "scaled"]], state.arm, (arm) => { state.arm = arm; update(); });
    const again = element("button", { type: "button", class: "plain", text: "Draw another row", onclick: () => { ++state.row; update(); } });
    const fixed = source.lists.spread.length === 1;
    if (fixed) again.disabled = true;
    place.append(
      element("div", { class: "controls" }, arms.box,
        control("live-size", "size", "Head size d_k", String),
        control("live-keys", "keys", "Keys", String),
        control("live-temperature", "temperature", "Temperature τ", (t) => `× ${number(t)}`),
        control("live-spread", "spread", "Initialisation: σ of q and k", number),
        again),
      element("div", { class: "panels" }, head, ...rows));
    return () => {
      const found = Object.fromEntries(ARMS.map((arm) => [arm, source.row(state, arm)]));
      const other = ARMS.find((arm) => arm !== state.arm);
      for (const key of Object.keys(readings)) {
        for (const arm of ARMS) {
          const value = readings[key][2](found[arm]), shown = numbers[`${key}.${arm}`];
          shown.textContent = number(value);
          shown.dataset.value = value;
          shown.classList.toggle("chosen", arm === state.arm);
        }
      }
      for (const key in panels) {
        const lines = (arm) => ({ values: [...found[arm][key]], name: arm });
        bars(panels[key], { chosen: lines(state.arm), other: lines(other), height: panels[key].clientHeight, low: key === "weights" ? 0 : undefined });
      }
      const even = Math.log(state.keys), is = found[state.arm];
      head.textContent = `Bars: ${SHORT[state.arm]}. Line: ${SHORT[other]}. ${NAMES[state.arm]}, one of ${state.keys} keys gets ` +
        `${Math.round(100 * is.largest)}\u00a0% of the attention; the entropy is ${number(is.entropy)} of at most ${number(even)} nats.`;
      subscripts(head);
      Live.shown = { state: { ...state }, found };
    };
  }

  function mapFigure(place, source, state, control) {
    const parts = Object.fromEntries(ARMS.map((arm) => {
      const canvas = element("canvas", { role: "img" });
      return [arm, { canvas, text: element("figcaption"), box: null }];
    }));
    place.append(
      element("div", { class: "controls inline" }, control("maps-size", "size", "Head size d_k", String)),
      element("div", { class: "maps" }, ...ARMS.map((arm) => parts[arm].box = element("figure", { class: "map" },
        element("h3", { class: arm, text: NAMES[arm] }), parts[arm].canvas, parts[arm].text))));
    return () => {
      const size = Math.min(300, parts.scaled.box.clientWidth - 24);
      for (const arm of ARMS) {
        const { weights, largest } = source.map(state, arm), middle = median([...largest]);
        shades(parts[arm].canvas, { values: [...weights], columns: ROWS, name: arm, most: 1, size });
        parts[arm].canvas.setAttribute("aria-label", `Weights of ${ROWS} queries over ${ROWS} keys, ${arm}: the median of the largest weight is ${number(middle)}`);
        parts[arm].text.textContent = `The median row gives ${Math.round(100 * middle)}\u00a0% to one key.`;
      }
    };
  }

  // How long the kernels take for a call of 256 × 256 scores at d = 64, as the page sees it.
  function time(place, keel) {
    const n = 256, d = 64, shown = element("p", { class: "timing" });
    place.after(shown);
    const [q, k, v, dout] = [1, 2, 3, 4].map((stream) => keel.normals(n * d, stream));
    const laps = [], once = () => {
      const from = performance.now();
      keel.attend({ n_q: n, n_k: n, d_k: d, d_v: d, q, k, v, dout });
      laps.push(performance.now() - from);
      if (laps.length < 21) return setTimeout(once, 0);
      const middle = median(laps);
      shown.dataset.value = middle;
      shown.dataset.least = Math.min(...laps);
      shown.textContent = `Computed in this page by Keel's own CPU kernels, as WebAssembly of ${Math.round(keel.bytes / 1000)} KB: ` +
        `256 queries × 256 keys at d = 64, forward and backward, take ${middle.toFixed(1)} ms (median of ${laps.length}).`;
    };
    setTimeout(once, 300);
  }

  return { start, computed, recorded };
})();
