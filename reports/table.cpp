// SPDX-License-Identifier: Apache-2.0
#include "reports/table.h"

#include <numeric>

#include "base/error.h"
#include "base/ranges.h"
#include "base/terminal.h"

namespace mpt::reports {
namespace {

constexpr size_t kGap = 2;  // in front of each column

// The longest word of a text: the least width of its column.
size_t longest_word(const std::string& text) { return max_of<size_t>(split_at(text, ' '), 0, columns_of); }

std::vector<std::string> lines_of_cell(const std::string& cell, size_t width) {
  if (columns_of(cell) <= width) return {cell};
  std::vector<std::string> lines = split_at(wrapped(cell, "", width), '\n');
  lines.pop_back();  // the empty part after the last line feed
  return lines;
}

}  // namespace

std::vector<Column> columns(const std::vector<std::string>& titles) {
  std::vector<Column> all;
  for (const std::string& title : titles) {
    const bool left = title.starts_with('<');
    all.push_back({title.substr(size_t(left)), left ? Align::left : Align::right});
  }
  return all;
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = printable(column.title);
}

void Table::add_row(std::vector<std::string> cells) {
  MPT_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(), columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::widths(size_t columns) const {
  std::vector<size_t> widths, least;
  for (const Column& column : columns_) {
    widths.push_back(columns_of(column.title));
    least.push_back(longest_word(column.title));
  }
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], columns_of(row[c]));
      least[c] = std::max(least[c], longest_word(row[c]));
    }
  const auto total = [&] { return std::accumulate(widths.begin(), widths.end(), kGap * widths.size()); };
  // From the right, where the remarks are. Columns that are narrower than this are hard to read.
  constexpr size_t kNarrow = 16;
  for (const size_t narrow : {kNarrow, size_t{0}})
    for (size_t c = widths.size(); c-- > 0;) {
      if (columns == 0 || columns_[c].align != Align::left) continue;
      while (total() > columns && widths[c] > std::max(least[c], narrow)) --widths[c];
    }
  return widths;
}

std::string Table::text(size_t columns) const {
  const std::vector<size_t> widths = this->widths(columns);
  std::string out;
  const auto append = [&](auto&& cell_of) {
    std::vector<std::vector<std::string>> cells;
    size_t lines = 1;
    for (size_t c = 0; c < columns_.size(); ++c) {
      cells.push_back(lines_of_cell(cell_of(c), widths[c]));
      lines = std::max(lines, cells.back().size());
    }
    for (size_t n = 0; n < lines; ++n) {
      std::string line;
      for (size_t c = 0; c < columns_.size(); ++c) {
        const std::string cell = n < cells[c].size() ? cells[c][n] : "";
        const std::string blank(widths[c] - std::min(widths[c], columns_of(cell)), ' ');
        line += std::string(kGap, ' ') + (columns_[c].align == Align::left ? cell + blank : blank + cell);
      }
      out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
  };
  const bool titled = any_of(columns_, [](const Column& c) { return !c.title.empty(); });
  if (titled) append([&](size_t c) { return columns_[c].title; });
  if (titled) append([&](size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) append([&](size_t c) { return row[c]; });
  return out;
}

// The first `keys` columns and those from `begin` to before `end`.
Table Table::part(size_t keys, size_t begin, size_t end) const {
  const auto chosen = [&](const auto& all) {
    std::decay_t<decltype(all)> some(all.begin(), all.begin() + ptrdiff_t(keys));
    some.insert(some.end(), all.begin() + ptrdiff_t(begin), all.begin() + ptrdiff_t(end));
    return some;
  };
  Table table(chosen(columns_));
  for (const auto& row : rows_) table.rows_.push_back(chosen(row));
  return table;
}

std::string Table::stacked(size_t keys, size_t columns) const {
  const auto fits = [&](size_t begin, size_t end) {
    const std::vector<size_t> widths = part(keys, begin, end).widths(0);
    return std::accumulate(widths.begin(), widths.end(), kGap * widths.size()) <= columns;
  };
  std::string out;
  for (size_t begin = keys, end = 0; begin < columns_.size(); begin = end) {
    for (end = begin + 1; end < columns_.size() && fits(begin, end + 1);) ++end;
    out += (out.empty() ? "" : "\n") + part(keys, begin, end).text(columns);
  }
  return out;
}

}  // namespace mpt::reports
