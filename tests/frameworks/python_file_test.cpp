// SPDX-License-Identifier: Apache-2.0
#include "frameworks/python_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

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
  EXPECT_EQ(file.functions[1].unread,
            (std::vector<std::string>{"line 9: if config.z:", "line 10: config.y = 3 if c else 4"}));
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
