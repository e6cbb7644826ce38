// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/kernel_tables.h"

#include <tuple>

#include "base/digest.h"
#include "base/embedded.h"

namespace mpt::profiler {

const EmbeddedFiles& kernel_files();  // generated

LogGrid::LogGrid(std::vector<std::vector<double>> axes, const std::vector<double>& values,
                 std::vector<std::pair<double, double>> below, std::vector<std::pair<double, double>> above)
    : axes_(std::move(axes)), below_(std::move(below)), above_(std::move(above)) {
  size_t cells = 1;
  for (std::vector<double>& axis : axes_) {
    MPT_CHECK(!axis.empty() && std::is_sorted(axis.begin(), axis.end()) && axis.front() > 0.0,
              "a grid's axis does not rise from above 0");
    cells *= axis.size();
    for (double& x : axis) x = std::log(x);
  }
  MPT_CHECK(axes_.size() <= 3 && values.size() == cells, "{} values for {} cells", values.size(), cells);
  values_.reserve(cells);
  for (const double v : values) {
    MPT_CHECK(v > 0.0, "a grid's value is {}", v);
    values_.push_back(std::log(v));
  }
}

double LogGrid::at(std::array<double, 3> point) const {
  std::array<size_t, 3> cell{};
  std::array<double, 3> share{}, beyond{};
  for (size_t a = 0; a < axes_.size(); ++a) {
    const std::vector<double>& axis = axes_[a];
    const double x = std::log(std::max(point[a], 1e-300));
    const double inside = std::clamp(x, axis.front(), axis.back());
    beyond[a] = x - inside;
    if (axis.size() == 1) continue;
    cell[a] = size_t(std::upper_bound(axis.begin() + 1, axis.end() - 1, inside) - axis.begin()) - 1;
    share[a] = (inside - axis[cell[a]]) / (axis[cell[a] + 1] - axis[cell[a]]);
  }
  // The value inside, and its slope along each axis that the point lies beyond.
  double value = 0.0;
  std::array<double, 3> low{}, high{};
  for (size_t corner = 0; corner < size_t{1} << axes_.size(); ++corner) {
    double weight = 1.0;
    size_t index = 0;
    for (size_t a = 0; a < axes_.size(); ++a) {
      const bool up = (corner >> a & 1) != 0;
      index = index * axes_[a].size() + std::min(cell[a] + (up ? 1 : 0), axes_[a].size() - 1);
      weight *= up ? share[a] : 1.0 - share[a];
    }
    value += weight * values_[index];
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (beyond[a] == 0.0) continue;
      const bool up = (corner >> a & 1) != 0;
      const double own = up ? share[a] : 1.0 - share[a];
      if (own > 0.0) (up ? high : low)[a] += weight / own * values_[index];
      if (own > 0.0) continue;
      double others = 1.0;
      for (size_t b = 0; b < axes_.size(); ++b)
        if (b != a) others *= (corner >> b & 1) != 0 ? share[b] : 1.0 - share[b];
      (up ? high : low)[a] += others * values_[index];
    }
  }
  for (size_t a = 0; a < axes_.size(); ++a) {
    if (beyond[a] == 0.0) continue;
    const std::vector<double>& axis = axes_[a];
    const double slope = axis.size() > 1 ? (high[a] - low[a]) / (axis[cell[a] + 1] - axis[cell[a]]) : 0.0;
    const auto& [least, most] = (beyond[a] < 0.0 ? below_ : above_)[a];
    value += beyond[a] * std::clamp(slope, least, most);
  }
  return std::exp(value);
}

std::optional<double> KernelTables::gemm_s(bool fp8, double m, double n, double k) const {
  const LogGrid* const found = find_value(gemm, fp8 ? "fp8" : "bf16");
  return found == nullptr ? std::nullopt : std::optional(found->at({m, n, k}));
}

std::optional<double> KernelTables::attention_flop_per_s(double head_dim, double sequence,
                                                         double heads) const {
  if (attention.empty()) return std::nullopt;
  // Between two measured head sizes: interpolated in the logarithm of the size. Outside: the nearest one.
  // Beyond the longest sequence: its blocks of queries fill the chip like more heads of that length.
  const auto rate = [&](const LogGrid& grid) {
    const double longer = std::max(1.0, sequence / std::exp(grid.log_axes().front().back()));
    return grid.at({sequence, heads * longer, 1.0});
  };
  auto above = attention.lower_bound(int64_t(std::ceil(head_dim)));
  if (above == attention.end()) return rate(attention.rbegin()->second);
  if (above == attention.begin() || double(above->first) == head_dim) return rate(above->second);
  const auto below = std::prev(above);
  const double share =
      std::log(head_dim / double(below->first)) / std::log(double(above->first) / double(below->first));
  return std::exp((1.0 - share) * std::log(rate(below->second)) + share * std::log(rate(above->second)));
}

std::optional<double> KernelTables::training_attention_share(const std::string& pass,
                                                             const std::string& precision, double head_dim,
                                                             double sequence) const {
  const LogGrid* const found = find_value(training_attention, {pass, precision});
  return found == nullptr ? std::nullopt : std::optional(found->at({head_dim, sequence, 1.0}));
}

std::optional<double> KernelTables::grouped_flop_per_s(double rows, double width) const {
  if (grouped.empty()) return std::nullopt;
  return grouped.at({rows, width, 1.0});
}

std::optional<double> KernelTables::collective_s(const std::string& operation, double ranks,
                                                 double bytes) const {
  if (const LogGrid* exact = find_value(collective_of_ranks, {operation, int64_t(ranks)}))
    return exact->at({bytes, 1.0, 1.0});
  const LogGrid* const found = find_value(collective, operation);
  if (found == nullptr || ranks > double(most_ranks_)) return std::nullopt;
  return found->at({ranks, bytes, 1.0});
}

std::optional<double> KernelTables::exact_product_s(const std::string& pass, int64_t m, int64_t n,
                                                    int64_t k) const {
  const auto own = exact(products, pass, {m, n, k});
  return own ? own : exact(products, "any", {m, n, k});
}

namespace {

using Slopes = std::vector<std::pair<double, double>>;

std::vector<double> numbers(const Json& list, double unit = 1.0) {
  return mapped<double>(list, [&](const Json& value) { return value.get<double>() * unit; });
}

// The files are generated and built in, and tests read them all. So an error in one is a bug of this program.
KernelTables read_tables(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  KernelTables t;
  t.device = json.at("device").get<std::string>();
  t.source = json.at("source").get<std::string>();
  // A smaller product takes no less than the smallest of its kind (it is padded); beyond the largest, time
  // grows with work.
  const Slopes padded{{0, 0}, {0, 0}, {0, 0}}, with_work{{1, 1}, {1, 1}, {1, 1}};
  static const Json none = Json::array();
  const auto list = [&](const char* key) -> const Json& {
    const auto found = json.find(key);
    return found == json.end() ? none : *found;
  };
  const Json &gemm = list("gemm"), &attention = list("attention_forward"), &collective = list("collective"),
             &products = list("products"), &cores = list("attention");
  for (const auto& [dtype, g] : gemm.items())
    t.gemm[dtype] = LogGrid({numbers(g["m"]), numbers(g["n"]), numbers(g["k"])}, numbers(g["time_us"], 1e-6),
                            padded, with_work);
  for (const Json& a : attention) {
    // Shorter sequences and fewer heads leave the device emptier, at most in proportion.
    t.attention[a["head_dim"].get<int64_t>()] =
        LogGrid({numbers(a["sequence"]), numbers(a["heads"])}, numbers(a["tflop_per_s"], 1e12),
                {{0, 1}, {0, 1}}, {{0, 0}, {0, 0}});
  }
  if (const Json g = json.value("training_attention", Json()); g.is_object())
    for (const char* precision : {"bf16", "fp8", "mxfp8"}) {
      const Json passes = g.value(precision, Json::object());
      for (const auto& [pass, shares] : passes.items())
        t.training_attention[{pass, precision}] =
            LogGrid({numbers(g["head_dim"]), numbers(g["sequence"])}, numbers(shares), {{0, 0}, {0, 0}},
                    {{0, 0}, {0, 0}});
    }
  if (const Json g = json.value("grouped_forward", Json()); g.is_object())
    t.grouped = LogGrid({numbers(g["rows"]), numbers(g["width"])}, numbers(g["tflop_per_s"], 1e12),
                        {{1, 1}, {0, 1}}, {{0, 0}, {0, 0}});
  for (const auto& [operation, c] : collective.items()) {
    const std::vector<double> ranks = numbers(c["ranks"]);
    t.most_ranks_ = std::max(t.most_ranks_, int64_t(ranks.back()));
    t.collective[operation] = LogGrid({ranks, numbers(c["bytes"])}, numbers(c["time_us"], 1e-6),
                                      {{0, 0}, {0, 0}}, {{0, 0}, {1, 1}});
  }
  for (const Json& p : products)
    t.products[p[0].get<std::string>()][{p[1].get<int64_t>(), p[2].get<int64_t>(), p[3].get<int64_t>()}] =
        p[4].get<double>() * 1e-6;
  for (const Json& a : cores)
    t.attention_cores[a[0].get<std::string>()][{a[1].get<int64_t>(), a[2].get<int64_t>(), a[3].get<int64_t>(),
                                                a[4].get<int64_t>(), a[5].get<int64_t>()}] =
        a[6].get<double>() * 1e12;
  return t;
}

}  // namespace

KernelTables tables_of(const KernelProfile& profile) {
  KernelTables t;
  t.device = profile.device;
  t.digest = text_digest(json_text(to_json(profile)));
  for (const ProductTime& p : profile.products) t.products[enum_name(p.pass)][{p.m, p.n, p.k}] = p.seconds;
  for (const AttentionTime& a : profile.attention)
    t.attention_seconds[enum_name(a.pass)][{a.sequence, a.heads, a.kv_heads, a.head_dim}] = a.seconds;
  std::map<std::tuple<int64_t, int64_t, std::string>, std::map<int64_t, double>> sizes;
  for (const auto& c : profile.collectives) sizes[{c.hosts, c.ranks, c.operation}][c.bytes] = c.seconds;
  for (const auto& [key, times] : sizes) {
    const auto bytes = mapped<double>(times, [](const auto& time) { return double(time.first); });
    const auto seconds = mapped<double>(times, [](const auto& time) { return time.second; });
    const auto& [hosts, ranks, operation] = key;
    LogGrid grid({bytes}, seconds, {{0, 0}}, {{1, 1}});
    if (hosts == 1)
      t.collective_of_ranks[{operation, ranks}] = std::move(grid);
    else
      t.collective_of_hosts[{hosts, ranks}][operation] = std::move(grid);
  }
  return t;
}

std::vector<std::string> kernel_table_names() {
  return mapped<std::string>(kernel_files(),
                             [](const auto& file) { return file.first.substr(0, file.first.rfind('.')); });
}

const KernelTables* kernel_tables(const DeviceSpec& device) {
  return kernel_tables(device.kernels.empty() ? device.name : device.kernels);
}

const KernelTables* kernel_tables(const std::string& device) {
  static ReadOnce<KernelTables> tables;
  return tables.find(device, [](const std::string& name) -> std::optional<KernelTables> {
    const auto text = embedded_text(kernel_files(), name + ".json");
    if (!text) return std::nullopt;
    return read_tables(*text, "kernels/" + name + ".json");
  });
}

}  // namespace mpt::profiler
