// SPDX-License-Identifier: Apache-2.0
#pragma once

// Table: rows of text for a terminal, columns aligned by width: the first to the left, numbers to the right.

#include <string>
#include <vector>

namespace mpt::reports {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  /// One cell per column, made printable (core/text.h).
  void add_row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  /// Lines that end in a newline, indented by two spaces; no trailing blanks.
  std::string text() const;
  /// The same as an HTML table.
  std::string html() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mpt::reports
