"""The breaks to find: symptoms first, hints one by one, a wrong and a right guess, then the line and both versions."""

STATE = """(name => {
  const box = document.querySelector(`.case[data-name="${name}"]`), shown = e => e.checkVisibility();
  const ends = [...box.querySelectorAll('.sides .chart')].map(c => c.querySelector('canvas') ? 'map' : [...[...c.querySelectorAll('.axis')].at(-1)?.querySelectorAll('.tick text') ?? []].map(t => t.textContent).join(' '));
  return { shown: shown(box), symptoms: [...box.querySelectorAll('.symptoms td, .symptoms .chart')].filter(shown).length,
    hints: [...box.querySelectorAll('.hints li')].filter(shown).length, said: box.querySelector('.said').textContent,
    solved: shown(box.querySelector('.solution')), diff: [...box.querySelectorAll('.diff > *')].map(e => e.textContent),
    columns: [...box.querySelectorAll('.solution th')].map(e => e.textContent), sides: ends,
    suspects: [...box.querySelectorAll('[data-guess]')].map(b => b.dataset.guess) };
})"""
TALLY = "document.querySelector('#breaks .tally').textContent"


def check(browser):
    """What is wrong with the cases of the page that is open; none where it has no breaks."""
    names = browser.evaluate("[...document.querySelectorAll('[data-case]')].map(b => b.dataset.case)")
    faults = []

    def expect(what, holds):
        if not holds:
            faults.append(f"breaks: {what}")

    def click(selector):
        browser.evaluate(f"document.querySelector({selector!r}).click()")
        return browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    if names:
        expect("the cases are in the order of the guesses", names != browser.evaluate(f"{STATE}('{names[0]}').suspects"))
    for number, name in enumerate(names):
        case, see = f".case[data-name={name}]", f"{STATE}('{name}')"
        click(f"[data-case={name}]")
        seen = browser.evaluate(see)
        expect(f"{name} does not begin with symptoms alone", seen["shown"] and seen["symptoms"] > 4 and not seen["hints"] and not seen["solved"])
        for hints in (1, 2):
            click(f"{case} .hint")
            expect(f"{name} does not give hints one by one", browser.evaluate(see)["hints"] == hints)
        wrong = next(s for s in seen["suspects"] if s != name)
        click(f"{case} [data-guess={wrong}]")
        seen = browser.evaluate(see)
        expect(f"{name}: a wrong guess is told '{seen['said']}'", seen["said"].startswith("No, ") and not seen["solved"])
        click(f"{case} [data-guess={name}]")
        seen = browser.evaluate(see)
        expect(f"{name}: the right guess is told '{seen['said']}'", seen["said"].startswith("Yes: ") and seen["said"].endswith("2 guesses, 2 hints."))
        expect(f"{name}: no line and fix after the right guess", seen["solved"] and [d[0] for d in seen["diff"]] == ["−", "+"])
        expect(f"{name}: broken and fixed are not side by side", seen["columns"] == ["quantity", "broken", "fixed"] and len(seen["sides"]) >= 2)
        expect(f"{name}: charts side by side have other scales", all(seen["sides"]) and seen["sides"][::2] == seen["sides"][1::2])
        expect(f"{name}: not counted", browser.evaluate(TALLY) == f"So far you have found {number + 1} of {len(names)}, with {number + 1} wrong guess{'es' if number else ''}.")
    return faults


def check_memory(browser):
    """After the page was opened again: what was found is remembered."""
    said = browser.evaluate(f"document.querySelector('#breaks') ? {TALLY} : ''")
    found = browser.evaluate("document.querySelectorAll('[data-case].found').length")
    cases = browser.evaluate("document.querySelectorAll('[data-case]').length")
    return [] if not cases or (found == cases and said.startswith(f"So far you have found {cases}")) else [f"breaks: forgotten: '{said}'"]
