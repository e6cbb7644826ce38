// SPDX-License-Identifier: Apache-2.0
#pragma once

// Table: rows of text for a terminal. Columns are aligned by width: the first to the left, numbers to the
// right. With a width given, left-aligned cells wrap into further lines.

#include <string>
#include <vector>

namespace mpt::reports {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

/// Columns with these titles; "<" in front of one: aligned to the left.
std::vector<Column> columns(const std::vector<std::string>& titles);

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  /// One cell per column, made printable (base/text.h).
  void add_row(std::vector<std::string> cells);
  /// Lines that end in a newline, indented by two spaces, without trailing blanks. `columns`: the most that a
  /// line may have, if words and numbers allow; 0: no limit. Columns without any title have no heading.
  std::string text(size_t columns = 0) const;
  /// The same for lines too short for all columns: further columns follow in tables below. Each of those
  /// repeats the first `keys` columns.
  std::string stacked(size_t keys, size_t columns) const;

 private:
  std::vector<size_t> widths(size_t columns) const;
  Table part(size_t keys, size_t begin, size_t end) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace mpt::reports
