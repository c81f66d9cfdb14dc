// The worked example: X, W_Q, W_K, W_V → Q, K, V → scores → weights → output. Every number of X and the projections can be changed; what
// changes with it is marked.
"use strict";
const Example = (() => {
  const { element, number } = Draw;
  const TOKENS = 3, MODEL = 3, HEAD = 2;
  // With X = I these are the Q, K and V that document 003 prints.
  const GIVEN = {
    X: [1, 0, 0, 0, 1, 0, 0, 0, 1],
    W_Q: [1, 0, 0, 1, 1, 1],
    W_K: [1, 0, 0, 1, 0.5, 0.5],
    W_V: [1, 0, 0, 1, 0.5, 0.5],
  };
  const COLUMNS = { X: MODEL, W_Q: HEAD, W_K: HEAD, W_V: HEAD };

  const multiply = (a, b, inner) => {
    const columns = b.length / inner;
    return Float32Array.from({ length: a.length / inner * columns }, (_, i) => {
      const row = Math.floor(i / columns), column = i % columns;
      let sum = 0;
      for (let t = 0; t < inner; ++t) sum += a[row * inner + t] * b[t * columns + column];
      return sum;
    });
  };

  function start(place, keel) {
    const given = structuredClone(GIVEN), inputs = {}, outputs = {};
    let scaled = true;

    const grid = (columns, cells) => element("div", { class: "cells", style: `grid-template-columns: repeat(${columns}, auto)` }, ...cells);
    function editable(name) {
      inputs[name] = given[name].map((value, i) => element("input", {
        type: "number", step: "any", value, "aria-label": `${name}, row ${1 + Math.floor(i / COLUMNS[name])}, column ${1 + i % COLUMNS[name]}`,
        oninput: (event) => {
          const typed = event.target.valueAsNumber;
          event.target.setAttribute("aria-invalid", String(!Number.isFinite(typed)));
          if (!Number.isFinite(typed)) return;
          given[name][i] = typed;
          update();
        },
      }));
      return element("div", { class: "matrix given" }, element("h3", { text: name }), grid(COLUMNS[name], inputs[name]));
    }
    function result(name, title, columns, count) {
      outputs[name] = Array.from({ length: count }, () => element("span", { class: "cell" }));
      const heading = element("h3", { text: title });
      return { box: element("div", { class: "matrix" }, heading, grid(columns, outputs[name])), heading };
    }
    function show(name, values, most) {
      values.forEach((value, i) => {
        const cell = outputs[name][i], text = number(value);
        cell.classList.toggle("changed", cell.textContent !== "" && cell.textContent !== text);
        cell.textContent = text;
        cell.dataset.value = value;
        if (most) cell.style.setProperty("--share", `${Math.round(70 * Math.min(1, Math.abs(value) / most))}%`);
      });
    }

    const scores = result("S", "", TOKENS, TOKENS * TOKENS);
    const divide = element("input", { type: "checkbox", id: "worked-scaled", checked: true, onchange: () => { scaled = divide.checked; update(); } });
    const reset = element("button", {
      type: "button", class: "plain", text: "Reset to document 003", onclick: () => {
        for (const name in GIVEN) GIVEN[name].forEach((value, i) => { given[name][i] = value; inputs[name][i].value = value; inputs[name][i].removeAttribute("aria-invalid"); });
        scaled = divide.checked = true;
        update();
      },
    });
    const step = (text, ...boxes) => element("div", { class: "step" }, element("p", { text }), element("div", { class: "matrices" }, ...boxes));
    place.append(element("div", {},
      step("1. Three tokens, the rows of X, and three projections. Change any number.", ...Object.keys(GIVEN).map(editable)),
      element("p", { class: "under" }, divide, element("label", { for: "worked-scaled", text: " divide the scores by √d_k = √2 " }), reset)), element("div", {},
      step("2. Project: Q = X·W_Q, K = X·W_K, V = X·W_V. One row per token.", result("Q", "Q", HEAD, TOKENS * HEAD).box, result("K", "K", HEAD, TOKENS * HEAD).box, result("V", "V", HEAD, TOKENS * HEAD).box),
      step("3. Compare every query with every key, normalise each row, and average the values with its weights.", scores.box, result("A", "A = softmax(S)", TOKENS, TOKENS * TOKENS).box, result("O", "O = A·V", HEAD, TOKENS * HEAD).box)));

    function update() {
      const [q, k, v] = ["W_Q", "W_K", "W_V"].map((name) => multiply(given.X, given[name], MODEL));
      const call = { n_q: TOKENS, n_k: TOKENS, d_k: HEAD, d_v: HEAD, q, k, v, scale: scaled ? Math.fround(1 / Math.sqrt(HEAD)) : 1 };
      const r = keel.attend(call), s = keel.scores(call);
      scores.heading.textContent = scaled ? "S = Q·Kᵀ / √2" : "S = Q·Kᵀ";
      show("Q", q);
      show("K", k);
      show("V", v);
      show("S", s);
      show("A", r.weights, 1);
      show("O", r.out);
      Example.shown = { call, weights: r.weights, out: r.out };
    }
    update();
  }

  return { start };
})();
