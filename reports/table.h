// SPDX-License-Identifier: Apache-2.0
#pragma once

// Table: rows of text for a terminal, columns aligned by width: the first to the left, numbers to the right.
// Where a width is given, words of the columns that stand to the left go on in further lines.

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

  /// One cell per column, made printable (base/text.h).
  void add_row(std::vector<std::string> cells);
  /// Lines that end in a newline, indented by two spaces; no trailing blanks. `columns`: the most that a line
  /// has, as far as words and numbers allow; 0: as many as it takes.
  /// Columns without any title have no heading.
  std::string text(size_t columns = 0) const;
  /// The same where lines are too short for all columns: further columns go on in tables below, behind the
  /// first `keys` ones.
  std::string stacked(size_t keys, size_t columns) const;

 private:
  std::vector<size_t> widths(size_t columns) const;
  Table part(size_t keys, size_t begin, size_t end) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mpt::reports
