// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/parameters.h"

#include <numbers>

#include "base/error.h"

namespace mpt::runtime {
namespace {

// SplitMix64 (Steele et al. 2014): maps a counter to 64 independent bits.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t stream_of(uint64_t seed, const std::string& name) {
  uint64_t state = mix(seed);
  for (const char c : name) state = mix(state ^ uint8_t(c));
  return state;
}

// Box-Muller on two uniforms in (0, 1].
double normal(uint64_t stream, int64_t index) {
  const auto uniform = [&](uint64_t k) {
    return (double(mix(stream + 2 * uint64_t(index) + k) >> 11) + 1.0) * 0x1.0p-53;
  };
  return std::sqrt(-2.0 * std::log(uniform(0))) * std::cos(2.0 * std::numbers::pi * uniform(1));
}

// Draws elements `first` to `end` of a block.
void draw_block(const Parameter& parameter, uint64_t stream, const ShardBlock& block, int64_t first,
                int64_t end, double* to) {
  for (int64_t i = first; i < end; ++i) {
    const auto row = block.global_row + i / block.columns, column = block.global_column + i % block.columns;
    const double noise = parameter.deviation > 0.0
                             ? parameter.deviation * normal(stream, row * parameter.global_columns + column)
                             : 0.0;
    to[i - first] = parameter.initial_value + noise;
  }
}

// Calls body(begin, end) for parts of 0 to `count`, on several threads if there is enough work.
template <class Body>
void for_all(int64_t count, Body&& body) {
  constexpr int64_t kMuch = 1 << 16;  // elements that justify starting a thread
  constexpr int64_t kMostThreads = 16;
  const int64_t cores = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  const int64_t parts = std::clamp<int64_t>(count / kMuch, 1, cores);
  std::vector<std::thread> others;
  for (int64_t part = 1; part < parts; ++part)
    others.emplace_back(body, count * part / parts, count * (part + 1) / parts);
  body(int64_t{0}, count / parts);
  for (std::thread& other : others) other.join();
}

}  // namespace

double residual_deviation(int64_t layers) { return kDeviation / std::sqrt(2.0 * double(layers)); }

void draw(const Parameter& parameter, uint64_t seed, int64_t first, std::span<double> values) {
  std::fill(values.begin(), values.end(), 0.0);  // padding stays zero
  const uint64_t stream = stream_of(seed, parameter.name);
  const int64_t end = first + int64_t(values.size());
  int64_t start = 0;  // of the block
  for (const ShardBlock& block : parameter.blocks) {
    if (const int64_t from = std::max(first, start), to = std::min(end, start + block.count()); from < to)
      for_all(to - from, [&](int64_t part, int64_t part_end) {
        draw_block(parameter, stream, block, from - start + part, from - start + part_end,
                   values.data() + from - first + part);
      });
    start += block.count();
  }
}

Parameters::Parameters(Device& device, DataType type, const Sharding& sharding)
    : device_(device), type_(type), sharding_(sharding) {}

size_t Parameters::begin_piece(bool works) {
  groups_of_piece_.emplace_back();
  if (works) working_.push_back(groups_of_piece_.size() - 1);
  return groups_of_piece_.size() - 1;
}

size_t Parameters::group_of(bool expert) {
  for (const size_t g : groups_of_piece_.back()) {
    const bool own = groups_[g].piece + 1 == groups_of_piece_.size();  // else use_in() added it
    if (own && groups_[g].expert == expert) return g;
  }
  ParameterGroup group;
  group.piece = groups_of_piece_.size() - 1;
  group.expert = expert;
  if (sharding_.zero > 0) group.shard = (expert ? sharding_.expert : sharding_.dense)->size();
  groups_.push_back(group);
  groups_of_piece_.back().push_back(groups_.size() - 1);
  return groups_.size() - 1;
}

int Parameters::add(Parameter parameter) {
  MPT_CHECK(!values_, "weight {} added after allocation", parameter.name);
  const auto columns = parameter.blocks.empty() ? parameter.global_columns : parameter.blocks.front().columns;
  parameter.count = parameter.padding_rows * columns;
  for (const ShardBlock& block : parameter.blocks) parameter.count += block.count();
  parameter.group = group_of(parameter.expert);
  ParameterGroup& group = groups_[parameter.group];
  parameter.offset = group.count;
  group.count += parameter.count;
  list_.push_back(std::move(parameter));
  return int(list_.size()) - 1;
}

void Parameters::use_in(size_t user, int index) {
  const size_t group = list_[size_t(index)].group;
  auto& used = groups_of_piece_[user];
  if (std::find(used.begin(), used.end(), group) == used.end()) used.push_back(group);
}

void Parameters::lay_out() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    ParameterGroup& group = groups_[g];
    group.padded = (group.count + group.shard - 1) / group.shard * group.shard;
    group.first = count_;
    group.share_first = share_count_;
    count_ += group.padded;
    share_count_ += group.share();
  }
  for (size_t g = 0; g < groups_.size(); ++g) add_owned(groups_[g], g);
  value_place_.assign(groups_.size(), 0);
  gradient_place_ = value_place_;
  gathered_.assign(groups_.size(), SideStream::kNothing);
}

void Parameters::add_owned(const ParameterGroup& group, size_t number) {
  const int64_t rank = group.shard > 1 ? sharers(group).rank() : 0;
  const int64_t begin = rank * group.share(), end = begin + group.share();
  for (const Parameter& p : list_) {
    if (p.group != number) continue;
    const int64_t from = std::max(begin, p.offset), to = std::min(end, p.offset + p.count);
    if (from >= to) continue;
    const int64_t into = from - begin;
    owned_.push_back({&p, from - p.offset, to - from, group.share_first + into, own_first(group, 3) + into,
                      own_first(group, 2) + into});
  }
}

int64_t Parameters::size_of_piece(size_t piece) const {
  return sum_of<int64_t>(groups_of_piece_[piece], [&](const size_t g) { return groups_[g].padded; });
}

int64_t Parameters::largest_piece() const {
  int64_t largest = 0;
  for (size_t p = 0; p < groups_of_piece_.size(); ++p) largest = std::max(largest, size_of_piece(p));
  return largest;
}

int64_t Parameters::largest_pair() const {
  int64_t largest = largest_piece();
  for (size_t n = 1; n < working_.size(); ++n)
    largest = std::max(largest, size_of_piece(working_[n - 1]) + size_of_piece(working_[n]));
  return largest;
}

void Parameters::allocate(std::optional<uint64_t> seed, const std::atomic<bool>* stop) {
  lay_out();
  stop_ = stop;
  // Cleared in pieces: clearing fresh memory takes seconds for large models, and a stop must not wait for
  // that.
  const auto make = [this](Device& device, int64_t count, DataType type) {
    constexpr int64_t kCleared = int64_t{1} << 28;
    Buffer buffer(device, count * size_of(type));
    for (int64_t at = 0; at < buffer.bytes() && !stops(); at += kCleared)
      device.zero(static_cast<char*>(buffer.data()) + at, std::min(kCleared, buffer.bytes() - at));
    return buffer;
  };
  values_ = make(device_, sharding_.zero >= 3 ? share_count_ : count_, type_);
  gradients_ = make(device_, gradient_count(), state_type());
  if (has_master()) master_ = make(state_device(), share_count_, state_type());
  if (sharding_.zero >= 3)
    piece_values_ = make(device_, gathers_ahead() ? largest_pair() : largest_piece(), type_);
  if (sharding_.zero >= 2) piece_gradients_ = make(device_, largest_piece(), state_type());
  if (!seed) return;
  // Drawn in pieces: fresh memory for a whole weight would cost more time than its random numbers.
  constexpr int64_t kPiece = 1 << 20;
  std::vector<double> piece;
  for (const Parameter& p : list_)
    for (int64_t first = 0; first < p.count; first += kPiece) {
      if (stops()) return;
      piece.resize(size_t(std::min(kPiece, p.count - first)));
      draw(p, *seed, first, piece);
      set(p, piece, first);
    }
}

void* Parameters::value(int index) {
  const Parameter& p = list_[size_t(index)];
  if (sharding_.zero < 3) return at(values_, type_, first_element(p));
  return at(piece_values_, type_, value_place_[p.group] + p.offset);
}

void* Parameters::gradient(int index) {
  const Parameter& p = list_[size_t(index)];
  if (sharding_.zero < 2) return at(gradients_, state_type(), first_element(p));
  return at(piece_gradients_, state_type(), gradient_place_[p.group] + p.offset);
}

SideStream::Ticket Parameters::run(const char* what, std::function<void()> work) {
  if (sharding_.beside != nullptr) return sharding_.beside->post(what, std::move(work));
  work();
  return SideStream::kNothing;
}

void Parameters::await(SideStream::Ticket ticket) {
  if (ticket == SideStream::kNothing) return;
  const Stopwatch watch(*sharding_.waited);
  sharding_.beside->await(ticket);
}

void Parameters::gather(size_t piece, Toward toward) {
  if (sharding_.zero < 3) {
    for (const size_t g : groups_of_piece_[piece]) await(gathered_[g]);
    return;
  }
  await(fetch(piece).ticket);
  if (!gathers_ahead()) return;
  const auto at = std::find(working_.begin(), working_.end(), piece);
  if (toward == Toward::up ? at + 1 == working_.end() : at == working_.begin()) return;
  if (const size_t next = toward == Toward::up ? at[1] : at[-1]; !share_group(piece, next)) fetch(next);
}

// A group that both pieces use would be moved while the first piece is working.
bool Parameters::share_group(size_t piece, size_t other) const {
  const auto &own = groups_of_piece_[piece], &others = groups_of_piece_[other];
  return std::find_first_of(own.begin(), own.end(), others.begin(), others.end()) != own.end();
}

// Neighbouring pieces alternate between two places, so the piece that was there has finished its work.
Parameters::Whole& Parameters::fetch(size_t piece) {
  const auto number = size_t(std::find(working_.begin(), working_.end(), piece) - working_.begin());
  const size_t end = gathers_ahead() ? number % 2 : 0;
  // A group that two pieces use is at the place of the latest one.
  int64_t place = end == 0 ? 0 : piece_values_.bytes() / size_of(type_) - size_of_piece(piece);
  for (const size_t g : groups_of_piece_[piece]) {
    value_place_[g] = place;
    place += groups_[g].padded;
  }
  Whole& whole = whole_[end];
  if (whole.piece == piece) return whole;
  std::vector<std::pair<const ParameterGroup*, void*>> parts;
  for (const size_t g : groups_of_piece_[piece])
    parts.emplace_back(&groups_[g], at(piece_values_, type_, value_place_[g]));
  whole.piece = piece;
  whole.ticket = run("gathering weights", [this, parts = std::move(parts)] {
    for (const auto& [group, to] : parts)
      sharers(*group).all_gather(own_values(*group), to, group->share(), type_);
  });
  return whole;
}

void Parameters::finish_gathering() {
  for (const Whole& whole : whole_) await(whole.ticket);
  for (const SideStream::Ticket ticket : gathered_) await(ticket);
}

void Parameters::begin_gathering() {
  for (size_t g = 0; g < groups_.size(); ++g)
    gathered_[g] = run("gathering weights", [this, &group = groups_[g]] {
      sharers(group).all_gather(own_values(group), group_values(group), group.share(), type_);
    });
}

void Parameters::begin_gradients(size_t piece) {
  if (sharding_.zero < 2) return;
  await(scattered_);
  int64_t place = 0;
  for (const size_t g : groups_of_piece_[piece]) {
    gradient_place_[g] = place;
    place += groups_[g].padded;
  }
  device_.zero(piece_gradients_.data(), place * size_of(state_type()));
}

void Parameters::end_gradients(size_t piece) {
  if (sharding_.zero < 2) return;
  scattered_ = run("scattering gradients", [this, piece] {
    for (const size_t g : groups_of_piece_[piece]) {
      const ParameterGroup& group = groups_[g];
      Communicator& ranks = sharers(group);
      char* const whole = static_cast<char*>(at(piece_gradients_, state_type(), gradient_place_[g]));
      // No other rank reads this rank's own slice, so the result can go there.
      char* const own = whole + int64_t(ranks.rank()) * group.share() * size_of(state_type());
      ranks.reduce_scatter(whole, own, group.share(), state_type());
      void* const sum = own_gradients(group);
      device_.run(state_type(), ResidualAdd{.count = group.share(), .a = sum, .b = own, .y = sum});
    }
  });
  if (!sharding_.scatters_behind) await(scattered_);
}

int64_t Parameters::own_first(const ParameterGroup& group, int64_t zero) const {
  if (sharding_.zero >= zero) return group.share_first;
  return group.first + (group.shard > 1 ? sharers(group).rank() * group.share() : 0);
}

void* Parameters::master(const OwnedRange& range) {
  return has_master() ? at(master_, state_type(), range.state_offset) : value_at(range);
}

void Parameters::zero_gradients() {
  device_.zero(gradients_.data(), gradient_count() * size_of(state_type()));
}

void Parameters::set(const Parameter& parameter, std::span<const double> values, int64_t first) {
  const int64_t count = int64_t(values.size()), end = first + count;
  MPT_CHECK(first >= 0 && end <= parameter.count, "elements {} to {} for {} of {}", first, end,
            parameter.count, parameter.name);
  ++version_;
  if (sharding_.zero < 3)
    device_.upload(type_, values.data(), count, at(values_, type_, first_element(parameter) + first));
  for (const OwnedRange& range : owned_) {
    const int64_t from = std::max(first, range.begin), to = std::min(end, range.begin + range.count);
    if (range.parameter != &parameter || from >= to) continue;
    const auto upload = [&](Device& device, DataType type, void* whole) {
      void* const part = static_cast<char*>(whole) + (from - range.begin) * size_of(type);
      device.upload(type, values.data() + from - first, to - from, part);
    };
    if (sharding_.zero >= 3) upload(device_, type_, value_at(range));
    if (has_master()) upload(state_device(), state_type(), master(range));
  }
  values_changed();
}

}  // namespace mpt::runtime
