# SPDX-License-Identifier: Apache-2.0
"""The checks that a framework makes of its settings, read from its source: assertions, and the assignments that they depend on.

A rule is a list that begins with the line number of its statement:
  [line, "assert", condition]        the framework refuses what makes it false
  [line, "refuse"]                   the framework refuses what comes here
  [line, "set", name, value]         later conditions see this value; "unknown" where it cannot be read
  [line, "if", condition, then, otherwise]
Conditions are over the names of settings, in postfix form: "hidden heads % 0 ==". An expression that is not simple is
"unknown". Names of local variables begin with _.
"""

import ast

OBJECTS = {"args", "self", "config"}  # objects with settings as attributes
SIMPLE_CALLS = {"int", "bool", "len", "isinstance", "lower"}
# Functions of several values that are not read as statements: their results, by their arguments.
SUMMARIES = {
    # megatron/core/model_parallel_config.py: one shard per tensor rank, unless a number is set.
    "resolve_tensor_parallel_weight_shards": lambda a: (a[1], f"1 if {a[1]} is None else unknown"),
}
# Types of numbers by the words that Megatron-LM's flags have for them.
DTYPES = {"float": "fp32", "float32": "fp32", "half": "fp16", "float16": "fp16", "bfloat16": "bf16"}
UNKNOWN = ast.Name("unknown")
DEEPEST = 4  # functions that call functions
NESTED = (ast.If, ast.For, ast.While, ast.Try, ast.With)
SIMPLE = (ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.List, ast.Tuple, ast.Set, ast.Subscript)
OPERATORS = (ast.And, ast.Or, ast.Not, ast.USub, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Eq, ast.NotEq, ast.Lt,
             ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.BitAnd)


class Expressions(ast.NodeTransformer):
    """Replaces expressions by the names of settings; an expression that is not simple becomes `unknown`."""

    def __init__(self, enums=None, parameters=(), prefix="", names=None, constants=None):
        """`enums`: values by class and member. `parameters`: arguments of the function that are settings. `prefix`: of attributes of self.
        `names`: of sections, by the attributes that hold them. `constants`: values by names of the file."""
        self.enums, self.parameters, self.prefix = enums or {}, set(parameters), prefix
        self.names, self.constants = names or {}, constants or {}

    def setting(self, node):
        """The setting that an expression names, or None."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in OBJECTS:
            return self.prefix + self.names.get(node.attr, node.attr)
        if isinstance(node, ast.Attribute) and (owner := self.setting(node.value)):
            return f"{owner}.{node.attr}"
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ("kw_args", "kwargs") \
                and isinstance(node.slice, ast.Constant):
            return node.slice.value
        if isinstance(node, ast.Name) and node.id not in OBJECTS:
            return node.id if node.id in self.parameters else "_" + node.id
        return None

    def visit(self, node):
        if isinstance(node, ast.Constant):
            return node if isinstance(node.value, (str, int, float, type(None))) else UNKNOWN
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.enums:
            text = self.enums[node.value.id].get(node.attr)
            return UNKNOWN if text is None else ast.Constant(text)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
            return ast.Constant(DTYPES[node.attr]) if node.attr in DTYPES else UNKNOWN
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Name) and node.id in self.constants:
            return ast.Constant(self.constants[node.id])
        if name := self.setting(node):
            return ast.Name(name)
        if isinstance(node, (*SIMPLE, *OPERATORS)):
            understood = isinstance(getattr(node, "op", OPERATORS[0]()), OPERATORS)
            return self.generic_visit(node) if understood else UNKNOWN
        return node if isinstance(node, (ast.Load, ast.Store)) else UNKNOWN

    def call(self, node):
        name = ast.unparse(node.func)
        if name == "torch.is_grad_enabled":  # true in a training
            return ast.Constant(True)
        if name in ("os.environ.get", "os.getenv") and isinstance(node.args[0], ast.Constant):
            return ast.Name("env." + node.args[0].value)
        if name == "getattr" and isinstance(node.args[1], ast.Constant) and (part := self.setting(ast.Attribute(node.args[0], node.args[1].value))):
            return ast.Name(part)
        if name in ("any", "all") and isinstance(node.args[0], (ast.List, ast.Tuple)):
            items = ast.BoolOp(ast.Or() if name == "any" else ast.And(), [self.visit(item) for item in node.args[0].elts])
            return ast.Call(ast.Name("bool"), [items], [])
        if name == "any" and isinstance(node.args[0], ast.GeneratorExp) and isinstance(one := node.args[0].elt, ast.Compare) \
                and isinstance(one.ops[0], ast.In) and isinstance(one.left, ast.Constant):  # a text that is one of several, or a part of one
            return ast.Call(ast.Name("bool"), [ast.Compare(one.left, [ast.In()], [self.visit(node.args[0].generators[0].iter)])], [])
        if name in ("map_dtype", "set", "sorted") and len(node.args) == 1:  # of types by their words, and of lists
            return self.visit(node.args[0])
        if isinstance(node.func, ast.Attribute) and node.func.attr == "count" and (owner := self.setting(node.func.value)) \
                and isinstance(item := self.visit(node.args[0]), ast.Constant):
            return ast.Name(f"{owner}.{item.value}")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "lower" and not node.args and self.setting(node.func.value):
            return ast.Call(ast.Name("lower"), [self.visit(node.func.value)], [])
        if name == "isinstance" and len(node.args) == 2 and isinstance(node.args[1], ast.Name) and node.args[1].id in ("list", "int", "str"):
            return ast.Call(ast.Name("isinstance"), [self.visit(node.args[0]), ast.Constant(node.args[1].id)], [])
        if name == "isinstance" and isinstance(node.args[1], ast.Attribute) and node.args[1].attr == "Config" and (part := self.setting(node.args[0])):
            return ast.Compare(ast.Name(f"{part}.kind"), [ast.Eq()], [ast.Constant(ast.unparse(node.args[1]))])
        if name in SIMPLE_CALLS - {"isinstance"} and not node.keywords:
            return ast.Call(ast.Name(name), [self.visit(argument) for argument in node.args], [])
        return UNKNOWN

    def text(self, node):
        text = ast.unparse(ast.fix_missing_locations(self.visit(node)))
        return text if set(names_in(text)) - {"unknown"} or "unknown" not in text else "unknown"


def names_in(text):
    """The settings in a condition."""
    found = set()

    def walk(node):
        if isinstance(node, (ast.Name, ast.Attribute)):
            found.add(ast.unparse(node))
        else:
            for child in ast.iter_child_nodes(node):
                walk(child)
    walk(ast.parse(text, mode="eval").body)
    return found - SIMPLE_CALLS


def targets_of(node):
    """The targets of assignments below a node."""
    for statement in ast.walk(node):
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                yield from target.elts if isinstance(target, ast.Tuple) else [target]


class Rules:
    """Rules of statements. `find_function(name)` gives the tree and the path of a function, or None."""

    def __init__(self, expressions, find_function, path, defaults=None):
        """`defaults`: of fields that a configuration takes where keywords are dropped."""
        self.expressions, self.find_function, self.path, self.defaults = expressions, find_function, path, defaults or {}

    def of(self, body, path=None, depth=0):
        path = path or self.path
        rules = []
        for index, node in enumerate(body):
            line = node.lineno if path == self.path else f"{path}:{node.lineno}"
            if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return):
                # The following statements happen otherwise.
                rest = self.of([*node.orelse, *body[index + 1:]], path, depth)
                rules.append([line, "if", self.expressions.text(node.test), self.of(node.body[:-1], path, depth), rest])
                return rules
            rules += self.of_statement(node, line, path, depth)
            if isinstance(node, NESTED) and any(isinstance(below, ast.Return) for below in ast.walk(node)):
                # It is not known whether the following statements happen.
                return rules + only_values(self.of(body[index + 1:], path, depth))
        return rules

    def of_statement(self, node, line, path, depth):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) == 1 and (name := self.expressions.setting(targets[0])):
                return [[line, "set", name, self.expressions.text(node.value)]]
            summary = SUMMARIES.get(ast.unparse(node.value.func)) if isinstance(node.value, ast.Call) else None
            if summary and isinstance(targets[0], ast.Tuple):
                values = summary([self.expressions.text(argument) for argument in node.value.args])
                return [[line, "set", self.expressions.setting(target), value] for target, value in zip(targets[0].elts, values)]
            return self.unknown(node, line)
        if isinstance(node, ast.AugAssign):
            return [[line, "set", self.expressions.setting(node.target), self.expressions.text(ast.BinOp(node.target, node.op, node.value))]]
        if isinstance(node, ast.Assert):
            return [[line, "assert", self.expressions.text(node.test)]]
        if isinstance(node, ast.Raise) or ast.unparse(node) == "exit()":
            return [[line, "refuse"]]
        if isinstance(node, ast.If):
            return [[line, "if", self.expressions.text(node.test), self.of(node.body, path, depth), self.of(node.orelse, path, depth)]]
        if isinstance(node, ast.With):
            return self.of(node.body, path, depth)
        if isinstance(node, (ast.For, ast.While, ast.Try)):
            return self.unknown(node, line)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            return self.of_call(node.value, line, depth)
        return []

    def unknown(self, node, line):
        names = dict.fromkeys(filter(None, map(self.expressions.setting, targets_of(node))))
        return [[line, "set", name, "unknown"] for name in names]

    def of_call(self, call, line, depth):
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend") and (name := self.expressions.setting(call.func.value)):
            item = self.expressions.text(call.args[0])
            return [[line, "set", name, f"{name} + [{item}]" if call.func.attr == "append" else f"{name} + {item}"]]
        if ast.unparse(call.func) in ("kw_args.pop", "kwargs.pop"):
            name = call.args[0].value
            return [[line, "set", name, repr(self.defaults[name]) if name in self.defaults else "unknown"]]
        own = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self"
        if not own and not any(isinstance(argument, ast.Name) and argument.id in OBJECTS for argument in call.args):
            return []
        name = call.func.attr if own else ast.unparse(call.func)
        found = self.find_function(name) if depth < DEEPEST else None
        if found is None:
            return []
        function, path = found
        return self.of(function.body, path, depth + 1)


def fields_of(cls):
    """{field: (annotation, default)} of a dataclass; the default is None if it is not a literal."""
    fields = {}
    for item in cls.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            try:
                default = ast.literal_eval(item.value)
            except (ValueError, TypeError):
                default = UNKNOWN
            fields[item.target.id] = (item.annotation, default)
    return fields


def kind_of(annotation):
    """The form of a value (int, float, flag, text or other), and its allowed texts."""
    text = ast.unparse(annotation)
    for part in ast.walk(annotation):
        if isinstance(part, ast.Subscript) and ast.unparse(part.value) in ("Literal", "typing.Literal"):
            items = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
            return "text", [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    words = set(text.replace("Optional[", "").rstrip("]").replace(" ", "").split("|")) - {"None"}
    kinds = {"int": "int", "float": "float", "bool": "flag", "str": "text"}
    return kinds.get(words.pop(), "other") if len(words) == 1 else "other", []


def used(rules, names):
    """Adds to `names` the settings that conditions use, and the settings that their values come from. Returns whether any are new."""
    before = len(names)
    for rule in rules:
        if rule[1] == "assert":
            names |= names_in(rule[2])
        elif rule[1] == "set" and rule[2] in names:
            names |= names_in(rule[3])
        elif rule[1] == "if":
            used(rule[3] + rule[4], names)
            if needed(rule, names):
                names |= names_in(rule[2])
    return len(names) > before


def needed(rule, names):
    if rule[1] == "set":
        return rule[2] in names
    if rule[1] == "if":
        return any(needed(below, names) for below in rule[3] + rule[4])
    return rule[1] == "refuse" or rule[2] != "unknown"


def sliced(rules, names):
    """The rules without those that no condition depends on."""
    kept = []
    for rule in (rule for rule in rules if needed(rule, names)):
        if rule[1] != "if":
            kept.append(rule)
            continue
        then, otherwise = sliced(rule[3], names), sliced(rule[4], names)
        if rule[2] == "unknown":  # refusals in an unknown branch cannot be judged
            kept += only_values(then + otherwise)
        elif then or otherwise:
            kept.append([*rule[:3], then] + ([otherwise] if otherwise else []))
    return kept


def only_values(rules):
    """The rules' assignments, with unknown values: it is not known whether they are executed."""
    kept = {}
    for rule in rules:
        if rule[1] == "set":
            kept[rule[2]] = [*rule[:3], "unknown"]
        elif rule[1] == "if":
            kept |= {below[2]: below for below in only_values([below for branch in rule[3:] for below in branch])}
    return list(kept.values())


def slices(files):
    """Rules of several files, in the order of their use, as asked.json has them, and the names that they need."""
    names = set()
    while any([used(rules, names) for _, rules in files]):
        pass
    return [{"file": file, "rules": in_postfix(kept)} for file, rules in files if (kept := sliced(rules, names))], names


SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.Eq: "==",
         ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in", ast.NotIn: "in not", ast.Is: "==",
         ast.IsNot: "!=", ast.And: "and", ast.Or: "or"}


def postfix(node):
    """An expression in postfix form."""
    if isinstance(node, str):
        return postfix(ast.parse(node, mode="eval").body)
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
        return repr(-node.operand.value)
    if isinstance(node, ast.Constant):
        return "unknown" if " " in str(node.value) else repr(node.value)
    if isinstance(node, ast.UnaryOp):
        return postfix(node.operand) + " not" if isinstance(node.op, ast.Not) else "unknown"
    if isinstance(node, ast.BinOp):
        return f"{postfix(node.left)} {postfix(node.right)} {SIGNS[type(node.op)]}"
    if isinstance(node, ast.BoolOp):
        first, *others = map(postfix, node.values)
        return " ".join([first, *(f"{other} {SIGNS[type(node.op)]}" for other in others)])
    if isinstance(node, ast.Compare):
        lefts = [node.left, *node.comparators]
        pairs = [f"{postfix(a)} {postfix(b)} {SIGNS[type(sign)]}" for a, sign, b in zip(lefts, node.ops, node.comparators)]
        return " ".join([pairs[0], *(f"{pair} and" for pair in pairs[1:])])
    if isinstance(node, ast.IfExp):
        return f"{postfix(node.test)} {postfix(node.body)} {postfix(node.orelse)} if"
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return " ".join([*map(postfix, node.elts), f"list{len(node.elts)}"])
    if isinstance(node, ast.Subscript):
        return f"{postfix(node.value)} {postfix(node.slice)} []"
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return postfix(node.args[0]) + (f" is_{node.args[1].value}" if name == "isinstance" else f" {name}")
    return ast.unparse(node)


def in_postfix(rules):
    """Rules with conditions in postfix form."""
    texts = {"assert": [2], "set": [3], "if": [2]}
    return [[in_postfix(part) if isinstance(part, list) else postfix(part) if index in texts.get(rule[1], []) else part
             for index, part in enumerate(rule)] for rule in rules]
