#!/usr/bin/env python3
"""browser.py REPORT [--keel PROGRAM] [--shots FOLDER]: opens a page of the lab in headless Chromium, as wide as a phone and as a
desktop, light and dark.

Fails when the page logs an error, asks the network for anything, is wider than the screen, is larger than 2 MB, has a chart
without marks, has no answer and live figure on its first screen, or lacks names or contrast (accessible.js; also axe-core's, where
--axe names its axe.min.js). With --keel, moves what can be moved and compares what is drawn with that program. With --shots,
leaves a picture of each section. Exits with 77 where there is no Chromium, or none that starts.
It first opens a page with these faults, to see that they are found.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import breaks
import chromium
import playground

WIDTHS = {"phone": (390, 844), "desktop": (1280, 900)}
MOST_BYTES = 2_000_000
ACCESSIBLE = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")

# What each chart has drawn: shapes of an SVG that are neither axis nor grid, or pixels of a canvas that differ from its corner.
MARKS = """[...document.querySelectorAll('.chart')].map(chart => {
  const canvas = chart.querySelector('canvas');
  let marks = [...chart.querySelectorAll(':scope > svg path, :scope > svg circle, :scope > svg rect, :scope > svg line')]
    .filter(e => !e.closest('.axis, .grid') && !e.classList.contains('cursor') && e.getAttribute('d') !== '').length;
  if (canvas) {
    const p = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 4; i < p.length; i += 4) if (p[i] !== p[0] || p[i + 1] !== p[1] || p[i + 3] !== p[3]) ++marks;
  }
  return [chart.dataset.figure, marks];
})"""

# Labels of charts that stick out of their drawing.
CLIPPED = """[...document.querySelectorAll('.chart > svg, .bars-box > svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => t.textContent).filter(t => {
    const r = t.getBoundingClientRect();
    return r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 2 || r.bottom > box.bottom + 2;
  }).map(t => `${svg.parentElement.dataset.figure ?? 'live'}: "${t.textContent}"`);
})"""

# The lower edges of the answer and of the live figure's bars, and how many bars there are.
FIRST = """(() => {
  const answer = document.querySelector('.answer'), bars = [...document.querySelectorAll('#live .bars')];
  return [answer ? answer.getBoundingClientRect().bottom : 1e9, bars.length ? bars.at(-1).ownerSVGElement.getBoundingClientRect().bottom : 1e9];
})()"""

FAULTY = """<!doctype html><meta name=viewport content="width=device-width"><div class=chart data-figure=empty><svg width=50 height=20><text x=45 y=15>long</text></svg></div>
<div style="width:3000px">wide</div><input><p style="color:#999;background:#fff">pale</p><h4>deep</h4><p id=a></p><p id=a></p>
<img src="http://127.0.0.1:9/x.png"><script>console.error('planted'); missing();</script>"""
PLANTED = {"exception", "console", "request", "wide", "empty", "clipped", "first screen", "name", "contrast", "heading", "id"}


def faults(browser, live, axe):
    """What is wrong with the page that is open."""
    height = browser.evaluate("innerHeight")
    found = [f"first screen: {what} ends at {bottom:.0f} of {height}" for what, bottom in zip(("the answer", "the live figure"), browser.evaluate(FIRST))
             if live and bottom > height]
    browser.evaluate("document.querySelectorAll('details').forEach(d => { if (!d.matches('.numbers, td details')) d.open = true; })")
    browser.evaluate("document.querySelectorAll('.case, .solution, .hints li').forEach(e => { e.hidden = false; })")
    browser.evaluate("new Promise(done => setTimeout(done, 300))")
    found += browser.complaints()
    wide = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        found.append(f"wide: {wide} pixels more than the screen")
    found += [f"empty: {figure}" for figure, marks in browser.evaluate(MARKS) if not marks]
    found += [f"clipped: {label}" for label in browser.evaluate(CLIPPED)]
    found += browser.evaluate(ACCESSIBLE)
    if axe:
        browser.evaluate(axe.read_text(encoding="utf-8") + "; 0")
        tags = json.dumps(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"])
        found += browser.evaluate(f"axe.run({{runOnly: {tags}}}).then(r => r.violations.flatMap(v => v.nodes.map(n => `axe ${{v.id}}: ${{n.html.slice(0, 100)}}`)))")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=Path)
    for option in ("--keel", "--shots", "--axe"):
        parser.add_argument(option, type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        browser = chromium.Browser(chromium.program(), folder / "profile")
        (folder / "faulty.html").write_text(FAULTY, encoding="utf-8")
        browser.open((folder / "faulty.html").as_uri(), WIDTHS["phone"])
        missed = PLANTED - {fault.split(":")[0] for fault in faults(browser, True, None)}
        if missed:
            sys.exit(f"browser.py: planted faults were not found: {', '.join(sorted(missed))}")

        failed = False
        size = arguments.report.stat().st_size
        if size > MOST_BYTES:
            failed = True
            print(f"{size} bytes of at most {MOST_BYTES}")
        for name, screen in WIDTHS.items():
            for scheme in ("light", "dark"):
                browser.open(arguments.report.resolve().as_uri(), screen, scheme)
                browser.evaluate("new Promise(done => { const ready = () => document.documentElement.dataset.playground ? done() : setTimeout(ready, 20); ready(); })")
                at = browser.evaluate("[...document.querySelectorAll('nav a')].findIndex(a => a.hasAttribute('aria-current'))")
                found = [f"contents: at the top link {at} is marked"] if at > 0 else []
                found += breaks.check(browser) if (name, scheme) == ("phone", "light") else breaks.check_memory(browser)
                if arguments.keel and scheme == "light":
                    found += playground.check(browser, str(arguments.keel), folder)
                found += faults(browser, True, arguments.axe)
                charts = browser.evaluate("document.querySelectorAll('.chart').length")
                time = browser.evaluate("document.querySelector('.timing')?.dataset.value")
                print(f"{name}, {scheme}: {size} bytes, {charts} charts, 256 × 256 at d = 64 in {time or '?'} ms, {len(found)} faults", *found, sep="\n  ")
                failed = failed or bool(found)
                if arguments.shots:
                    arguments.shots.mkdir(parents=True, exist_ok=True)
                    for section in browser.evaluate("[...document.querySelectorAll('section')].map(s => s.id)"):
                        browser.shoot(arguments.shots / f"{name}-{scheme}-{section}.png", f"#{section}")
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
