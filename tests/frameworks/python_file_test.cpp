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
B: list[int] = [1_000, -2.5, "x" 'y', (1,), (2), None, True]  # comment
C = {"k": dict(a=1, b=f.g("p", q=B))}
D = """long
text"""
)py")
                          .values;
  EXPECT_EQ(values["A"], 8190);
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
  ASSERT_EQ(file.functions[1].unread.size(), 2);
  EXPECT_EQ(file.functions[1].unread[0].text, "line 9: if config.z:");
  EXPECT_EQ(file.functions[1].unread[1].text, "line 10: config.y = 3 if c else 4");
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
  EXPECT_EQ(file.functions[2].result["lost"][kCallKey], "loses") << "its argument does not reach the result";
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
