// SPDX-License-Identifier: Apache-2.0

// Answers a question of a program (planner/door/door.h) from stdin on stdout, as page/binding.cpp does for a
// page: tests/page/native.py asks it in place of the page's module.

#include <iostream>
#include <iterator>

#include "planner/door/door.h"

int main() {
  const std::string question{std::istreambuf_iterator<char>(std::cin), {}};
  std::cout << mpt::planner::answer_json(question) << std::endl;
}
