// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/python_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace mpt::frameworks {
namespace {

PythonFile python(const std::string& text) {
  const std::string file = testing::TempDir() + "/read.py";
  write_file_atomically(file, text);
  return read_python(file);
}

TEST(PythonFile, LiteralsAndCalls) {
  const Json values = python(R"py("""Docstring."""
A = 8 * 1024 - 2 * (3 + 1) // 4
E = 0.5 * 4 - 1
F = -7 // 2
B: list[int] = [1_000, -2.5, "x" 'y', (1,), (2), None, True]  # comment
C = {"k": dict(a=1, b=f.g("p", q=B))}
D = """long
text"""
)py")
                          .values;
  EXPECT_EQ(values["A"], 8190);
  EXPECT_EQ(values["E"], 1.0);
  EXPECT_EQ(values["F"], -4);
  EXPECT_EQ(values["B"], Json::parse(R"([1000, -2.5, "xy", [1], 2, null, true])"));
  EXPECT_EQ(values["C"]["k"]["a"], 1);
  EXPECT_EQ(values["C"]["k"]["b"][kCallKey], "f.g");
  EXPECT_EQ(values["C"]["k"]["b"]["q"], values["B"]);
  EXPECT_EQ(values["C"]["k"]["b"][kArgumentsKey], Json::array({"p"}));
  EXPECT_EQ(values["D"], "long\ntext");
}

TEST(PythonFile, FunctionsReturnWhatOthersDoWithChanges) {
  const PythonFile file = python(R"py(from a.b import c, d as e
def one():
    return F(x=G(y=1))

def two():
    config = one()
    config.x.y = 2
    config.z = [c]
    if config.z:
        config.y = 3 if c else 4
    return config
)py");
  EXPECT_EQ(file.imports.at("c"), "a.b");
  ASSERT_EQ(file.functions.size(), 2);
  EXPECT_EQ(file.functions[0].result["x"]["y"], 1);
  EXPECT_EQ(file.functions[1].result["x"]["y"], 2);
  EXPECT_EQ(file.functions[1].result["z"][0][kNameKey], "c");
  ASSERT_EQ(file.functions[1].unread.size(), 1);
  EXPECT_EQ(file.functions[1].unread[0].text, "line 10: config.y = 3 if c else 4");
}

TEST(PythonFile, BranchesAndLoopsWhoseConditionsAreKnown) {
  const PythonFile file = python(R"py(
STAGES = {(1, 1): None, (2, 1): [["t"] * 2, ["t"] + ["L"]]}
TEXT = "|".join(("E" + "t" * 2, "tL"))

def layout(size: int, chunks: int | None = None):
    chunks = 1 if chunks is None else chunks
    if (size, chunks) not in STAGES:
        raise ValueError(f"{size}")
    found = STAGES[(size, chunks)]
    if found is not None:
        found = list([list(x) for x in found])
    return found

def balanced(layers, stages):
    each, more = divmod(layers, stages)
    all = []
    for s in range(stages):
        all.append(["t"] * (each + int(s < more)))
    return all

def one(scheme: str = "LoRA"):
    config = F(size=2)
    change(config.model, on=True)
    config.layout = layout(config.size)
    config.none = layout(1)
    config.balanced = balanced(3, 2)
    if isinstance(scheme, str) and scheme.lower() in ["lora", "dora"]:
        config.rank = 8
    elif config.size > 1:
        config.rank = 16
    if config.other > 1:
        config.rank = 32
    return config

def change(model, *, on=False):
    if not on:
        return
    model.tensor = getattr(model, "chunks", 4)
)py");
  const Json& result = file.functions[2].result;
  EXPECT_EQ(file.values["TEXT"], "Ett|tL");
  EXPECT_EQ(result["layout"], Json::parse(R"([["t", "t"], ["t", "L"]])"));
  EXPECT_EQ(result["none"], nullptr);
  EXPECT_EQ(result["balanced"], Json::parse(R"([["t", "t"], ["t"]])"));
  EXPECT_EQ(result["rank"], 8) << "a condition that is not known changes nothing";
  ASSERT_EQ(file.functions[2].unread.size(), 1);
  EXPECT_EQ(file.functions[2].unread[0].text, "line 31: if config.other > 1:");
  EXPECT_EQ(python(R"py(
def change(model, size=4):
    model.part.tensor = size

def one():
    config = F(model=G(x=1))
    change(config.model)
    return config
)py")
                .functions[1]
                .result["model"]["part"]["tensor"],
            4);
}

TEST(PythonFile, FunctionsOfFilesBeside) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "package";
  std::filesystem::create_directories(folder / "b");
  write_file_atomically(folder / "b" / "base.py", "SIZE = 3\ndef base(x=SIZE):\n    return F(x=x, y=1)\n");
  write_file_atomically(folder / "b" / "one.py",
                        "from package.b.base import SIZE as size, base\nfrom .base import base as near\n"
                        "from nowhere import other\ndef one():\n    c = base()\n    c.y = size * 2\n"
                        "    c.near = near(5)\n    c.other = other()\n    return c\n");
  write_file_atomically(folder / "b" / "two.py",
                        "from .three import three\ndef two():\n    return three()\n");
  write_file_atomically(folder / "b" / "three.py",
                        "def three():\n    with x:\n        y = 1\n    return F(y)\n");
  EXPECT_EQ(read_python(folder / "b" / "two.py").functions.at(0).unread.at(0).text,
            "three.py at line 2: with x:");
  EXPECT_EQ(read_python(folder / "b" / "two.py").functions.at(0).result[kArgumentsKey], Json::array({1}));
  const Json result = read_python(folder / "b" / "one.py").functions.at(0).result;
  EXPECT_EQ(result["x"], 3);
  EXPECT_EQ(result["y"], 6);
  EXPECT_EQ(result["near"]["x"], 5);
  EXPECT_EQ(result["other"][kCallKey], "other");
}

// A docstring that begins a line with the name says nothing of it.
TEST(PythonFile, AFileIsAskedForANameByWhatItDefines) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "defines";
  std::filesystem::create_directories(folder / "b");
  write_file_atomically(folder / "b" / "tools.py", "\"\"\"Other tools:\nhelper is above.\n\"\"\"\n");
  write_file_atomically(folder / "tools.py", "def helper():\n    return 7\n");
  write_file_atomically(folder / "b" / "one.py",
                        "from tools import helper\ndef one():\n    return helper()\n");
  EXPECT_EQ(read_python(folder / "b" / "one.py").functions.at(0).result, 7);
}

TEST(PythonFile, FunctionsCallThoseThatStandFurtherDown) {
  const PythonFile file = python(R"py(def one():
    config = two()
    config.z = 3
    return config

def two():
    return three(2)

def three(y):
    return F(x=y, again=three(1))
)py");
  ASSERT_EQ(file.functions.size(), 3);
  EXPECT_EQ(file.functions[0].name, "one");
  EXPECT_EQ(file.functions[0].result["x"], 2);
  EXPECT_EQ(file.functions[0].result["z"], 3);
  EXPECT_EQ(file.functions[1].result["x"], 2);
  EXPECT_EQ(file.functions[2].result["x"][kNameKey], "y");
}

TEST(PythonFile, AnArgumentThatIsNotUnderstoodLeavesTheOthers) {
  const PythonFile file = python(R"py(
def one() -> Trainer.Config:
    return F(data=TABLE["c4"], x=G(y=1, z=[a for a in b], w=not c), last=3)
)py");
  ASSERT_EQ(file.functions.size(), 1);
  const PythonFunction& one = file.functions[0];
  EXPECT_EQ(one.returns, "Trainer.Config");
  EXPECT_EQ(one.result["x"]["y"], 1);
  EXPECT_EQ(one.result["last"], 3);
  EXPECT_EQ(one.result["data"][kNameKey], "TABLE[c4]");
  ASSERT_EQ(one.unread.size(), 3);
  EXPECT_EQ(one.unread[0].argument, "data");
  EXPECT_EQ(one.unread[0].text, "line 3: data=...");
  EXPECT_EQ(one.unread[1].argument, "z");
}

TEST(PythonFile, FunctionsTakeArguments) {
  const PythonFile file = python(R"py(from a.q import make
from a.r import make as other, more
def wrapped(flavor: str, *, backend="flex", n: int = 2, on=True):
    return make(flavor, backend=backend, n=n, on=on)

def loses(converters=()):
    model = M.Config()
    for c in converters:
        model = c.build().convert(model)
    return make("debug", model=model)

def one():
    return F(spec=wrapped("8B", n=3), other=wrapped("1B", colour="red"), lost=loses(converters=[C()]))
)py");
  EXPECT_EQ(file.imports.at("make"), "a.q");
  EXPECT_EQ(file.imports.at("other"), "a.r");
  EXPECT_EQ(file.imports.at("more"), "a.r");
  const Json& spec = file.functions[2].result["spec"];
  EXPECT_EQ(spec[kCallKey], "make");
  EXPECT_EQ(spec[kArgumentsKey][0], "8B");
  EXPECT_EQ(spec["backend"], "flex");
  EXPECT_EQ(spec["n"], 3);
  EXPECT_EQ(spec["on"], true);
  EXPECT_EQ(file.functions[2].result["other"][kCallKey], "wrapped");
  EXPECT_EQ(file.functions[2].result["lost"]["model"][kCallKey], "convert");
}

TEST(PythonFile, NamesThatStandForNamesDoNotGrowBeyondBounds) {
  std::string text = "a0 = [1, 2]\n";
  for (int i = 1; i < 60; ++i)
    text += "a" + std::to_string(i) + " = [a" + std::to_string(i - 1) + ", a" + std::to_string(i - 1) + "]\n";
  EXPECT_THROW(python(text), UserError);
  std::string calls = "def f0():\n    return [1, 2]\n";
  for (int i = 1; i < 60; ++i) {
    calls += fmt::format("def f{}():\n    return [f{}(), f{}()]\n", i, i - 1, i - 1);
  }
  EXPECT_THROW(python(calls), UserError);
}

TEST(PythonFile, WhatDoesNotEndIsRefusedAndDepthIsBounded) {
  EXPECT_THROW(python("a = [1, 2\n"), UserError);
  EXPECT_THROW(python("a = \"open\n"), UserError);
  EXPECT_THROW(python("a = \"\"\"open"), UserError);
  EXPECT_FALSE(
      python("a = " + std::string(100000, '(') + std::string(100000, ')') + "\n").values.contains("a"));
  EXPECT_FALSE(python("a = 1 // 0\nb = 2147483647 * 2147483647 * 2147483647\n").values.contains("b"));
  EXPECT_FALSE(python("a = " + std::string(100000, '-') + "1\n").values.contains("a"));
}

TEST(PythonFile, LiteralsComeBack) {
  const Json value = Json::parse(R"({"a": [1, 2.5, null, true, false, "t\"\n"], "b": {"c": "d"}})");
  EXPECT_EQ(python("X = " + python_text(value) + "\n").values["X"]["b"], value["b"]);
  EXPECT_EQ(python_text(value["a"]), R"([1, 2.5, None, True, False, "t\"\n"])");
}

}  // namespace
}  // namespace mpt::frameworks
