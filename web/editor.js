// An attention of the reader's own: a sentence or matrices, and every option that changes the weights.
"use strict";
const Editor = (() => {
  const { element, number, choice, shades, norm } = Draw;
  const MOST_TOKENS = 64, D_V = 16;

  // A stream of random numbers for a word: FNV-1a over its letters.
  const stream = (word, kind) => {
    let hash = 2166136261;
    for (const c of `${kind}:${word.toLowerCase()}`) hash = Math.imul(hash ^ c.codePointAt(0), 16777619);
    return hash >>> 0;
  };
  function sentence(keel, text, d) {
    const words = text.split(/\s+/).filter(Boolean).slice(0, MOST_TOKENS);
    if (!words.length) throw new Error("Sentence: expected at least one word, got none");
    const all = (kind, width) => Float32Array.from(words.flatMap((w) => [...keel.normals(width, stream(w, kind), 1)]));
    return { labels: words, q: all("q", d), k: all("k", d), v: all("v", D_V), d_k: d, d_v: D_V };
  }
  function matrix(name, text) {
    const rows = text.trim().split(/\n/).map((line) => line.trim().split(/[\s,;]+/).map(Number));
    rows.forEach((row, i) => {
      if (row.some((x) => !Number.isFinite(x))) throw new Error(`${name}, row ${i + 1}: expected numbers, got "${text.trim().split(/\n/)[i].trim()}"`);
      if (row.length !== rows[0].length) throw new Error(`${name}, row ${i + 1}: expected ${rows[0].length} numbers as in row 1, got ${row.length}`);
    });
    if (rows.length > MOST_TOKENS) throw new Error(`${name}: expected at most ${MOST_TOKENS} rows, got ${rows.length}`);
    return { rows: rows.length, columns: rows[0].length, values: Float32Array.from(rows.flat()) };
  }
  function matrices(texts) {
    const [q, k, v] = ["Q", "K", "V"].map((name) => matrix(name, texts[name]));
    if (k.columns !== q.columns) throw new Error(`K: expected ${q.columns} columns as in Q, got ${k.columns}`);
    if (v.rows !== k.rows) throw new Error(`V: expected ${k.rows} rows as in K, got ${v.rows}`);
    const label = (n) => Array.from({ length: n }, (_, i) => String(i + 1));
    return { labels: label(q.rows), keys: label(k.rows), q: q.values, k: k.values, v: v.values, d_k: q.columns, d_v: v.columns };
  }
  const normalised = (values, d) => values.map((x, i) => x / (norm(values.slice(i - i % d, i - i % d + d)) || 1));

  function start(place, keel) {
    const field = (id, label, input) => element("div", { class: "field" }, element("label", { for: id, text: label }), Object.assign(input, { id }));
    const update = () => {
      try {
        error.textContent = "";
        show(compute());
      } catch (problem) {
        error.textContent = problem.message;
      }
    };
    const on = { oninput: update };
    const numberInput = (value, more = {}) => element("input", { type: "number", step: "any", value, ...on, ...more });
    const select = (options) => element("select", on, ...options.map(([value, text]) => element("option", { value, text })));
    const area = (text) => element("textarea", { rows: 4, spellcheck: "false", ...on }, text);

    let mode = "sentence";
    const text = element("textarea", { rows: 2, ...on }, "the cat saw the dog and the dog saw the cat");
    const size = select([4, 16, 64, 256].map((d) => [d, String(d)]));
    size.value = "64";
    const texts = { Q: area("1 0\n0 1\n1 1"), K: area("1 0\n0 1\n0.5 0.5"), V: area("1 0\n0 1\n0.5 0.5") };
    const scale = select([["root", "÷ √d_k"], ["none", "unscaled"], ["number", "× a factor of your own"], ["norm", "QK-norm, × a factor"]]);
    const factor = numberInput(1);
    const mask = select([["none", "none"], ["causal", "causal"], ["window", "causal, at most 2 keys back"]]);
    const softcap = numberInput("", { min: 0, placeholder: "none" });
    const sink = numberInput("", { placeholder: "none" });
    const error = element("p", { class: "error", role: "alert" });
    const canvases = { weights: element("canvas", { role: "img" }), gradient: element("canvas", { role: "img" }) };
    const table = element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Rows, as numbers" });

    const asSentence = element("div", { class: "fields" }, field("editor-text", "Sentence", text), field("editor-size", "Head size d_k", size));
    const asMatrices = element("div", { class: "fields", hidden: true }, ...["Q", "K", "V"].map((name) => field(`editor-${name}`, name, texts[name])));
    const modes = choice("Input", [["sentence", "A sentence"], ["matrices", "Matrices"]], mode, (chosen) => {
      mode = chosen;
      asSentence.hidden = mode !== "sentence";
      asMatrices.hidden = mode === "sentence";
      update();
    });
    place.append(
      element("div", { class: "controls" }, modes.box, asSentence, asMatrices,
        element("div", { class: "fields" }, field("editor-scale", "Scale", scale), field("editor-factor", "Factor", factor), field("editor-mask", "Mask", mask),
          field("editor-softcap", "Softcap c: c·tanh(s/c)", softcap), field("editor-sink", "Sink: a logit without a value", sink)),
        error),
      element("div", { class: "results" },
        element("div", { class: "maps" },
          element("figure", { class: "map" }, element("h3", { text: "Weights: who attends to whom" }), canvases.weights),
          element("figure", { class: "map" }, element("h3", { text: "Size of the gradient at the scores" }), canvases.gradient)),
        table));

    function compute() {
      const given = mode === "sentence" ? sentence(keel, text.value, Number(size.value)) : matrices(Object.fromEntries(Object.entries(texts).map(([n, a]) => [n, a.value])));
      const own = factor.valueAsNumber;
      factor.disabled = !["number", "norm"].includes(scale.value);
      if (!factor.disabled && !Number.isFinite(own)) throw new Error("Factor: expected a number, got none");
      if (scale.value === "norm") Object.assign(given, { q: normalised(given.q, given.d_k), k: normalised(given.k, given.d_k) });
      const n_q = given.labels.length, n_k = (given.keys || given.labels).length;
      const call = {
        n_q, n_k, d_k: given.d_k, d_v: given.d_v, q: given.q, k: given.k, v: given.v, causal: mask.value !== "none", window: mask.value === "window" ? 2 : -1,
        scale: Math.fround(scale.value === "root" ? 1 / Math.sqrt(given.d_k) : scale.value === "none" ? 1 : own),
        softcap: softcap.value === "" ? 0 : softcap.valueAsNumber, sink: sink.value === "" ? NaN : sink.valueAsNumber, dout: keel.normals(n_q * given.d_v, 9),
      };
      return { given, call, result: keel.attend(call) };
    }

    function show({ given, call, result }) {
      const { n_q, n_k } = call, keys = given.keys || given.labels;
      const sees = (i, j) => !call.causal || (j <= i && (call.window < 0 || j >= i - call.window));
      const visible = (values) => [...values].map((x, at) => sees(Math.floor(at / n_k), at % n_k) ? x : NaN);
      const room = Math.max(140, Math.min(320, place.clientWidth / (place.clientWidth < 700 ? 1 : 3) - 20));
      const names = { rows: given.labels, columns: keys }, most = Math.max(...result.ds.map(Math.abs), 1e-30);
      shades(canvases.weights, { values: visible(result.weights), columns: n_k, name: "c2", most: 1, size: room, names });
      shades(canvases.gradient, { values: visible(result.ds), columns: n_k, name: "c3", most, size: room, names });
      const row = (i, values) => [...values.slice(i * n_k, (i + 1) * n_k)];
      const best = given.labels.map((_, i) => row(i, result.weights).reduce((at, w, j, all) => w > all[at] ? j : at, 0));
      canvases.weights.setAttribute("aria-label", `Weights of ${n_q} queries over ${n_k} keys. ` + given.labels.map((l, i) => `${l} attends most to ${keys[best[i]]}, ${number(result.max_weight[i])}`).join("; "));
      canvases.gradient.setAttribute("aria-label", `Sizes of the gradient at ${n_q} × ${n_k} scores; the largest is ${number(most)}`);
      const head = ["query", "attends most to", "weight", "entropy", "gradient", ...(call.d_v <= 4 ? ["output"] : [])];
      const body = given.labels.map((label, i) => [label, keys[best[i]], number(result.max_weight[i]), number(result.entropy[i]), number(norm(row(i, result.ds))),
        ...(call.d_v <= 4 ? [[...result.out.slice(i * call.d_v, (i + 1) * call.d_v)].map(number).join("  ")] : [])]);
      table.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head.map((text, c) => element("th", { scope: "col", class: c > 1 ? "number" : null, text })))),
        element("tbody", {}, ...body.map((cells) => element("tr", {}, ...cells.map((text, c) => element("td", { class: c > 1 ? "number" : null, text })))))));
      Editor.shown = { call, result };
    }
    update();
    addEventListener("resize", update);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  }

  return { start };
})();
