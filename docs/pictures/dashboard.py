"""Makes docs/pictures/dashboard.svg of a real run: docs/pictures/dashboard.py LOOPGATE

Lets runs of several agents go on for some minutes at two replicas of the binary LOOPGATE, with an upstream that fails for a while,
a slow one, and the death of a replica; `lab.py` has what is around the replicas. A Prometheus reads the metrics. Then the queries
of the dashboard's file are asked, and the panels are drawn where the file has them. Needs python3, redis-server and prometheus.
"""

import json
import math
import random
import re
import sys
import threading
import time
import urllib.parse
import urllib.request
from html import escape
from pathlib import Path

from lab import PORTS, Lab

DASHBOARD = Path(__file__).parents[2] / "k8s/components/monitoring/dashboard.json"
SECONDS = 360
STEP = 4
PROMETHEUS = "127.0.0.1:19090"
SCRAPE = "global: { scrape_interval: 2s }\nscrape_configs:\n- job_name: loopgate\n  static_configs:\n"
TARGET = "  - { targets: ['127.0.0.1:%d'], labels: { namespace: demo, instance: loopgate-%d } }\n"

# What is drawn: the width of the picture, and what one unit of the dashboard's grid and its gaps are.
WIDTH, COLUMNS, UNIT, GAP, TOP = 1200, 24, 19, 6, 40
COLOURS = ["#3f9c35", "#c79d00", "#3274d9", "#e0752d", "#d0304a", "#8f3bb8", "#0f9aa8", "#5a6b7b", "#a3520b", "#b5179e"]
LETTER = 5.8
MOST_LEGEND_LINES = 3


def main():
    with Lab(sys.argv[1], pace=1) as lab:
        scraped = "".join(TARGET % (port, number) for number, port in enumerate(PORTS))
        Path(lab.directory.name, "prometheus.yml").write_text(SCRAPE + scraped)
        lab.others.append(lab.start("prometheus", "--config.file=prometheus.yml", f"--web.listen-address={PROMETHEUS}"))
        lab.until_ready(f"http://{PROMETHEUS}/-/ready")
        begun = time.time()
        work(lab, begun)
        end = time.time()
        dashboard = json.loads(DASHBOARD.read_text())
        asked = [(panel, ask_panel(panel, end - SECONDS, end)) for panel in dashboard["panels"]]
    Path(__file__).with_name("dashboard.svg").write_text(drawn(dashboard["title"], asked, end - SECONDS, end))


def work(lab, begun):
    """Sends requests, more and then fewer of them, and lets things go wrong on the way."""
    mishaps = [
        (0.35, lambda: setattr(lab, "failing", 0.5)),
        (0.5, lambda: setattr(lab, "failing", 0.05)),
        (0.65, lambda: lab.kill_replica(1)),
        (0.7, lambda: lab.start_replica(1)),
    ]
    while (part := (time.time() - begun) / (SECONDS + 20)) < 1:
        while mishaps and part > mishaps[0][0]:
            mishaps.pop(0)[1]()
        threading.Thread(target=ask, args=(lab,), daemon=True).start()
        time.sleep(random.expovariate(1.5 + 2 * math.sin(math.pi * part)))


def ask(lab):
    """Asks what one of many clients would."""
    replica, session = random.randrange(2), f"desk-{random.randrange(400):03}"
    body = {
        "model": random.choice(["gpt-large", "gpt-small", "researcher", "researcher", "support", "support"]),
        "stream": random.random() < 0.7,
        "messages": [{"role": "user", "content": "Why do rivers bend?"}],
        "agent": {"session_id": session, "on_conflict": "enqueue"},
    }
    kind = random.random()
    if kind < 0.04:
        body["model"] = "gpt-unknown"
    elif kind < 0.06:
        body["temperature"] = "warm"
    elif kind < 0.12:
        body["tools"] = [{"type": "function", "function": {"name": "ask_person", "parameters": {"type": "object"}}}]
    elif kind < 0.18:
        body["stream"], body["agent"]["background"] = False, True
    elif kind < 0.24:
        # Two questions at once: the second waits for its turn.
        body["agent"]["session_id"] = "desk-000"
    answer = lab.ask("/v1/agent/completions", body, replica)
    if 0.12 < kind < 0.14 and (run := re.search(rb"run_[0-9a-f]{32}", answer)):
        time.sleep(1)
        lab.ask(f"/v1/runs/{run[0].decode()}/cancel", {}, replica)


def ask_panel(panel, start, end):
    """The curves of a panel: what each is called, and its values by time."""
    curves = []
    for target in panel.get("targets", []):
        query = target["expr"].replace("$__rate_interval", "20s").replace("$namespace", ".*")
        asked = urllib.parse.urlencode({"query": query, "start": start, "end": end, "step": STEP})
        answer = json.loads(urllib.request.urlopen(f"http://{PROMETHEUS}/api/v1/query_range?{asked}").read())
        for series in answer["data"]["result"]:
            name = re.sub(r"{{(\w+)}}", lambda label: series["metric"].get(label[1], ""), target["legendFormat"])
            values = [(at, float(value)) for at, value in series["values"]]
            curves.append((name, [(at, value) for at, value in values if math.isfinite(value)]))
    # Those first that say something: not all have a colour of their own.
    curves.sort(key=lambda curve: not any(value for _, value in curve[1]))
    return [(name, values) for name, values in curves if values]


def drawn(title, asked, start, end):
    """All panels, in the dashboard's own grid."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel, _ in asked)
    height = TOP + rows * UNIT + 22
    made = "drawn from the dashboard's file and real data by docs/pictures/dashboard.py"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="10" fill="#24292e" '
        'font-family="Inter, Helvetica, Arial, sans-serif">',
        '<rect width="100%" height="100%" fill="#f4f5f5"/>',
        f'<text x="{GAP}" y="26" font-size="17" font-weight="600">{escape(title)}</text>',
        f'<text x="{WIDTH - GAP}" y="26" font-size="11" text-anchor="end" fill="#6e7681">the last {SECONDS // 60} minutes</text>',
    ]
    for panel, curves in asked:
        grid = panel["gridPos"]
        x, y = grid["x"] * WIDTH / COLUMNS + GAP / 2, TOP + grid["y"] * UNIT
        width, tall = grid["w"] * WIDTH / COLUMNS - GAP, grid["h"] * UNIT - GAP
        if panel["type"] == "row":
            parts.append(f'<text x="{x + 2:g}" y="{y + 13:g}" font-size="12" font-weight="600">▾ {escape(panel["title"])}</text>')
        else:
            parts.append(f'<g transform="translate({x:g} {y:g})">{drawn_panel(panel, curves, (width, tall), (start, end))}</g>')
    parts += [f'<text x="{WIDTH / 2:g}" y="{height - 8}" text-anchor="middle" fill="#6e7681">{made}</text>', "</svg>", ""]
    return "\n".join(parts)


def drawn_panel(panel, curves, size, span):
    width, tall = size
    defaults = panel["fieldConfig"]["defaults"]
    legend, lines = drawn_legend([name for name, _ in curves], width)
    parts = [
        f'<rect width="{width:g}" height="{tall:g}" rx="2" fill="#fff" stroke="#dfe1e5"/>',
        f'<text x="8" y="16" font-size="11.5" font-weight="600">{escape(panel["title"])}</text>',
    ]
    if not curves:
        middle = f'x="{width / 2:g}" y="{tall / 2 + 6:g}" text-anchor="middle"'
        return "".join(parts) + f'<text {middle} font-size="12" fill="#8b949e">No data</text>'
    ticks = nice_ticks(max(value for _, values in curves for _, value in values))
    labels = [shown(tick, defaults["unit"]) for tick in ticks]
    left, top, right, bottom = 12 + LETTER * max(map(len, labels)), 26, width - 10, tall - 20 - 13 * lines
    for tick, label in zip(ticks, labels):
        y = bottom - (bottom - top) * tick / ticks[-1]
        parts.append(f'<path d="M{left:g} {y:.1f}H{right:g}" stroke="#eceef0"/>')
        parts.append(f'<text x="{left - 5:g}" y="{y + 3:.1f}" text-anchor="end" fill="#6e7681">{label}</text>')
    across = lambda at: left + (right - left) * (at - span[0]) / (span[1] - span[0])
    for at in range(math.ceil(span[0] / 60) * 60, math.ceil(span[1]), 60):
        clock = time.strftime("%H:%M", time.gmtime(at))
        if left + 12 < across(at) < right - 12:
            parts.append(f'<text x="{across(at):.0f}" y="{bottom + 13:g}" text-anchor="middle" fill="#6e7681">{clock}</text>')
    above = lambda value: bottom - (bottom - top) * value / ticks[-1]
    opacity = defaults["custom"]["fillOpacity"] / 100
    for number, (_, values) in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        for piece in without_gaps(values):
            line = " ".join(f"{x} {y}" for x, y in bends([(round(across(at)), round(above(value))) for at, value in piece]))
            ends = f"{across(piece[-1][0]):.0f} {bottom:g} {across(piece[0][0]):.0f} {bottom:g}"
            parts.append(f'<path d="M{line} {ends}Z" fill="{colour}" fill-opacity="{opacity:g}"/>')
            parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-linejoin="round"/>')
    return "".join(parts) + f'<g transform="translate(0 {tall - 13 * lines + 5:g})">{legend}</g>'


def drawn_legend(names, width):
    """The names of the curves in lines, and how many lines these are. What has no room is counted."""
    parts, x, line, names = [], 8, 0, list(enumerate(names))
    while names:
        number, name = names[0]
        length = 16 + LETTER * len(name)
        rest = f"+ {len(names)} more"
        is_last = line + 1 == MOST_LEGEND_LINES
        if x + length + (LETTER * len(rest) if is_last and len(names) > 1 else 0) > width - 8 and x > 8:
            if is_last:
                parts.append(f'<text x="{x:g}" y="{13 * line}" fill="#6e7681">{rest}</text>')
                break
            x, line = 8, line + 1
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="M{x:g} {13 * line - 3}h10" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 13:g}" y="{13 * line}">{escape(name)}</text>')
        x += length + 8
        names.pop(0)
    return "".join(parts), line + 1


def without_gaps(values):
    """The pieces of a curve between which nothing is known."""
    pieces = [[values[0]]]
    for value in values[1:]:
        if value[0] - pieces[-1][-1][0] > 1.5 * STEP:
            pieces.append([])
        pieces[-1].append(value)
    return pieces


def bends(points):
    """Those points of a line that are not between two others at the same height."""
    last = len(points) - 1
    level = lambda at: 0 < at < last and points[at - 1][1] == points[at][1] == points[at + 1][1]
    return [point for at, point in enumerate(points) if not level(at)]


def nice_ticks(most):
    """Round numbers from 0 to at least this one."""
    if most <= 0:
        return [0, 1]
    size = 10 ** math.floor(math.log10(most / 3))
    step = next(step * size for step in (1, 2, 2.5, 5, 10) if most / (step * size) <= 4)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def shown(value, unit):
    """A number as Grafana shows it with its unit."""
    if unit == "s":
        for size, name in ((60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= size or size == 1e-6:
                return f"{round(value / size, 2):g} {name}" if value else "0 s"
    if unit == "currencyUSD":
        return f"${round(value, 4):g}"
    word = {"ops": " ops/s", "reqps": " req/s", "short": ""}[unit]
    return (f"{value / 1000:g} K" if value >= 1000 else f"{round(value, 4):g}") + word


if __name__ == "__main__":
    main()
