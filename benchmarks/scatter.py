# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured on two logarithmic axes as an SVG, with the diagonal and a band of a tenth around it."""

import html
import math

SIZE, LEFT, TOP, BELOW, LEGEND = 560, 80, 44, 56, 150
END, BOTTOM = SIZE - 20, SIZE - BELOW
STYLE = ("text{font:12px system-ui,sans-serif;fill:#59636e}.title{font-weight:600;font-size:15px}.grid{stroke:#d9dee3}"
         ".even{stroke:#59636e}.band{stroke:#59636e;stroke-dasharray:3 4}circle{fill-opacity:.65;stroke-opacity:.9}"
         "@media(max-width:760px){svg text{font-size:21px}svg .title{font-size:23px}}@media(prefers-color-scheme:dark){text{fill:#a3adb8}"
         ".grid{stroke:#343b42}.even,.band{stroke:#a3adb8}}")


def colour(number):
    """Hues far apart in turn."""
    return f"hsl({number * 137 % 360} 65% 48%)"


def legend(groups):
    """Label positions as far apart as there is room, and no closer than lines of text. If there are too many groups: the first ones, and
    the number of the others."""
    height = SIZE - TOP - 20
    most = int(height / 14)
    shown = groups if len(groups) <= most else groups[:most - 1]
    step = min(24, height / max(1, min(len(groups), most)))
    lines = [f'<circle cx="{SIZE + 4}" cy="{TOP + 10 + step * row:.1f}" r="4" fill="{colour(row)}"/>'
             f'<text x="{SIZE + 14}" y="{TOP + 14 + step * row:.1f}">{html.escape(name)}</text>\n' for row, name in enumerate(shown)]
    if len(shown) < len(groups):
        lines.append(f'<text x="{SIZE + 14}" y="{TOP + 14 + step * len(shown):.1f}">and {len(groups) - len(shown)} others</text>\n')
    return "".join(lines)


def svg(title, points):
    """`points`: (measured, predicted, group, text on hover)."""
    points = [p for p in points if p[0] > 0 and p[1] > 0]
    values = [v for p in points for v in p[:2]] or [1.0]
    first = math.floor(math.log10(min(values)))
    last = max(first + 1, math.ceil(math.log10(max(values))))

    def x_of(value):
        return LEFT + (math.log10(value) - first) * (END - LEFT) / (last - first)

    def y_of(value):
        return BOTTOM - (math.log10(value) - first) * (BOTTOM - TOP) / (last - first)

    def diagonal(kind, factor):
        start, end = max(10.0**first, 10.0**first / factor), min(10.0**last, 10.0**last / factor)
        return (f'<line class="{kind}" x1="{x_of(start):.1f}" y1="{y_of(start * factor):.1f}" x2="{x_of(end):.1f}" '
                f'y2="{y_of(end * factor):.1f}"/>\n')

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE + LEGEND} {SIZE}" role="img" aria-label="{title}">\n'
             f'<title>{title}</title>\n<style>{STYLE}</style>\n<text class="title" x="{LEFT}" y="24">{title}</text>\n']
    for value in (10.0**d for d in range(first, last + 1)):
        x, y = x_of(value), y_of(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}"/>'
                     f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{END}" y2="{y:.1f}"/>\n'
                     f'<text x="{x:.1f}" y="{BOTTOM + 22}" text-anchor="middle">{value:g}</text>'
                     f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>\n')
    parts += [diagonal("even", 1.0), diagonal("band", 1.1), diagonal("band", 1 / 1.1)]
    parts.append(f'<text x="{(LEFT + END) / 2:.1f}" y="{SIZE - 16}" text-anchor="middle">measured</text>\n'
                 f'<text transform="translate(16 {(TOP + BOTTOM) / 2:.1f}) rotate(-90)" text-anchor="middle">predicted</text>\n')
    groups = sorted({p[2] for p in points})
    parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.2" fill="{colour(groups.index(group))}"><title>{html.escape(label)}</title></circle>\n'
              for x, y, group, label in points]
    return "".join(parts) + legend(groups) + "</svg>\n"
