// Starts whatever of the playground the page has a place for.
"use strict";
(async () => {
  const text = (id) => (document.getElementById(id)?.textContent ?? "").trim();
  const kernels = text("kernels");
  try {
    const keel = kernels ? await Keel.load(kernels) : null;
    if (keel || text("recorded")) Live.start(keel ? Live.computed(keel) : Live.recorded(JSON.parse(text("recorded"))), keel);
    for (const [id, part] of [["worked", Example], ["editor", Editor]]) {
      const place = document.getElementById(id);
      if (place && keel) part.start(place, keel);
    }
    Draw.subscripts(document.body);
    document.documentElement.dataset.playground = keel ? "kernels" : "recorded";
  } catch (problem) {  // an old browser: the rest of the page does without
    document.documentElement.dataset.playground = "failed";
    for (const place of document.querySelectorAll(".live")) place.textContent = `This browser cannot run the kernels: ${problem.message}`;
  }
})();
