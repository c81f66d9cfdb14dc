// Breaks to find: one case at a time; guesses and hints, then the line. What was guessed is remembered by the browser, if it may.
"use strict";
(() => {
  const section = document.getElementById("breaks");
  if (!section) return;
  const KEY = "keel-lab-guesses";
  const read = () => {
    try {
      return JSON.parse(localStorage.getItem(KEY)) || {};
    } catch {
      return {};
    }
  };
  const guesses = read();  // by name: {right, wrong}
  const keep = () => {
    try {
      localStorage.setItem(KEY, JSON.stringify(guesses));
    } catch { /* a page from a file may be refused: then they last as long as the page */ }
  };
  const times = (n, what) => `${n} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;
  const tabs = [...section.querySelectorAll("[data-case]")], cases = [...section.querySelectorAll(".case")];

  function tally() {
    const all = Object.values(guesses), found = all.filter((g) => g.right).length, wrong = all.reduce((sum, g) => sum + g.wrong, 0);
    section.querySelector(".tally").textContent = found + wrong ? `So far you have found ${found} of ${cases.length}, with ${times(wrong, "wrong guess")}.` : "";
    for (const tab of tabs) tab.classList.toggle("found", Boolean(guesses[tab.dataset.case]?.right));
  }
  function choose(name) {
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.dataset.case === name));
    for (const each of cases) each.hidden = each.dataset.name !== name;
  }
  for (const tab of tabs) tab.addEventListener("click", () => choose(tab.dataset.case));

  for (const each of cases) {
    const name = each.dataset.name, said = each.querySelector(".said"), hints = [...each.querySelectorAll(".hints li")];
    const suspects = [...each.querySelectorAll("[data-guess]")], hint = each.querySelector(".hint");
    let wrong = 0;
    const asked = () => hints.filter((h) => !h.hidden).length;
    const say = (before, button, after) => said.replaceChildren(before, ...button.cloneNode(true).childNodes, after);  // with its subscripts
    const solve = (before, button, after) => {
      say(before, button, after);
      for (const button of suspects) {
        button.disabled = true;
        if (button.dataset.guess === name) button.classList.add("right");
      }
      each.querySelector(".asking").hidden = true;
      each.querySelector(".solution").hidden = false;
    };
    hint.addEventListener("click", () => {
      hints[asked()].hidden = false;
      hint.disabled = asked() === hints.length;
      hint.textContent = hint.disabled ? "No more hints" : "Another hint";
    });
    for (const button of suspects) {
      button.addEventListener("click", () => {
        const mine = guesses[name] ??= { right: 0, wrong: 0 };
        if (button.dataset.guess === name) {
          ++mine.right;
          solve("Yes: ", button, `. ${times(wrong + 1, "guess")}, ${times(asked(), "hint")}.`);
        } else {
          ++mine.wrong;
          ++wrong;
          button.disabled = true;
          say("No, not that: ", button, `.${hint.disabled ? "" : " A hint may help."}`);
        }
        keep();
        tally();
      });
    }
    each.querySelector(".give-up").addEventListener("click", () =>
      solve("It was this: ", suspects.find((b) => b.dataset.guess === name), "."));
  }
  tally();
})();
