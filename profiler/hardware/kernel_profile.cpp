// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/kernel_profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <sstream>

#include "profiler/hardware/catalog.h"
#include "profiler/hardware/profile.h"

namespace mpt::profiler {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr std::array kOperations{"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

[[noreturn]] void refuse(const std::string& file, const std::string& found, const std::string& allowed,
                         const std::string& remedy = "") {
  throw UserError(Problem{file, found, allowed, remedy});
}

void add_product(KernelProfile& profile, const ProductTime& time) {
  for (ProductTime& known : profile.products) {
    if (known.pass != time.pass || known.m != time.m || known.n != time.n || known.k != time.k) continue;
    known.seconds = std::min(known.seconds, time.seconds);
    return;
  }
  profile.products.push_back(time);
}

void add_collective(KernelProfile& profile, const CollectiveTime& time) {
  for (CollectiveTime& known : profile.collectives) {
    if (known.operation != time.operation || known.ranks != time.ranks || known.bytes != time.bytes) continue;
    known.seconds = std::min(known.seconds, time.seconds);
    return;
  }
  profile.collectives.push_back(time);
}

void add_attention(KernelProfile& profile, const AttentionTime& time) {
  for (AttentionTime& known : profile.attention) {
    if (known.pass != time.pass || known.sequence != time.sequence || known.heads != time.heads ||
        known.kv_heads != time.kv_heads || known.head_dim != time.head_dim)
      continue;
    known.seconds = std::min(known.seconds, time.seconds);
    return;
  }
  profile.attention.push_back(time);
}

std::string operation_in(const std::string& text) {
  for (const char* name : kOperations) {
    if (text.find(name) != std::string::npos) return name;
  }
  return text.find("alltoall") != std::string::npos ? "all_to_all" : "";
}

// Rows of nccl-tests: size, count, type, (redop, root,) and then out-of-place time in us, algbw, busbw. The
// header has one "Rank" line per rank; newer versions name the collective, older ones only on the command
// line.
size_t import_nccl_tests(KernelProfile& profile, const std::string& text, const std::string& file,
                         const LogHints& hints) {
  static const std::regex row(
      R"(^\s*(\d{1,15})\s+\d+\s+[a-z]\w*\s+(?:[a-z]\w*\s+)?(?:-?\d+\s+)?(\d+(?:\.\d+)?)\s+\d+\.\d+\s+\d+\.\d+)");
  static const std::regex rank(R"(^#\s+Rank\s+\d+)");
  std::string operation = hints.operation;
  int64_t ranks = 0;
  std::vector<std::pair<int64_t, double>> times;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 1024) continue;
    if (std::regex_search(line, rank)) ++ranks;
    if (operation.empty() && line.find("_perf") != std::string::npos) operation = operation_in(line);
    std::smatch found;
    if (!std::regex_search(line, found, row)) continue;
    const double us = std::stod(found[2]);
    if (const int64_t bytes = std::stoll(found[1]); bytes > 0 && us > 0.0)
      times.emplace_back(bytes, us * 1e-6);
  }
  if (times.empty()) return 0;
  if (hints.ranks > 0) ranks = hints.ranks;
  if (operation.empty())
    refuse(file, "no name of the collective", "one of nccl-tests", "give --operation all_reduce");
  if (ranks < 2) refuse(file, "no ranks in its header", "two or more", "give --ranks 8");
  for (const auto& [bytes, seconds] : times) add_collective(profile, {operation, ranks, bytes, seconds});
  return times.size();
}

std::optional<int64_t> whole(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double x = value.get<double>();
  return x >= 1.0 && x <= 1e12 ? std::optional(int64_t(x)) : std::nullopt;
}

// Kernels belong to the operator with the same external id; aten::mm has dimensions [m, k] and [k, n],
// aten::addmm a bias before them.
size_t import_kineto(KernelProfile& profile, const Json& json) {
  const Json& events = json["traceEvents"];
  std::map<int64_t, double> kernel_us;
  const auto id_of = [](const Json& event) -> std::optional<int64_t> {
    if (!event.is_object() || !event.contains("args") || !event["args"].is_object()) return std::nullopt;
    const Json& args = event["args"];
    const char* key = args.contains("External id") ? "External id" : "external id";
    return args.contains(key) ? whole(args[key]) : std::nullopt;
  };
  const auto is = [](const Json& event, const char* key, const char* value) {
    return event.contains(key) && event[key].is_string() && event[key].get<std::string>() == value;
  };
  for (const Json& event : events) {
    const auto id = id_of(event);
    if (!id || !is(event, "cat", "kernel") || !event.contains("dur") || !event["dur"].is_number()) continue;
    kernel_us[*id] += event["dur"].get<double>();
  }
  size_t count = 0;
  for (const Json& event : events) {
    const auto id = id_of(event);
    if (!id || !is(event, "cat", "cpu_op")) continue;
    const size_t first = is(event, "name", "aten::addmm") ? 1 : is(event, "name", "aten::mm") ? 0 : 9;
    const auto time = kernel_us.find(*id);
    const Json& args = event["args"];
    if (first == 9 || time == kernel_us.end() || !args.contains("Input Dims")) continue;
    const Json& dims = args["Input Dims"];
    if (!dims.is_array() || dims.size() < first + 2 || !dims[first].is_array() || dims[first].size() != 2 ||
        !dims[first + 1].is_array() || dims[first + 1].size() != 2)
      continue;
    const auto m = whole(dims[first][0]), k = whole(dims[first][1]), n = whole(dims[first + 1][1]);
    if (!m || !n || !k || time->second <= 0.0) continue;
    add_product(profile, {ProductPass::any, *m, *n, *k, time->second * 1e-6});
    ++count;
  }
  return count;
}

// accelerator.op.matmul: a rate in TFLOP/s and shares of it by shape, "b=1, m=4096, k=8192, n=10240,
// layout=TN, accumulate=False".
size_t import_simumax(KernelProfile& profile, const Json& matmul) {
  static const std::regex shape(
      R"(b=1, m=(\d{1,12}), k=(\d{1,12}), n=(\d{1,12}), layout=(TN|NN|NT)(?:, accumulate=(True|False))?)");
  const double flop_per_s = matmul["tflops"].get<double>() * 1e12;
  size_t count = 0;
  for (const auto& [key, share] : matmul["accurate_efficient_factor"].items()) {
    std::smatch found;
    if (key.size() > 256 || !std::regex_search(key, found, shape) || !share.is_number()) continue;
    const double efficiency = share.get<double>();
    if (!(efficiency > 0.0 && efficiency <= 1.0)) continue;
    const int64_t m = std::stoll(found[1]), k = std::stoll(found[2]), n = std::stoll(found[3]);
    const ProductPass pass = found[4] == "TN"   ? ProductPass::forward
                             : found[4] == "NN" ? ProductPass::input_gradient
                                                : ProductPass::weight_gradient;
    if (pass == ProductPass::weight_gradient && found[5] == "False") continue;
    add_product(profile,
                {pass, m, n, k, 2.0 * double(m) * double(n) * double(k) / (efficiency * flop_per_s)});
    ++count;
  }
  return count;
}

bool add_operator(KernelProfile& profile, const OperatorTiming& t) {
  const models::OperatorShape& s = t.shape;
  if (!(t.seconds > 0.0)) return false;
  if (s.kind == models::OperatorKind::attention && t.phase != Phase::weight_gradient) {
    const AttentionPass pass = t.phase == Phase::forward ? AttentionPass::forward : AttentionPass::backward;
    add_attention(profile, {pass, s.sequence, s.heads, s.kv_heads, s.head_dim,
                            t.seconds / double(std::max<int64_t>(1, s.batch))});
    return true;
  }
  if (s.kind != models::OperatorKind::linear) return false;
  if (t.phase == Phase::forward)
    add_product(profile, {ProductPass::forward, s.rows, s.columns, s.inner, t.seconds});
  else if (t.phase == Phase::input_gradient)
    add_product(profile, {ProductPass::input_gradient, s.rows, s.inner, s.columns, t.seconds});
  else if (t.phase == Phase::weight_gradient)
    add_product(profile, {ProductPass::weight_gradient, s.columns, s.inner, s.rows, t.seconds});
  return true;
}

size_t import_own_profile(KernelProfile& profile, const Json& json, const std::string& file) {
  const auto own = from_json<Profile>(json, file);
  if (own.machine.kind != DeviceKind::gpu || !means_device(own.machine.device, profile.device)) {
    refuse(file + " at /machine/device", own.machine.device.substr(0, 80), profile.device,
           "give the --device that was measured");
  }
  if (own.precision != Precision::bf16 && own.precision != Precision::fp16)
    refuse(file + " at /precision", enum_name(own.precision), "bf16 or fp16",
           "measure again with mpt-profile --device cuda --precision bf16");
  size_t count = 0;
  for (const OperatorTiming& t : own.operators) count += add_operator(profile, t) ? 1 : 0;
  for (const TransportTiming& t : own.transport) {
    if (t.operation == TransportOperation::send_receive || t.bytes < 1 || !(t.seconds > 0.0)) continue;
    add_collective(profile, {enum_name(t.operation), t.group, t.bytes, t.seconds});
    ++count;
  }
  return count;
}

const Json* at_path(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return nullptr;
    at = &(*at)[key];
  }
  return at;
}

size_t import_json(KernelProfile& profile, const Json& json, const std::string& file) {
  if (const Json* format = at_path(json, {"format"}); format != nullptr && *format == "mpt-profile")
    return import_own_profile(profile, json, file);
  if (const Json* events = at_path(json, {"traceEvents"}); events != nullptr && events->is_array())
    return import_kineto(profile, json);
  const Json* matmul = at_path(json, {"accelerator", "op", "matmul"});
  if (matmul == nullptr) return 0;
  const Json *rate = at_path(*matmul, {"tflops"}), *shares = at_path(*matmul, {"accurate_efficient_factor"});
  if (rate == nullptr || !rate->is_number() || !(rate->get<double>() > 0.0) || shares == nullptr ||
      !shares->is_object())
    return 0;
  return import_simumax(profile, *matmul);
}

}  // namespace

KernelProfile load_kernel_profile(const std::filesystem::path& file) {
  auto profile = from_json<KernelProfile>(load_json(file, kMostBytes), file.string());
  JsonProblems problems(file.string());
  if (profile.format != "mpt-kernels")
    problems.add("/format", "\"" + profile.format.substr(0, 80) + "\"", "mpt-kernels");
  for (size_t i = 0; i < profile.collectives.size(); ++i) {
    const std::string& operation = profile.collectives[i].operation;
    if (std::find(kOperations.begin(), kOperations.end(), operation) != kOperations.end()) continue;
    problems.add(fmt::format("/collectives/{}/operation", i), "\"" + operation.substr(0, 80) + "\"",
                 "all_reduce, all_gather, reduce_scatter or all_to_all");
  }
  problems.throw_if_any();
  return profile;
}

void import_times(KernelProfile& profile, const std::filesystem::path& file, const LogHints& hints) {
  const std::string text = read_file(file, kMostBytes);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && (text[first] == '{' || text[first] == '[');
  const size_t count = json ? import_json(profile, parse_json(text, file.string()), file.string())
                            : import_nccl_tests(profile, text, file.string(), hints);
  if (count == 0) {
    refuse(
        file.string(), "no times that can be read",
        "output of nccl-tests, a PyTorch profiler trace with record_shapes=True, a SimuMax system file, or a "
        "profile.json of a GPU");
  }
  profile.sources.push_back(printable(file.filename().string()));
}

}  // namespace mpt::profiler
