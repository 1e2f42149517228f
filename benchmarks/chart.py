#!/usr/bin/env python3
"""Draws what the benchmarks wrote with --json as bar charts, in SVG; only the standard library.

    benchmarks/chart.py figures.json... folder      one chart for each figure below that is in the files

Rows with the same name up to the last slash stand in one panel. Each panel has its own scale: bars compare
within a panel only.
"""

import json
import pathlib
import sys
from html import escape

# figure -> (title, decimals)
CHARTS = {
    "contention_benchmark": {
        "sections_per_second": ("Sections per second", 0),
        "commands_per_section": ("Commands sent for each section", 2),
        "client_cpu_us_per_section": ("CPU time of the clients for each section, µs", 1),
        "server_cpu_us_per_section": ("CPU time of the server for each section, µs", 1),
        "sections_of_a_thread_min": ("Sections of the thread that had the fewest", 0),
        "wait_p99_ms": ("99 of 100 waits were shorter, ms", 1),
        "wait_max_ms": ("Longest wait, ms", 1),
    },
    "handoff_benchmark": {
        "p50_ms": ("Hand-off between two processes, median, ms", 2),
        "p99_ms": ("Hand-off between two processes, 99 of 100, ms", 2),
    },
    "hotspot_benchmark": {
        "acquire_commands": ("Commands to acquire, hot spot behind 35 ms", 0),
        "wait_max_ms": ("Longest wait, hot spot behind 35 ms, ms", 0),
    },
    "idle_benchmark": {
        "commands_per_second": ("Commands per second while 1,000 threads wait", 1),
        "client_cpu_percent": ("CPU of the clients while 1,000 threads wait, %", 1),
    },
}

WIDTH, LABELS, VALUES, MARGIN = 720, 150, 90, 16
BAR, STEP, HEAD, TITLE = 16, 22, 26, 40
OURS, OTHERS, TEXT = "#c0392b", "#9aa5b1", "#1f2933"


def text(x, y, words, anchor="start", size=12, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}" fill="{TEXT}">{escape(words)}</text>')


def bar(y, name, value, longest, decimals):
    """One line: the name, a bar, the figure. `value` is None where the row has an error instead."""
    room = WIDTH - 2 * MARGIN - LABELS - VALUES
    left = MARGIN + LABELS
    middle = y + BAR * 0.75
    parts = [text(left - 8, middle, name, "end")]
    if value is None:
        return parts + [text(left + 4, middle, "no figure")]
    length = room * value / longest if longest else 0
    colour = OURS if name.startswith("redlatch") else OTHERS
    parts.append(f'<rect x="{left}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" fill="{colour}"/>')
    parts.append(text(left + max(length, 1) + 6, middle, f"{value:,.{decimals}f}"))
    return parts


def chart(title, rows, figure, decimals):
    panels = {}
    for row in rows:
        panel, _, name = row["name"].rpartition("/")
        panels.setdefault(panel, []).append((name, row.get(figure)))
    parts, y = [text(MARGIN, MARGIN + 14, title, size=16, weight="bold")], TITLE
    for panel, bars in panels.items():
        parts.append(text(MARGIN, y + 16, panel, weight="bold"))
        y += HEAD
        longest = max((value for _, value in bars if value is not None), default=0)
        for name, value in bars:
            parts += bar(y, name, value, longest, decimals)
            y += STEP
        y += MARGIN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" '
            f'viewBox="0 0 {WIDTH} {y}" font-family="sans-serif">\n'
            f'<rect width="{WIDTH}" height="{y}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    *files, folder = map(pathlib.Path, arguments)
    if folder.is_file():
        sys.exit(f"{folder} is to be a folder")
    rows = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
    folder.mkdir(parents=True, exist_ok=True)
    for program, figures in CHARTS.items():
        own = [row for row in rows if row["program"] == program]
        for figure, (title, decimals) in figures.items():
            if own:
                path = folder / f"{program.removesuffix('_benchmark')}_{figure}.svg"
                path.write_text(chart(title, own, figure, decimals), encoding="utf-8")
                print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
