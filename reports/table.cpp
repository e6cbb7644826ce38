// SPDX-License-Identifier: Apache-2.0
#include "reports/table.h"

#include <algorithm>

#include "core/error.h"
#include "reports/html.h"

namespace mpt::reports {
namespace {

// Width on a terminal: code points, not bytes.
size_t width_of(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = printable(column.title);
}

void Table::add_row(std::vector<std::string> cells) {
  MPT_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(), columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.title));
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string out;
  const auto append = [&](auto&& cell_of) {
    std::string line = " ";
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = cell_of(c);
      const std::string blank(widths[c] - width_of(cell), ' ');
      line += (c == 0 ? " " : "  ") + (columns_[c].align == Align::left ? cell + blank : blank + cell);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  append([&](size_t c) { return columns_[c].title; });
  append([&](size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) append([&](size_t c) { return row[c]; });
  return out;
}

std::string Table::html() const {
  std::string out = "<table>\n<tr>";
  for (const Column& column : columns_) out += "<th>" + escape_html(column.title) + "</th>";
  for (const auto& row : rows_) {
    out += "</tr>\n<tr>";
    for (const std::string& cell : row) out += "<td>" + escape_html(cell) + "</td>";
  }
  return out + "</tr>\n</table>\n";
}

}  // namespace mpt::reports
