// SPDX-License-Identifier: Apache-2.0
#include "core/layer_list.h"

#include "base/error.h"

namespace mpt {
namespace {

constexpr size_t kLongestBlock = 16;

// How many times the block of `size` names at `at` occurs in a row.
size_t repeats(const std::vector<std::string>& names, size_t at, size_t size) {
  size_t times = 1;
  while (at + (times + 1) * size <= names.size() &&
         std::equal(names.begin() + ptrdiff_t(at), names.begin() + ptrdiff_t(at + size),
                    names.begin() + ptrdiff_t(at + times * size)))
    ++times;
  return times;
}

}  // namespace

std::vector<LayerRun> runs_of(const std::vector<std::string>& names) {
  std::vector<LayerRun> runs;
  for (size_t at = 0; at < names.size();) {
    size_t size = 1, times = repeats(names, at, 1);
    for (size_t longer = 2; longer <= kLongestBlock && at + 2 * longer <= names.size(); ++longer) {
      if (const size_t again = repeats(names, at, longer); again > 1 && longer * again > size * times) {
        size = longer;
        times = again;
      }
    }
    const std::vector<std::string> block(names.begin() + ptrdiff_t(at), names.begin() + ptrdiff_t(at + size));
    at += size * times;
    // Successive single layers form one run.
    if (times == 1 && !runs.empty() && runs.back().repeat == 1)
      runs.back().of.insert(runs.back().of.end(), block.begin(), block.end());
    else
      runs.push_back({int64_t(times), block});
  }
  return runs;
}

void LayerList::assign(const std::vector<LayerKind>& all, const std::vector<size_t>& order) {
  std::vector<std::string> names;
  for (const LayerKind& kind : all) {
    const std::string plain = kind_name(kind);
    std::string name = plain;
    for (int n = 2; kinds.contains(name); ++n) name = plain + "_" + std::to_string(n);
    kinds.emplace(name, kind);
    names.push_back(name);
  }
  runs = runs_of(mapped<std::string>(order, [&](const size_t k) { return names[k]; }));
}

int64_t LayerList::count() const {
  return sum_of<int64_t>(runs, [](const LayerRun& run) { return run.repeat * int64_t(run.of.size()); });
}

const std::string& LayerList::name_of(int64_t layer) const {
  for (const LayerRun& run : runs) {
    const auto size = int64_t(run.of.size());
    if (layer < run.repeat * size) return run.of[size_t(layer % size)];
    layer -= run.repeat * size;
  }
  MPT_CHECK(false, "no layer {} above the last", layer);
}

bool LayerList::operator==(const LayerList& other) const {
  if (kinds == other.kinds && runs == other.runs) return true;
  const int64_t layers = count();
  if (layers != other.count()) return false;
  // Each pair of kinds is compared once.
  const std::string *name = nullptr, *other_name = nullptr;
  for (int64_t l = 0; l < layers; ++l) {
    const std::string &own = name_of(l), &others = other.name_of(l);
    if (name != nullptr && own == *name && others == *other_name) continue;
    if (!(kinds.at(own) == other.kinds.at(others))) return false;
    name = &own;
    other_name = &others;
  }
  return true;
}

}  // namespace mpt
