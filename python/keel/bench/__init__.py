"""Keel against torch's own attention: `python -m keel.bench --help`. Needs torch."""
