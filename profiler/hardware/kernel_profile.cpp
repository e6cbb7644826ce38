// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/kernel_profile.h"

#include <array>
#include <regex>

#include "base/log_lines.h"
#include "profiler/hardware/nodes.h"
#include "profiler/hardware/profile.h"

namespace mpt::profiler {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr std::array kOperations{"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};

// Of two times of the same work the shorter one stays.
template <class Time>
void add_time(std::vector<Time>& times, const Time& time) {
  Time same = time;
  for (Time& known : times) {
    same.seconds = known.seconds;
    if (same != known) continue;
    known.seconds = std::min(known.seconds, time.seconds);
    return;
  }
  times.push_back(time);
}

std::string operation_in(const std::string& text) {
  for (const char* name : kOperations)
    if (text.find(name) != std::string::npos) return name;
  return text.find("alltoall") != std::string::npos ? "all_to_all" : "";
}

// Output of nccl-tests, of one process: rank 0 writes all of it.
class NcclTests {
 public:
  NcclTests(std::string file, const LogHints& hints) : file_(std::move(file)), hints_(hints) {}

  size_t import(KernelProfile& profile, const std::vector<LogLine>& lines) {
    for (const LogLine& line : lines) {
      if (line.text.size() > kLongestLine || line.speaker != speaker_of(lines)) continue;
      look_at_header(line.text);
      const auto row = row_of(line.text);
      if (!row) continue;
      const CollectiveTime time{operation(), ranks(), row->first, row->second, hosts()};
      check(double(time.bytes), rule_of(&CollectiveTime::bytes), "bytes", line.number);
      check(time.seconds, rule_of(&CollectiveTime::seconds), "seconds", line.number);
      check(double(time.ranks), rule_of(&CollectiveTime::ranks), "ranks", line.number);
      add_time(profile.collectives, time);
      ++rows_;
    }
    return rows_;
  }

 private:
  static constexpr size_t kLongestLine = 1024;

  void check(double value, const FieldRule& rule, const char* what, size_t line) const {
    if (value >= rule.minimum && value <= rule.maximum) return;
    refuse_input(fmt::format("{} at line {}", file_, line), fmt::format("{} {}", value, what),
                 fmt::format("{} to {}", rule.minimum, rule.maximum), "leave that line out");
  }

  // Size, count, type, (redop, root,) and then out-of-place time in us, algbw, busbw.
  static std::optional<std::pair<int64_t, double>> row_of(std::string_view text) {
    static const std::regex row(
        R"((?:^|[\s:>|\]])(\d{1,15})\s+\d+\s+[a-z]\w*\s+(?:[a-z]\w*\s+)?(?:-?\d+\s+)?(\d{1,15}(?:\.\d{1,9})?)\s+\d+\.\d+\s+\d+\.\d+)");
    std::cmatch found;
    if (!std::regex_search(text.data(), text.data() + text.size(), found, row)) return std::nullopt;
    const int64_t bytes = std::stoll(found[1]);
    const double us = std::stod(found[2]);
    if (bytes <= 0 || !(us > 0.0)) return std::nullopt;
    return std::pair(bytes, us * 1e-6);
  }

  const std::string& speaker_of(const std::vector<LogLine>& lines) {
    for (const LogLine& line : lines) {
      if (speaker_) break;
      if (line.text.size() <= kLongestLine && row_of(line.text)) speaker_ = line.speaker;
    }
    if (!speaker_) speaker_.emplace();
    return *speaker_;
  }

  // A line for each rank, "#  Rank  0 Group  0 Pid 7 on host device 0 ...". A test that splits its ranks
  // times groups of the same size at once. New releases name the collective, old ones only on the command
  // line.
  void look_at_header(std::string_view text) {
    static const std::regex rank(R"(#\s+Rank\s+\d+\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+))");
    if (const size_t at = text.find("_perf"); at != std::string_view::npos)
      if (text.find("Collective test starting") != std::string_view::npos || operation_.empty())
        operation_ = operation_in(std::string(text));
    if (text.find("# Using devices") != std::string_view::npos) ranks_of_host_.clear();
    std::cmatch found;
    if (!std::regex_search(text.data(), text.data() + text.size(), found, rank)) return;
    if (!found[1].matched || found[1] == "0") ++ranks_of_host_[found[2]];
  }

  std::string operation() const {
    const std::string& name = hints_.operation.empty() ? operation_ : hints_.operation;
    if (name.empty())
      refuse_input(file_, "no name of the collective", "one of nccl-tests", "give --operation all_reduce");
    return name;
  }
  int64_t counted_ranks() const {
    return sum_of<int64_t>(ranks_of_host_, [](const auto& host) { return host.second; });
  }
  int64_t ranks() const {
    const int64_t ranks = hints_.ranks > 0 ? hints_.ranks : counted_ranks();
    if (ranks == 1)
      refuse_input(file_, "a test of one rank", "two or more",
                   "build nccl-tests with MPI=1: without it each process tests its own GPU alone");
    if (ranks < 2) refuse_input(file_, "no ranks in its header", "two or more", "give --ranks 8");
    return ranks;
  }
  int64_t hosts() const {
    const bool counted = !ranks_of_host_.empty() && counted_ranks() == ranks();
    const int64_t hosts = hints_.hosts > 0 ? hints_.hosts : counted ? int64_t(ranks_of_host_.size()) : 1;
    for (const auto& [host, count] : ranks_of_host_) {
      if (!counted || count == ranks_of_host_.begin()->second) continue;
      refuse_input(file_,
                   fmt::format("{} ranks on host {} and {} on {}", ranks_of_host_.begin()->second,
                               printable(ranks_of_host_.begin()->first), count, printable(host)),
                   "as many on each host", "run it again with equal shares");
    }
    if (ranks() % hosts != 0)
      refuse_input(file_, fmt::format("{} ranks on {} hosts", ranks(), hosts), "as many on each host",
                   "give --ranks and --hosts as they were");
    return hosts;
  }

  std::string file_;
  LogHints hints_;
  std::optional<std::string> speaker_;
  std::string operation_;
  std::map<std::string, int64_t> ranks_of_host_;
  size_t rows_ = 0;
};

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
    add_time(profile.products, {ProductPass::any, *m, *n, *k, time->second * 1e-6});
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
    add_time(profile.products,
             {pass, m, n, k, 2.0 * double(m) * double(n) * double(k) / (efficiency * flop_per_s)});
    ++count;
  }
  return count;
}

bool add_operator(KernelProfile& profile, const OperatorTiming& t) {
  const models::OperatorShape& s = t.shape;
  if (!(t.seconds > 0.0)) return false;
  if (s.kind == models::OperatorKind::attention && t.phase != Phase::weight_gradient) {
    if (!models::attention_needs(s).plain()) return false;
    const AttentionPass pass = t.phase == Phase::forward ? AttentionPass::forward : AttentionPass::backward;
    add_time(profile.attention, {pass, s.sequence, s.heads, s.kv_heads, s.head_dim,
                                 t.seconds / double(std::max<int64_t>(1, s.batch))});
    return true;
  }
  if (s.kind != models::OperatorKind::linear) return false;
  if (t.phase == Phase::forward)
    add_time(profile.products, {ProductPass::forward, s.rows, s.columns, s.inner, t.seconds});
  else if (t.phase == Phase::input_gradient)
    add_time(profile.products, {ProductPass::input_gradient, s.rows, s.inner, s.columns, t.seconds});
  else if (t.phase == Phase::weight_gradient)
    add_time(profile.products, {ProductPass::weight_gradient, s.columns, s.inner, s.rows, t.seconds});
  return true;
}

size_t import_own_profile(KernelProfile& profile, const Json& json, const std::string& file) {
  const auto own = from_json<Profile>(json, file);
  if (own.machine.kind != DeviceKind::gpu || !means_device(own.machine.device, profile.device))
    refuse_input(file + " at /machine/device", own.machine.device.substr(0, 80), profile.device,
                 "give the --device that was measured");
  if (own.precision != Precision::bf16 && own.precision != Precision::fp16)
    refuse_input(file + " at /precision", enum_name(own.precision), "bf16 or fp16",
                 "measure again with mpt-profile --device cuda --precision bf16");
  size_t count = 0;
  for (const OperatorTiming& t : own.operators) count += add_operator(profile, t) ? 1 : 0;
  for (const TransportTiming& t : own.transport) {
    if (t.operation == TransportOperation::send_receive || t.bytes < 1 || !(t.seconds > 0.0)) continue;
    add_time(profile.collectives, {enum_name(t.operation), t.group, t.bytes, t.seconds, t.hosts});
    ++count;
  }
  return count;
}

size_t import_json(KernelProfile& profile, const Json& json, const std::string& file) {
  const auto at = [&](const char* place) {
    const Json::json_pointer pointer(place);
    return json.contains(pointer) ? &json[pointer] : nullptr;
  };
  if (const Json* format = at("/format"); format != nullptr && *format == "mpt-profile")
    return import_own_profile(profile, json, file);
  if (const Json* events = at("/traceEvents"); events != nullptr && events->is_array())
    return import_kineto(profile, json);
  const Json* const rate = at("/accelerator/op/matmul/tflops");
  const Json* const shares = at("/accelerator/op/matmul/accurate_efficient_factor");
  if (rate == nullptr || !rate->is_number() || !(rate->get<double>() > 0.0) || shares == nullptr ||
      !shares->is_object())
    return 0;
  return import_simumax(profile, *at("/accelerator/op/matmul"));
}

}  // namespace

KernelProfile load_kernel_profile(const std::filesystem::path& file) {
  auto profile = from_json<KernelProfile>(load_json(file, kMostBytes), file.string());
  JsonProblems problems(file.string());
  if (profile.format != "mpt-kernels")
    problems.add("/format", "\"" + profile.format.substr(0, 80) + "\"", "mpt-kernels");
  for (size_t i = 0; i < profile.collectives.size(); ++i) {
    const std::string& operation = profile.collectives[i].operation;
    if (contains(kOperations, operation)) continue;
    problems.add(fmt::format("/collectives/{}/operation", i), "\"" + operation.substr(0, 80) + "\"",
                 "all_reduce, all_gather, reduce_scatter or all_to_all");
  }
  problems.throw_if_any();
  return profile;
}

void import_times(KernelProfile& profile, const std::filesystem::path& file, const LogHints& hints) {
  const std::string text = read_file(file, kMostBytes);
  const size_t first = text.find_first_not_of(" \t\r\n");
  // A launcher's prefix may begin with a bracket, too.
  const bool json = first != std::string::npos &&
                    (text[first] == '{' || (text[first] == '[' && text.find("# ") == std::string::npos));
  const size_t count =
      json ? import_json(profile, parse_json(text, file.string()), file.string())
           : NcclTests(file.string(), hints).import(profile, log_lines(without_colours(text)));
  if (count == 0)
    refuse_input(file.string(), "no times that can be read",
                 "output of nccl-tests, a PyTorch profiler trace with record_shapes=True, a SimuMax system "
                 "file, or a profile.json of a GPU");
  profile.sources.push_back(printable(file.filename().string()));
}

}  // namespace mpt::profiler
