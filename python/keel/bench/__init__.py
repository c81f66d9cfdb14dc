"""Keel against torch's own attention on the CPU: `python -m keel.bench --help`. Needs torch."""
