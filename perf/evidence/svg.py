"""Charts as SVG: small multiples of lines over sizes, and dots in rows. No scripts, no fonts of its own, light background."""
import math
from xml.sax.saxutils import escape

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ as well.
BLUE, ORANGE, GREEN, RED, PURPLE, BLACK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#222222"
GREY, GRID = "#666666", "#dddddd"


class Style:
    def __init__(self, colour, marker="circle", dash=None):
        self.colour, self.marker, self.dash = colour, marker, dash


class Drawing:
    def __init__(self, width, height, title):
        self.width, self.height, self.parts = width, height, []
        self.parts.append(f'<title>{escape(title)}</title>')
        self.parts.append(f'<rect width="{width}" height="{height}" fill="#ffffff"/>')

    def line(self, x1, y1, x2, y2, colour=GRID, width=1, dash=None):
        self.path([(x1, y1), (x2, y2)], colour, width, dash)

    def path(self, points, colour, width=2, dash=None):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')

    def text(self, x, y, text, size=12, anchor="middle", colour=BLACK, bold=False, turn=None):
        weight = ' font-weight="bold"' if bold else ""
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn is not None else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{colour}"{weight}{turned}>{escape(text)}</text>')

    def marker(self, x, y, style, r=4):
        if style.marker == "circle":
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{style.colour}"/>')
            return
        corners = {"square": [(-.9, -.9), (.9, -.9), (.9, .9), (-.9, .9)],
                   "diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
                   "up": [(0, -1.2), (1.15, .9), (-1.15, .9)],
                   "down": [(0, 1.2), (1.15, -.9), (-1.15, -.9)]}[style.marker]
        points = " ".join(f"{x + r * dx:.1f},{y + r * dy:.1f}" for dx, dy in corners)
        self.parts.append(f'<polygon points="{points}" fill="{style.colour}"/>')

    def legend(self, x, y, styles, lines=True):
        for name, style in styles.items():
            if lines:
                self.line(x, y, x + 26, y, style.colour, 2, style.dash)
            self.marker(x + 13, y, style)
            self.text(x + 32, y + 4, name, anchor="start")
            x += 32 + 6.8 * len(name) + 24

    def __str__(self):
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">\n'
                f'{body}\n</svg>\n')


def plain(value):
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def line_panels(title, y_label, sizes, panels, styles, y_range, y_ticks, level=None, width=900, panel_height=230):
    """Panels side by side: {panel title: {series: {size: value}}}. The y axis is logarithmic and the same for all.
    level: (value, text) of a horizontal line."""
    left, right, top, bottom, gap = 84, 14, 84, 62, 16
    height = top + panel_height + bottom
    drawing = Drawing(width, height, title)
    drawing.text(left, 26, title, 16, "start", bold=True)
    drawing.legend(left, 48, styles)
    each = (width - left - right - gap * (len(panels) - 1)) / len(panels)
    low, high = map(math.log, y_range)

    def y_of(value):
        return top + panel_height * (1 - (math.log(value) - low) / (high - low))

    for number, (name, series) in enumerate(panels.items()):
        x0 = left + number * (each + gap)
        margin = each / len(sizes) / 2
        x_of = {size: x0 + margin + i * (each - 2 * margin) / (len(sizes) - 1) for i, size in enumerate(sizes)}
        for tick in y_ticks:
            drawing.line(x0, y_of(tick), x0 + each, y_of(tick))
            if number == 0:
                drawing.text(x0 - 7, y_of(tick) + 4, plain(tick), anchor="end", colour=GREY)
        drawing.line(x0, top + panel_height, x0 + each, top + panel_height, GREY)
        drawing.line(x0, top, x0, top + panel_height, GREY)
        drawing.text(x0 + each / 2, top - 8, name, 13, bold=True)
        for size in sizes:
            turn = -40 if each / len(sizes) < 42 else None
            drawing.text(x_of[size] + (5 if turn else 0), top + panel_height + (14 if turn else 17), size, 11,
                         "end" if turn else "middle", GREY, turn=turn)
        if level:
            drawing.line(x0, y_of(level[0]), x0 + each, y_of(level[0]), BLACK, 1.5, "5 3")
            drawing.text(x0 + each - 4, y_of(level[0]) + 14, level[1], 11, "end")
        for who, values in series.items():
            points = [(x_of[size], y_of(values[size])) for size in sizes if size in values]
            drawing.path(points, styles[who].colour, 2, styles[who].dash)
            for x, y in points:
                drawing.marker(x, y, styles[who])
    drawing.text(18, top + panel_height / 2, y_label, anchor="middle", turn=-90)
    drawing.text(left + (width - left - right) / 2, height - 10, "size of the whole array in bytes (K, M: powers of 1024)")
    return str(drawing)


def dot_rows(title, x_label, rows, styles, x_range, x_ticks, level=None, width=900, row_height=26):
    """A row of dots for each name: {name: {series: value}}."""
    left, right, top, bottom = 130, 24, 76, 46
    height = top + row_height * len(rows) + bottom
    drawing = Drawing(width, height, title)
    drawing.text(20, 26, title, 16, "start", bold=True)
    drawing.legend(20, 48, styles, lines=False)
    low, high = x_range

    def x_of(value):
        return left + (width - left - right) * (value - low) / (high - low)

    base = top + row_height * len(rows)
    for tick in x_ticks:
        drawing.line(x_of(tick), top, x_of(tick), base)
        drawing.text(x_of(tick), base + 17, f"{tick:g}", colour=GREY)
    if level:
        drawing.line(x_of(level[0]), top - 4, x_of(level[0]), base, BLACK, 1.5, "5 3")
        drawing.text(x_of(level[0]), top - 8, level[1], 11)
    for number, (name, values) in enumerate(rows.items()):
        y = top + row_height * (number + .5)
        if number % 2 == 0:
            drawing.parts.insert(2, f'<rect x="{left}" y="{y - row_height / 2:.1f}" width="{width - left - right}" '
                                    f'height="{row_height}" fill="#f4f4f4"/>')
        drawing.text(left - 8, y + 4, name, anchor="end")
        # Each series a little lower than the one before, so that equal values can be told apart.
        for place, (who, style) in enumerate(styles.items()):
            if who in values:
                drawing.marker(x_of(values[who]), y + (place - (len(styles) - 1) / 2) * 4.2, style, 4)
    drawing.text(left + (width - left - right) / 2, height - 10, x_label)
    return str(drawing)
