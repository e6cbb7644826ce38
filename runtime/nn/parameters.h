// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parameters: the weights of one stage on one rank and what training keeps beside them, in flat buffers, so
// that gradient reduction, optimizer and norm are few calls. Pieces (embedding, one decoder layer, head) lie
// one behind the other; a piece's parameters form one group, and those of its routed experts another, since
// other ranks replicate them.
//
// ZeRO (arXiv:1910.02054): a group is padded and cut into as many equal shares as ranks share it out. Stage
// 1 keeps the state of the own share only; 2 its gradients, too, so that a piece's gradients are made in a
// buffer and scattered with every micro-batch; 3 its weights, which are gathered into a buffer before use.
//
// With a side stream what is handed out and gathered goes there. Below ZeRO 3 weights are gathered once a
// step, while the next forward is at work; with ZeRO 3 those of the next piece while this one is. Gradients
// of ZeRO 2 and 3 are scattered while the next piece's input gradients are computed.
//
// Every weight is drawn from (seed, name, global position) alone: the same model whatever the layout.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/timed.h"
#include "runtime/device/device.h"
#include "runtime/device/side_stream.h"

namespace mpt::runtime {

/// A rectangle of the global weight. A rank's part is its blocks on top of each other.
struct ShardBlock {
  int64_t global_row = 0, rows = 0;
  int64_t global_column = 0, columns = 0;
  int64_t count() const { return rows * columns; }
  bool operator==(const ShardBlock&) const = default;
};

/// Standard deviation of the normal values that weights start from (Radford et al. 2019 (GPT-2),
/// section 2.3).
inline constexpr double kDeviation = 0.02;

/// Of projections onto the residual stream: smaller, by one factor for each residual addition (the same
/// section).
double residual_deviation(int64_t layers);

struct Parameter {
  std::string name;         // global, e.g. "layers.3.attention.qkv.weight"
  int64_t global_rows = 0;  // vectors are [n, 1]
  int64_t global_columns = 1;
  std::vector<ShardBlock> blocks;  // what this rank holds
  int64_t padding_rows = 0;        // zeros below the blocks: a vocabulary that does not divide
  double initial_value = 0.0;      // constant part of the start value
  double deviation = 0.0;          // normal part
  bool weight_decay = false;       // matrices decay, norms and biases do not
  // A step moves each element by so much against the sign of what stands for its gradient; 0: by AdamW. The
  // norm of gradients does not count it.
  double fixed_step = 0.0;
  bool is_first_copy = true;  // false on replicas: norm and checkpoint take each weight once
  bool expert = false;        // of routed experts
  bool partial = false;       // tensor ranks hold parts of its gradient, to be summed before it is used
  // Set by Parameters:
  int64_t count = 0;   // elements on this rank, padding included
  int64_t offset = 0;  // first element within its group
  size_t group = 0;
};

/// What ranks share out, who they are, and where state lies; all groups of one where nothing is shared.
struct Sharding {
  int64_t zero = 0;
  Communicator* dense = nullptr;                        // ranks that share out the state of dense weights
  Communicator* expert = nullptr;                       // and of routed experts
  SideStream* beside = nullptr;                         // where they are called; null: in place
  CallTime* waited = nullptr;                           // gets the seconds of waiting for it
  bool gathers_ahead = false, scatters_behind = false;  // what is not waited for at once
  // An offloaded optimizer: a device whose memory is the host's, for masters and moments; null: they lie
  // beside the weights.
  Device* host = nullptr;
};

/// Where the work goes from a piece: to the next one up, as in forward, or down.
enum class Toward : uint8_t { up, down };

/// This rank's share of a parameter: elements begin .. begin + count of it.
struct OwnedRange {
  const Parameter* parameter = nullptr;
  int64_t begin = 0, count = 0;
  int64_t state_offset = 0;     // in buffers that hold shares only
  int64_t value_offset = 0;     // in values()
  int64_t gradient_offset = 0;  // in gradients()
};

struct ParameterGroup {
  size_t piece = 0;
  bool expert = false;
  int64_t first = 0;        // element of the buffers that hold everything
  int64_t count = 0;        // of its parameters
  int64_t padded = 0;       // a multiple of `shard`
  int64_t shard = 1;        // ranks that share it out
  int64_t share_first = 0;  // element of the buffers that hold shares
  int64_t share() const { return padded / shard; }
};

class Parameters {
 public:
  Parameters(Device& device, DataType type, const Sharding& sharding);

  /// What is added next belongs to another piece, whose number this returns. One that never works by itself
  /// holds weights that another uses.
  size_t begin_piece(bool works = true);
  /// Adds a weight to the newest piece and returns its index; blocks decide its count.
  int add(Parameter parameter);
  /// Piece `user` works with the weight `index` of another piece: a tied head.
  void use_in(size_t user, int index);
  /// Allocates everything and draws the start values; without a seed all are zero, and set() must follow.
  /// Nothing can be added afterwards. Once `stop` is true nothing more is cleared or drawn.
  void allocate(std::optional<uint64_t> seed, const std::atomic<bool>* stop = nullptr);

  /// Whether the values do not matter any more, for no step follows.
  bool stops() const { return stop_ != nullptr && *stop_; }

  std::span<const Parameter> list() const { return list_; }
  std::span<const ParameterGroup> groups() const { return groups_; }
  std::span<const OwnedRange> owned() const { return owned_; }
  DataType type() const { return type_; }
  DataType state_type() const { return state_type_of(type_); }
  int64_t zero() const { return sharding_.zero; }
  int64_t count() const { return count_; }              // elements of a buffer that holds everything
  int64_t share_count() const { return share_count_; }  // elements of a buffer of shares
  /// Where a parameter begins in a buffer that holds everything.
  int64_t first_element(const Parameter& p) const { return groups_[p.group].first + p.offset; }

  /// The weight and its gradient while its piece is at work.
  void* value(int index);
  void* gradient(int index);

  /// Before a piece's forward or backward: its weights are whole.
  void gather(size_t piece, Toward toward);
  /// After the optimizer, below ZeRO 3: begins to make all weights whole.
  void begin_gathering();
  /// Returns when nothing is being made whole any more, before weights change.
  void finish_gathering();
  /// Around a piece's weight gradients: they start at what was accumulated, or at zero, and go to their
  /// owners.
  void begin_gradients(size_t piece);
  void end_gradients(size_t piece);
  /// Returns when every owner has what was handed out.
  void finish_gradients() { await(scattered_); }

  /// Everything below 3 (values) and below 2 (gradients), else shares.
  void* values() { return values_.data(); }
  void* gradients() { return gradients_.data(); }
  int64_t gradient_count() const { return sharding_.zero >= 2 ? share_count_ : count_; }
  /// The group's part of values() or gradients(), whole: below ZeRO 3 and 2.
  void* group_values(const ParameterGroup& group) { return at(values_, type_, group.first); }
  void* group_gradients(const ParameterGroup& group) { return at(gradients_, state_type(), group.first); }
  /// This rank's share of it.
  void* own_values(const ParameterGroup& group);
  void* own_gradients(const ParameterGroup& group);
  /// Weights that the optimizer changes, in state_type(), at a value or state offset of an OwnedRange: the
  /// values themselves, or copies of full precision on state_device().
  void* master(const OwnedRange& range);
  void* value_at(const OwnedRange& range) { return at(values_, type_, range.value_offset); }
  void* gradient_at(const OwnedRange& range) { return at(gradients_, state_type(), range.gradient_offset); }
  bool has_master() const { return sharding_.host != nullptr || state_type() != type_; }
  /// Where masters lie, and moments.
  Device& state_device() const { return sharding_.host != nullptr ? *sharding_.host : device_; }
  void zero_gradients();
  /// Whether the ranges of owned() are all the gradients there are: who takes a step leaves them zero.
  bool owns_all_gradients() const { return gradient_count() == share_count_; }
  /// What was gathered is old.
  void values_changed() {
    whole_ = {};
    ++version_;
  }
  /// Another one whenever weights changed.
  int64_t version() const { return version_; }

  /// Sets elements of this rank's part of a weight, from `first` on; what it does not keep is ignored.
  void set(const Parameter& parameter, std::span<const double> values, int64_t first = 0);

 private:
  static void* at(const Buffer& buffer, DataType type, int64_t element) {
    return static_cast<char*>(buffer.data()) + element * size_of(type);
  }
  Communicator& sharers(const ParameterGroup& group) const {
    return group.expert ? *sharding_.expert : *sharding_.dense;
  }
  // A piece whose weights are whole, or will be with its ticket, in one of two places.
  struct Whole {
    size_t piece = SIZE_MAX;
    SideStream::Ticket ticket = SideStream::kNothing;
  };
  SideStream::Ticket run(const char* what, std::function<void()> work);
  void await(SideStream::Ticket ticket);
  bool gathers_ahead() const { return sharding_.beside != nullptr && sharding_.gathers_ahead; }
  Whole& fetch(size_t piece);
  bool share_group(size_t piece, size_t other) const;
  int64_t size_of_piece(size_t piece) const;
  int64_t largest_pair() const;
  size_t group_of(bool expert);
  void lay_out();
  void add_owned(const ParameterGroup& group, size_t number);
  int64_t largest_piece() const;

  Device& device_;
  DataType type_;
  Sharding sharding_;
  std::vector<Parameter> list_;
  std::vector<ParameterGroup> groups_;
  std::vector<OwnedRange> owned_;
  std::vector<std::vector<size_t>> groups_of_piece_;
  int64_t count_ = 0, share_count_ = 0;
  Buffer values_, gradients_, master_;
  std::vector<size_t> working_;  // pieces in the order of forward
  // ZeRO 3 and 2: the piece at work, with the place of each group in it. Where weights are gathered ahead,
  // neighbours lie at either end of the same memory.
  Buffer piece_values_, piece_gradients_;
  std::vector<int64_t> value_place_, gradient_place_;
  std::array<Whole, 2> whole_;
  std::vector<SideStream::Ticket> gathered_;  // of each group, below ZeRO 3
  SideStream::Ticket scattered_ = SideStream::kNothing;
  int64_t version_ = 1;
  const std::atomic<bool>* stop_ = nullptr;
};

/// The start values of this rank's part of a parameter, from element `first` on.
void draw(const Parameter& parameter, uint64_t seed, int64_t first, std::span<double> values);

}  // namespace mpt::runtime
