# SPDX-License-Identifier: Apache-2.0
"""A command's terminal output as an SVG picture: a dark panel that is readable on light and on dark pages."""

import fcntl
import html
import os
import pty
import re
import struct
import subprocess
import termios

CELL, LINE, SIZE, MARGIN = 8.4, 19, 14, 16
BACKGROUND, FOREGROUND = "#0d1117", "#e6edf3"
COLOURS = ["#6e7681", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#e6edf3"]
SEQUENCE_OR_CHARACTER = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|.", re.S)
PLAIN = (FOREGROUND, False, False)  # colour, bold, faint


class Screen:
    """Rows of cells (character, style). It supports the output of MPT's programs: new lines, returns, colours, erasing, moving up."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column, self.style = columns, [[]], 0, 0, PLAIN

    def feed(self, text):
        for found in SEQUENCE_OR_CHARACTER.finditer(text):
            if found[2]:
                self.control(found[1], found[2])
            else:
                self.put(found[0])

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row, self.column = self.row + 1, 0
        else:
            if self.column == self.columns:
                self.row, self.column = self.row + 1, 0
            self.extend()
            line = self.rows[self.row]
            line += [(" ", PLAIN)] * (self.column + 1 - len(line))
            line[self.column] = (character, self.style)
            self.column += 1
        self.extend()

    def extend(self):
        while len(self.rows) <= self.row:
            self.rows.append([])

    def control(self, parameters, command):
        numbers = [int(word) for word in parameters.split(";") if word.isdigit()]
        if command == "m":
            for number in numbers or [0]:
                self.colour(number)
        elif command == "K":
            del self.rows[self.row][self.column:]
        elif command == "J":
            del self.rows[self.row + 1:]
            del self.rows[self.row][self.column:]
        elif command == "A":
            self.row = max(0, self.row - (numbers or [1])[0])

    def colour(self, number):
        colour, bold, faint = self.style
        if number == 0:
            self.style = PLAIN
        elif number in (1, 2, 22):
            self.style = (colour, number == 1, number == 2)
        elif number == 39:
            self.style = (FOREGROUND, bold, faint)
        elif 30 <= number <= 37 or 90 <= number <= 97:
            self.style = (COLOURS[number % 10], bold, faint)

    def text(self):
        return "\n".join("".join(character for character, _ in row).rstrip() for row in self.rows).rstrip("\n")


def pieces(row):
    """(column, text, style) of a row, cut where the style changes and at wide gaps, so that columns stay where they are."""
    text = "".join(character for character, _ in row)
    for word in re.finditer(r"\S+(?: \S+)*", text):
        start = word.start()
        for at in range(word.start() + 1, word.end() + 1):
            if at == word.end() or row[at][1] != row[start][1]:
                piece = text[start:at].lstrip()  # a viewer drops blanks at the front
                if piece.strip():
                    yield at - len(piece), piece.rstrip(), row[start][1]
                start = at


def svg(screen, title):
    rows = screen.rows
    while rows and not rows[-1]:
        rows.pop()
    width, height = screen.columns * CELL + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" font-size="{SIZE}" '
           'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace">',
           f"<title>{html.escape(title)}</title>", f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>']
    for number, row in enumerate(rows):
        for column, text, (colour, bold, faint) in pieces(row):
            look = f' fill="{colour}"' + (' font-weight="bold"' if bold else "") + (' opacity="0.65"' if faint else "")
            out.append(f'<text x="{MARGIN + column * CELL:.1f}" y="{MARGIN + number * LINE + SIZE}" '
                       f'textLength="{len(text) * CELL:.1f}" lengthAdjust="spacingAndGlyphs"{look}>{html.escape(text)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def printed(command, folder, environment, columns):
    """The output of a command that believes that it writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env={**environment, "TERM": "xterm-256color", "COLUMNS": str(columns)})
    os.close(theirs)
    parts = []
    try:
        while part := os.read(ours, 65536):
            parts.append(part)
    except OSError:  # Linux reports the end of output like this
        pass
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{command}\nexit code {process.returncode}\n{b''.join(parts).decode(errors='replace')}")
    return b"".join(parts).decode()


def picture(commands, folder, environment, columns, title):
    """The SVG of commands one after the other, each with a prompt."""
    screen = Screen(columns)
    for command in commands:
        screen.feed(f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\n")
        screen.feed(printed(command, folder, environment, columns))
        screen.feed("\n")
    return svg(screen, title)
