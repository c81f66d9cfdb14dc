"""The live figure against the program: what the page draws is what `keel attend` computes from the same numbers."""

import json
import math
import struct
import subprocess
from pathlib import Path

TOLERANCE = 1e-5  # of weights, entropy and scores, which is relative for those beyond 1
SLIDERS = ["live-size", "live-keys", "live-temperature", "live-spread"]
MOST_WASM = 400_000
MOST_MS = 16  # for 256 × 256 scores at d = 64: the fastest of some calls, since other tests run at the same time

# What the figure was given and found, and the numbers in the page: {name: [exact, as text]}.
SHOWN = """(() => {
  const plain = (r) => Object.fromEntries(Object.entries(r).map(([k, v]) => [k, ArrayBuffer.isView(v) ? [...v] : v]));
  const arms = Object.entries(Live.shown.found).map(([arm, r]) => [arm, { ...plain(r), given: plain(r.given) }]);
  return { state: Live.shown.state, found: Object.fromEntries(arms), bars: document.querySelectorAll('#live .bars')[1].getAttribute('d'),
    drawn: Object.fromEntries([...document.querySelectorAll('[data-number]')].map(e => [e.dataset.number, [Number(e.dataset.value), e.textContent]])) };
})()"""


def write_npy(path, rows, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {len(values) // rows}), }}"
    header += " " * (-(11 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values))


def read_npy(path):
    data = path.read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return struct.unpack(f"<{(len(data) - start) // 4}f", data[start:])


def attend(keel, folder, given, *options):
    for name, rows in (("q", given["n_q"]), ("k", given["n_k"]), ("v", given["n_k"])):
        write_npy(folder / f"{name}.npy", rows, given[name])
    files = [str(folder / f"{name}.npy") for name in ("q", "k", "v", "weights")]
    said = subprocess.run([keel, "attend", *files[:3], "--scale", repr(given["scale"]), "--weights", files[3], "--json", *options],
                          check=True, capture_output=True, text=True).stdout
    return read_npy(Path(files[3])), json.loads(said)["statistics"]["all"]["mean_entropy"]


def exact_gradient(given, scores):
    """∂L/∂s in float64: p (do·v − Σ p do·v)."""
    top = max(scores)
    e = [math.exp(s - top) for s in scores]
    p = [x / sum(e) for x in e]
    d = given["d_v"]
    dp = [sum(given["dout"][c] * given["v"][j * d + c] for c in range(d)) for j in range(given["n_k"])]
    mean = sum(a * b for a, b in zip(p, dp))
    return [a * (b - mean) for a, b in zip(p, dp)]


def apart(found, expected):
    return max(abs(a - b) / max(1, abs(b)) for a, b in zip(found, expected, strict=True))


def check_row(keel, folder, shown):
    """What is wrong with the row that is shown now, for both arms."""
    faults = []
    for arm, found in shown["found"].items():
        given, state = found["given"], shown["state"]
        scale = 1 / (state["temperature"] * (math.sqrt(state["size"]) if arm == "scaled" else 1))
        if abs(given["scale"] - scale) > 1e-7 * scale or (given["d_k"], given["n_k"]) != (state["size"], state["keys"]):
            faults.append(f"{arm}: computed with scale {given['scale']}, d_k {given['d_k']} and {given['n_k']} keys at {state}")
        weights, entropy = attend(keel, folder, given)
        d = given["d_k"]
        scores = [given["scale"] * sum(given["q"][c] * given["k"][j * d + c] for c in range(d)) for j in range(given["n_k"])]
        mean = sum(scores) / len(scores)
        gradient = exact_gradient(given, scores)
        for name, value, expected in (
                ("weights", found["weights"], weights), ("scores", found["scores"], scores), ("gradient", found["gradient"], gradient),
                ("entropy", [shown["drawn"][f"entropy.{arm}"][0]], [entropy]),
                ("largest", [shown["drawn"][f"weights.{arm}"][0]], [max(weights)]),
                ("deviation", [shown["drawn"][f"scores.{arm}"][0]], [math.sqrt(sum((s - mean) ** 2 for s in scores) / len(scores))]),
                ("norm", [shown["drawn"][f"gradient.{arm}"][0]], [math.hypot(*gradient)])):
            # The gradient's error is that of f32 at the size of what is subtracted: do·v, some units.
            limit = TOLERANCE * (10 if name in ("gradient", "norm") else 1)
            if apart(value, expected) > limit:
                faults.append(f"{arm} {name}: off by {apart(value, expected):.1e} at {shown['state']}")
    for name, (value, text) in shown["drawn"].items():
        if abs(float(text.replace("−", "-")) - value) > 0.0051 * abs(value) + 1e-12:
            faults.append(f"{name}: {text} is shown for {value}")
    # The bars themselves: "Mx,baseVyHxVbaseZ" each, the tallest of both arms 70 to 62 pixels high.
    tops = [float(bar.split("V")[1].split("H")[0]) for bar in shown["bars"].split("Z") if bar]
    base = float(shown["bars"].split("V")[0].split(",")[1])
    chosen = shown["found"][shown["state"]["arm"]]["weights"]
    high = max(max(r["weights"]) for r in shown["found"].values())
    if apart([(base - top) / (base - 4) * high for top in tops], chosen) > TOLERANCE:
        faults.append("bars: not as high as the weights")
    return faults


def check(browser, keel, folder):
    """Moves every slider and the switch; the drawn numbers must change each time, and be right."""
    if browser.evaluate("document.documentElement.dataset.playground") != "kernels":
        return ["playground: the kernels do not run"]
    faults = check_row(keel, folder, browser.evaluate(SHOWN))
    before = browser.evaluate(SHOWN)
    for slider in SLIDERS:
        for key in ("ArrowRight", "ArrowLeft", "ArrowLeft", "End" if slider != "live-size" else "Home"):
            browser.press(f"#{slider}", key)
            after = browser.evaluate(SHOWN)
            if after["drawn"] == before["drawn"]:
                faults.append(f"{slider}: {key} changes nothing")
            faults += check_row(keel, folder, after)
            before = after
    browser.press("#live-size", "End")  # where the arms differ most
    before = browser.evaluate(SHOWN)
    browser.press("#live .choice button:last-child", " ")
    after = browser.evaluate(SHOWN)
    if after["state"]["arm"] != "scaled" or after["bars"] == before["bars"]:
        faults.append("the switch changes nothing")
    browser.evaluate("document.querySelector('#live .plain').click()")
    if browser.evaluate(SHOWN)["drawn"] == after["drawn"]:
        faults.append("another row is the same row")
    faults += check_worked(browser, keel, folder) + check_editor(browser, keel, folder)
    time = browser.evaluate("new Promise(done => { const ready = () => { const t = document.querySelector('.timing')?.dataset.least; t ? done(Number(t)) : setTimeout(ready, 20); }; ready(); })")
    if time >= MOST_MS:
        faults.append(f"256 × 256 scores at d = 64 take {time} ms, expected less than {MOST_MS}")
    size = browser.evaluate("Live.size")
    if size > MOST_WASM:
        faults.append(f"WebAssembly: {size} bytes of at most {MOST_WASM}")
    return faults


def check_worked(browser, keel, folder):
    """A number of the worked example changed, and what follows from it."""
    shown = "(() => { const c = Example.shown.call; return { given: { ...c, q: [...c.q], k: [...c.k], v: [...c.v] }, cells: [...document.querySelectorAll('#worked .cell')].map(e => Number(e.dataset.value)) } })()"
    before = browser.evaluate(shown)
    browser.evaluate("(e => { e.value = 2; e.dispatchEvent(new Event('input', { bubbles: true })) })(document.querySelector('[aria-label=\"W_Q, row 1, column 1\"]'))")
    after = browser.evaluate(shown)
    weights, _ = attend(keel, folder, after["given"])
    faults = []
    if before["cells"] == after["cells"]:
        faults.append("worked example: a changed number changes nothing")
    if apart(after["cells"][27:36], weights) > TOLERANCE:  # after Q, K, V and S
        faults.append("worked example: not keel attend's weights")
    return faults


def check_editor(browser, keel, folder):
    """A sentence under every option, then matrices, one of them wrong."""
    shown = "(() => { const { call: c, result: r } = Editor.shown; return { given: { ...c, q: [...c.q], k: [...c.k], v: [...c.v] }, weights: [...r.weights], entropy: [...r.entropy] } })()"

    def enter(field, text):
        browser.evaluate(f"(e => {{ e.value = {json.dumps(text)}; e.dispatchEvent(new Event('input', {{ bubbles: true }})) }})(document.getElementById('editor-{field}'))")
        return browser.evaluate(shown)

    def compare(what, found, *options):
        weights, entropy = attend(keel, folder, found["given"], *options)
        mean = sum(found["entropy"]) / len(found["entropy"])
        return [] if apart(found["weights"], weights) <= TOLERANCE and abs(mean - entropy) <= TOLERANCE else [f"{what}: not keel attend's weights"]

    faults = compare("sentence", enter("text", "to be or not to be"))
    faults += compare("mask", enter("mask", "window"), "--causal", "top_left", "--window", "2,0")
    faults += compare("softcap", enter("softcap", "1.5"), "--causal", "top_left", "--window", "2,0", "--softcap", "1.5")
    faults += compare("sink", enter("sink", "0.5"), "--causal", "top_left", "--window", "2,0", "--softcap", "1.5", "--sinks", "0.5")
    faults += compare("scale", enter("scale", "none"), "--causal", "top_left", "--window", "2,0", "--softcap", "1.5", "--sinks", "0.5")
    browser.evaluate("[...document.querySelectorAll('#editor .choice button')].at(-1).click()")
    for field in ("softcap", "sink"):
        enter(field, "")
    faults += compare("matrices", enter("mask", "none"))
    enter("K", "1 0\n0 1 2")
    said = browser.evaluate("document.querySelector('#editor [role=alert]').textContent")
    if said != "K, row 2: expected 2 numbers as in row 1, got 3":
        faults.append(f"matrices: a wrong row is reported as '{said}'")
    enter("K", "1 0\n0 1\n0.5 0.5")
    enter("softcap", "-1")
    said = browser.evaluate("document.querySelector('#editor [role=alert]').textContent")
    if said != "[attention] softcap: expected a positive finite number, got -1":
        faults.append(f"softcap: a wrong one is reported as '{said}'")
    enter("softcap", "")
    return faults
