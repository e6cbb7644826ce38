# SPDX-License-Identifier: Apache-2.0
"""scripts/measure_code counts what it says, on small inputs with known answers.

Usage: measure_code_test.py SOURCES
"""

import importlib.machinery
import importlib.util
import os
import sys

SOURCES = os.path.abspath(sys.argv[1])
loader = importlib.machinery.SourceFileLoader("measure_code", os.path.join(SOURCES, "scripts/measure_code"))
measure_code = importlib.util.module_from_spec(importlib.util.spec_from_loader("measure_code", loader))
loader.exec_module(measure_code)

CPP = '''// a comment
/// another

int f() {  // behind code
  /* a block

     of three lines */
  const char* link = "https://a/b";  // marks in strings are none
  const char* raw = R"x(// not a comment
"still raw" /* nor this */)x";
  char quote = '"'; int million = 1'000'000;  // "
  return 0;
}
'''
PYTHON = '''#!/usr/bin/env python3
# a comment

def f():
    """A docstring
    of two lines."""
    return "# no comment"  # one
'''
failed = []


def expect(name, found, wanted):
    if found != wanted:
        failed.append(name)
        print(f"{name}: found {found!r}, expected {wanted!r}")


def lines(language, text):
    return measure_code.full_lines(measure_code.split_comments(language, text)[0])


expect("lines of C++", lines("C++", CPP), 7)
expect("lines of Python", lines("Python", PYTHON), 2)
for signature, count in {"()": 0, "(void)": 0, "(int a)": 1, "(std::map<int, int> a, int (*b)(int, int)) const": 2,
                         "(std::pair<int, int> a = {1, 2}, int b)": 2}.items():
    expect(f"parameters of {signature}", measure_code.parameters_of(signature), count)

source = {"a/one.h": '#include "a/two.h"\n', "a/one.cpp": '#include "a/one.h"\n#include <a/four.h>\n', "a/two.h": "",
          "a/two.cpp": '#include "a/two.h"\n#include "a/three.h"\n', "a/three.h": '#include "a/one.h"\n', "a/four.h": '#include "a/one.h"\n'}
product = {path: ("C++", text) for path, text in source.items()}
expect("a circle through a .cpp", measure_code.include_circles(product), [["a/one", "a/three", "a/two"]])
product["a/two.cpp"] = ("C++", '#include "a/two.h"\n')
expect("no circle", measure_code.include_circles(product), [])

found = measure_code.measure()
expect("the product has lines", 10_000 < found["product_lines"] < 200_000, True)
expect("folders add up", sum(found["folders"].values()), found["product_lines"])
print("measure_code: " + (f"{len(failed)} failed" if failed else "as expected"))
sys.exit(bool(failed))
