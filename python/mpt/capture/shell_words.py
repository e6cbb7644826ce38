# SPDX-License-Identifier: Apache-2.0
"""The commands of a shell script, with their words expanded like in the shell. Nothing is run.

Read: quotes, comments, continued lines, assignments, arrays, $NAME, ${NAME}, ${NAME:-default}, ${NAME[@]}, $1, $@, sums, here-documents.
Values that only a run can compute, such as $(date), stay as a mark in the word, with the reason.
"""

from __future__ import annotations

import ast
import operator
import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

_MARK = re.compile("\0(\\d+)\0")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*(\[\w+\])?\+?=")
_DEFAULT = re.compile(r"([A-Za-z_]\w*|\d)(:?[-=])(.*)", re.S)
_ITEM = re.compile(r"([A-Za-z_]\w*)\[([@*]|\d+)\]")
# The usual ways to get the folder of the script.
_OWN_FOLDER = re.compile(r'(cd\s+(--\s+)?"?\$\(\s*)?dirname\s+(--\s+)?"?\$(0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(\[0\])?(:-\$0)?\})"?'
                         r'\s*(\)"?\s*(&?>\s*/dev/null\s*(2>&1\s*)?)?&&\s*pwd(\s+-P)?)?')
_SUMS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv, ast.Mod: operator.mod}
_LONGEST = 1 << 20  # values that double themselves


class Statement(NamedTuple):
    line: int
    words: List[str]
    inside: str  # the keyword of the enclosing block, or ||; empty if it always runs
    environment: Dict[str, str]  # its environment variables
    folder: str


def _sum(node: ast.AST) -> int:
    if isinstance(node, ast.Expression):
        return _sum(node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        return int(_SUMS[type(node.op)](_sum(node.left), _sum(node.right)))
    raise ValueError


class Script:
    def __init__(self, text: str, name: str, arguments: Sequence[str], environment: Dict[str, str], folder: str):
        self.text, self.name, self.arguments, self.folder = text.replace("\r\n", "\n"), name, list(arguments), folder
        self.variables: Dict[str, List[str]] = {}
        self.environment = dict(environment)
        self.reasons: List[Tuple[str, bool]] = []  # by mark, and whether it is an unset variable
        self.sourced = ""
        self.blocks: List[str] = []
        self.at, self.line = 0, 1
        self.here_documents: List[str] = []
        self.statements: List[Statement] = []
        self._read()

    def unknown(self, why: str, unset: bool = False) -> str:
        self.reasons.append((why, unset))
        return f"\0{len(self.reasons) - 1}\0"

    def why(self, word: str) -> Optional[str]:
        """Why the word is not known; None if it is."""
        found = _MARK.search(word)
        return None if found is None else self.reasons[int(found[1])][0]

    def without_unset(self, words: Sequence[str]) -> List[str]:
        """Drops unset $NAME that are whole words, like the shell, except as the value of an option."""
        kept: List[str] = []
        for word in words:
            found = _MARK.fullmatch(word)
            if found is None or not self.reasons[int(found[1])][1] or kept and kept[-1].startswith("-"):
                kept.append(word)
        return kept

    # Values

    def _value(self, name: str) -> List[str]:
        if name.isdigit():
            values = [self.name, *self.arguments]
            return [values[int(name)]] if int(name) < len(values) else []
        if name in self.variables:
            return self.variables[name]
        return [self.environment[name]] if name in self.environment else []

    def _unset(self, name: str) -> str:
        return self.unknown(f"{name} is not set" + (f", or set by {self.sourced}, which is not read" if self.sourced else "")
                            + f": set it before, as in {name}=VALUE python -m mpt.capture", unset=True)

    def _to(self, closing: str) -> str:
        """The text up to the bracket that closes, which is passed."""
        opening, depth, begin = {")": "(", "}": "{"}[closing], 1, self.at
        while self.at < len(self.text) and depth:
            char = self.text[self.at]
            depth += (char == opening) - (char == closing)
            self.line += char == "\n"
            self.at += 2 if char == "\\" else 1
        return self.text[begin:self.at - 1]

    def _next(self, mark: str) -> int:
        """The place of the next mark. Without one: the end of the text."""
        end = self.text.find(mark, self.at)
        return len(self.text) if end < 0 else end

    def _in_quotes(self, text: str) -> str:
        """Expands text as between double quotes."""
        held, self.text, at, self.at, line = self.text, text + '"', self.at, 0, self.line
        fields = self._double()
        self.text, self.at, self.line = held, at, line
        return " ".join(fields)

    def _braces(self, inside: str) -> List[str]:
        item = _ITEM.fullmatch(inside)
        if item:
            values = self._value(item[1])
            return values if item[2] in "@*" else values[int(item[2]):int(item[2]) + 1]
        default = _DEFAULT.fullmatch(inside)
        if default:
            values = self._value(default[1])
            return values[:1] if values and (values[0] or default[2][0] != ":") else [self._in_quotes(default[3])]
        if _NAME.fullmatch(inside) or inside.isdigit():
            return self._value(inside)[:1] or [self._unset(inside)]
        return self.arguments if inside in ("@", "*") else [self.unknown(f"${{{inside}}} is not read")]

    def _substituted(self, inside: str) -> str:
        if _OWN_FOLDER.fullmatch(inside.strip()):
            return os.path.dirname(os.path.join(self.folder, self.name)) or "."
        return self.folder if inside.strip() == "pwd" else self.unknown(f"$({inside}) is not run")

    def _arithmetic(self, inside: str) -> str:
        text = self._in_quotes(re.sub(r"(?<![\w$\{])([A-Za-z_]\w*)", r"${\1}", inside))
        try:
            return str(_sum(ast.parse(text.strip(), mode="eval")))
        except (ValueError, SyntaxError, ZeroDivisionError):
            return self.unknown(self.why(text) or f"$(({inside})) is not read")

    def _dollar(self) -> List[str]:
        """The values of an expansion; its $ has been read. None is the result of "$@" without arguments."""
        rest = self.text[self.at:self.at + 2]
        if rest == "((":
            self.at += 2
            inside = self._to(")")
            self.at += self.text[self.at:self.at + 1] == ")"
            return [self._arithmetic(inside)]
        if rest[:1] == "(":
            self.at += 1
            return [self._substituted(self._to(")"))]
        if rest[:1] == "{":
            self.at += 1
            return self._braces(self._to("}"))
        name = _NAME.match(self.text, self.at)
        if name:
            self.at = name.end()
            return self._value(name[0])[:1] or [self._unset(name[0])]
        self.at += 1
        if rest[:1].isdigit():
            return self._value(rest[0]) or [""]
        return {"@": self.arguments, "*": self.arguments, "#": [str(len(self.arguments))]}.get(rest[:1], [self.unknown(f"${rest[:1]} is not read")])

    def _double(self) -> List[str]:
        """The text up to the closing double quote; the opening one has been read. Only "${NAME[@]}" gives several fields."""
        fields = [""]
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            self.at += 1
            if char == "\\" and self.text[self.at:self.at + 1] in ('"', "\\", "$", "`", "\n"):
                fields[-1] += self.text[self.at].replace("\n", "")
                self.line += self.text[self.at] == "\n"
                self.at += 1
            elif char == "$":
                values = self._dollar()
                fields[-1] += values[0] if values else ""
                fields += values[1:]
                if not values and len(fields) == 1 and self.text[self.at:self.at + 1] == '"' and fields == [""]:
                    fields = []  # "$@" without arguments is no word
                    break
            elif char == "`":
                self._backticks(fields)
            else:
                self.line += char == "\n"
                fields[-1] += char
        self.at += 1
        return fields

    def _backticks(self, fields: List[str]) -> None:
        end = self._next("`")
        fields[-1] += self._substituted(self.text[self.at:end])
        self.at = end + 1

    def word(self) -> List[str]:
        """The fields of the next word; none where it expands to nothing."""
        fields, quoted = [""], False
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|<>()":
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                self.line += self.text[self.at:self.at + 1] == "\n"
                fields[-1] += self.text[self.at:self.at + 1].replace("\n", "")
                self.at += 1
            elif char == "'":
                end = self._next("'")
                fields[-1] += self.text[self.at:end]
                self.line += self.text.count("\n", self.at, end)
                self.at, quoted = end + 1, True
            elif char == '"':
                more = self._double()
                quoted = quoted or bool(more)
                fields[-1] += more[0] if more else ""
                fields += more[1:]
            elif char == "`":
                self._backticks(fields)
            elif char == "$":
                assigned = _ASSIGNED.match(fields[0])  # the value of an assignment is not split
                values = [" ".join(self._dollar())] if assigned else [part for value in self._dollar() for part in self._split(value)]
                fields[-1] += values[0] if values else ""
                fields += values[1:]
            else:
                fields[-1] += char
            if self.text[self.at:self.at + 1] == "(" and fields[-1].endswith("=") and _ASSIGNED.fullmatch(fields[-1]):
                return [fields[-1] + "("]
        return fields if quoted else [field for field in fields if field]

    @staticmethod
    def _split(value: str) -> List[str]:
        pieces = value.split()
        return ([""] if value[:1].isspace() else []) + pieces + ([""] if value[-1:].isspace() and pieces else [])

    # Statements

    def _blank(self) -> None:
        """Passes blanks, continued lines and comments."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            elif self.text[self.at] == "#":
                self.at = self._next("\n")
            else:
                return

    def _newline(self) -> None:
        self.at += 1
        self.line += 1
        for ends in self.here_documents:
            while self.at < len(self.text):
                end = self._next("\n")
                line, self.at = self.text[self.at:end], end + 1
                self.line += 1
                if line.strip("\t") == ends:
                    break
        self.here_documents = []

    def _array(self) -> List[str]:
        items: List[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != ")":
            self._blank()
            if self.text[self.at:self.at + 1] == "\n":
                self._newline()
            elif self.text[self.at:self.at + 1] in (";", "&", "|", "<", ">", "("):
                self.at += 1
            elif self.text[self.at:self.at + 1] != ")":
                items += [item for item in self.word() if item]
        self.at += 1
        return items

    def _set(self, word: str, values: List[str], inside: str) -> str:
        name, _, _ = word.partition("=")
        more, name = name.endswith("+"), name.rstrip("+").split("[")[0]
        if inside:
            values = [self.unknown(f"{name} is set in line {self.line}, inside of {inside}")]
        if more and word.endswith("("):
            values = self.variables.get(name, []) + values
        elif more:
            values = ["".join(self._value(name)[:1] + values)]
        if sum(map(len, values)) > _LONGEST:
            values = [self.unknown(f"{name} in line {self.line} has over {_LONGEST} characters")]
        self.variables[name] = values
        if name in self.environment and values:
            self.environment[name] = values[0]
        return name

    def _redirect(self, words: List[str]) -> None:
        begin = self.at
        while self.text[self.at:self.at + 1] in ("<", ">", "&", "|"):
            self.at += 1
        kind = self.text[begin:self.at]
        if kind == "<<" and self.text[self.at:self.at + 1] == "-":
            self.at += 1
        if words and words[-1].isdigit() and self.text[begin - 1:begin].isdigit():
            words.pop()  # the number of a descriptor
        if not self.text.startswith("(", self.at):
            self._blank()
            target = self.word()
            if kind == "<<":
                self.here_documents.append("".join(target))

    def _read(self) -> None:
        words: List[str] = []
        before, line = "", 0
        while self.at < len(self.text):
            self._blank()
            char = self.text[self.at:self.at + 1]
            if char in ("<", ">") or self.text.startswith("&>", self.at):
                self._redirect(words)
            elif char and char in "\n;&|()":
                if char != "(" or len(words) != 1 or not re.match(r"\(\s*\)", self.text[self.at:self.at + 9]):  # a function's name
                    self._statement(line, words, before)
                words, before = [], "||" if self.text.startswith("||", self.at) else before if char == "\n" and not words else ""
                if char == "(":
                    self.blocks.append("(")
                elif char == ")" and self.blocks[-1:] == ["("]:
                    self.blocks.pop()
                if char == "\n":
                    self._newline()
                else:
                    self.at += 2 if self.text[self.at:self.at + 2] in ("||", "&&", ";;") else 1
            elif char:
                line = line if words else self.line
                fields = self.word()
                if len(fields) == 1 and fields[0].endswith("=(") and self.text[self.at:self.at + 1] == "(":
                    self._set(fields[0], self._array(), self.blocks[-1] if self.blocks else before)
                words += fields
        self._statement(line, words, before)

    def _statement(self, line: int, words: List[str], before: str) -> None:
        while words and words[0] in ("then", "do", "else", "elif", "!", "if", "while", "until", "{"):
            if words[0] in ("if", "while", "until", "{"):
                self.blocks.append("a function or group" if words[0] == "{" else words[0])
            words = words[1:]
        if not words:
            return
        if words[0] in ("for", "case", "select") or words[0] == "function" and words[-1] == "{":
            self.blocks.append(words[0])
            return
        if words[0] in ("fi", "done", "esac", "}"):
            del self.blocks[-1:]
            return
        inside = before or (self.blocks[-1] if self.blocks else "")
        inside = "( )" if inside == "(" else inside
        own: Dict[str, str] = {}
        while words and _ASSIGNED.match(words[0]):
            word = words.pop(0)
            own[word.partition("=")[0]] = word
        if not words or words[0] in ("export", "declare", "typeset", "readonly", "local"):
            self._assign(words, [word for word in own.values() if not word.endswith("=(")], inside)
            return
        if words[0] in ("source", "."):
            self.sourced = words[1] if len(words) > 1 else ""
        environment = {**self.environment, **{name: word.partition("=")[2] for name, word in own.items()}}
        if words[0] in ("cd", "pushd"):
            target = words[1] if len(words) > 1 else "~"
            self.folder = self.unknown(f"cd in line {line} is inside of {inside}") if inside else os.path.join(self.folder, os.path.expanduser(target))
        self.statements.append(Statement(line, words, inside, environment, self.folder))

    def _assign(self, words: List[str], own: List[str], inside: str) -> None:
        for word in own:
            self._set(word, [word.partition("=")[2]], inside)
        for word in words[1:]:
            if _ASSIGNED.match(word):
                self._set(word, [word.partition("=")[2]], inside)
            if words[0] == "export" and _NAME.match(word):
                name = word.partition("=")[0]
                self.environment[name] = (self.variables.get(name) or [self.environment.get(name, "")])[0]
