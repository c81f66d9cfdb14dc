#!/usr/bin/env python3
"""bleu_parity.py PROGRAM VENV: Keel's corpus BLEU is sacreBLEU's, on random corpora with one to three references, both
tokenisations, and words that they care about. PROGRAM is bleu_parity. Needs sacrebleu; without it here, the Python of VENV is
tried, and without it there this is skipped (exit status 77).
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from sacrebleu.metrics import BLEU
except ImportError:
    python = Path(sys.argv[2]) / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != Path(sys.argv[2]).resolve():
        os.execv(python, [str(python), "-B", *sys.argv])
    print(f"skipped: neither {sys.executable} nor {python} has sacrebleu")
    sys.exit(77)

CORPORA, LIMIT = 1000, 1e-9
WORDS = ("the a of drei und zwanzig fünf äpfel straße The THE é 1.5 1,000 1. .5 3-4 -3 a.b a,b , . ,. .. ... ! ? (x) [y] "
         "{z} a/b o'clock don't - -- 10-20. x-1 $5 50% & &amp; &lt;b&gt; &quot;q&quot; <skipped> a<skipped>b _ ^ ` ~ | \\ "
         "ü. ü, 2,ü # @ = + * ; : \u2019s \u4e2d\u6587 \u00e9. \u00df,").split()
SPACES = [" "] * 30 + ["  ", "\t", "\u00a0", "\u3000", "\u2003", " \u0085", "\n", "-\n", "\x1c", "\u200b"]


def sentence(rng, words, longest):
    return "".join(rng.choice(words) + rng.choice(SPACES) for _ in range(rng.randrange(longest + 1)))


def variation(rng, text, words):
    """A copy in which some words are others, gone, or elsewhere."""
    parts = text.split(" ")
    for _ in range(rng.randrange(4)):
        i = rng.randrange(len(parts))
        change = rng.randrange(4)
        if change == 0:
            parts[i] = rng.choice(words)
        elif change == 1 and len(parts) > 1:
            del parts[i]
        elif change == 2:
            parts.insert(i, rng.choice(words))
        else:
            rng.shuffle(parts)
    return " ".join(parts)


def corpus(rng):
    words = rng.sample(WORDS, rng.randrange(2, len(WORDS)))
    longest = rng.choice([2, 5, 12, 12, 30, 30])
    count, references = rng.choice([1, 2, 5, 20]), rng.choice([1, 1, 2, 3])
    translations = [sentence(rng, words, longest) for _ in range(count)]
    unlike = rng.random() < 0.15
    return {
        "tokens": rng.choice(["none", "13a"]),
        "translations": translations,
        "references": [[sentence(rng, words, longest) if unlike else variation(rng, t, words) for _ in range(references)]
                       for t in translations],
    }


def expected(case):
    bleu = BLEU(tokenize=case["tokens"], smooth_method="exp")
    return bleu.corpus_score(case["translations"], [list(each) for each in zip(*case["references"])]).score


def main():
    rng = random.Random(20)
    cases = [corpus(rng) for _ in range(CORPORA)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "corpora.json"
        path.write_text(json.dumps(cases), encoding="utf-8")
        printed = subprocess.run([sys.argv[1], path], capture_output=True, text=True, check=True).stdout.split()
    assert len(printed) == CORPORA, len(printed)
    worst, positive = 0.0, 0
    for case, text in zip(cases, printed):
        score = expected(case)
        worst, positive = max(worst, abs(score - float(text))), positive + (0 < score < 99.9)
        if abs(score - float(text)) > LIMIT:
            sys.exit(f"expected {score}, got {text} for {json.dumps(case)}")
    assert positive > CORPORA / 2, f"only {positive} corpora have a score between 0 and 100"
    print(f"{CORPORA} corpora, {positive} of them between 0 and 100; the largest difference is {worst:.1e}")


if __name__ == "__main__":
    main()
