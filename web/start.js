// Starts whatever of the playground the page has a place for.
"use strict";
(async () => {
  // d_k as d with a small k, in what is written: not in code, not in a control's own text.
  function subscripts(root) {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = [];
    while (walk.nextNode()) {
      const parent = walk.currentNode.parentElement;
      if (/\b[dnW]_(k|v|a|q|model|[QKVsh])\b/.test(walk.currentNode.data) && !parent.closest("code, pre, textarea, option, svg, script, sub")) found.push(walk.currentNode);
    }
    for (const node of found) {
      const parts = node.data.split(/\b([dnW])_(k|v|a|q|model|[QKVsh])\b/), pieces = [];
      for (let i = 0; i < parts.length; i += 3) pieces.push(parts[i], ...(i + 2 < parts.length ? [parts[i + 1], Draw.element("sub", { text: parts[i + 2] })] : []));
      node.replaceWith(...pieces);
    }
  }
  const text = (id) => (document.getElementById(id)?.textContent ?? "").trim();
  const kernels = text("kernels");
  try {
    const keel = kernels ? await Keel.load(kernels) : null;
    if (keel || text("recorded")) Live.start(keel ? Live.computed(keel) : Live.recorded(JSON.parse(text("recorded"))), keel);
    for (const [id, part] of [["worked", Example], ["editor", Editor]]) {
      const place = document.getElementById(id);
      if (place && keel) part.start(place, keel);
    }
    subscripts(document.body);
    document.documentElement.dataset.playground = keel ? "kernels" : "recorded";
  } catch (problem) {  // an old browser: the rest of the page does without
    document.documentElement.dataset.playground = "failed";
    for (const place of document.querySelectorAll(".live")) place.textContent = `This browser cannot run the kernels: ${problem.message}`;
  }
})();
