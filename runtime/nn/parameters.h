// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parameters: the weights of one stage on one rank and their gradients and optimizer state, in flat buffers,
// so that gradient reduction, optimizer and norm are few calls. Pieces (embedding, one decoder layer, head)
// are contiguous. A piece's parameters form one group, and those of its routed experts another, since other
// ranks replicate them.
//
// ZeRO (arXiv:1910.02054): a group is padded and cut into one equal share per sharing rank. Stage 1 keeps
// only the optimizer state of the own share. Stage 2 also keeps only its gradients: a piece's gradients are
// computed in a buffer and scattered after every micro-batch. Stage 3 also keeps only its weights, which are
// gathered into a buffer before use.
//
// With a side stream, scattering and gathering run there. Below ZeRO 3 weights are gathered once a step,
// during the next forward. With ZeRO 3 the next piece's weights are gathered during the current piece.
// Gradients of ZeRO 2 and 3 are scattered while the next piece's input gradients are computed.
//
// A weight's start value depends only on (seed, name, global position): every layout has the same model.

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

/// A rectangle of the global weight. A rank's part is its blocks, stacked by rows.
struct ShardBlock {
  int64_t global_row = 0, rows = 0;
  int64_t global_column = 0, columns = 0;
  int64_t count() const { return rows * columns; }
  bool operator==(const ShardBlock&) const = default;
};

/// Standard deviation of the normal values that weights start from (Radford et al. 2019 (GPT-2),
/// section 2.3).
inline constexpr double kDeviation = 0.02;

/// The deviation of projections onto the residual stream: smaller by a factor for the number of residual
/// additions (the same section).
double residual_deviation(int64_t layers);

struct Parameter {
  std::string name;         // global, e.g. "layers.3.attention.qkv.weight"
  int64_t global_rows = 0;  // vectors are [n, 1]
  int64_t global_columns = 1;
  std::vector<ShardBlock> blocks;  // the parts on this rank
  int64_t padding_rows = 0;        // zero rows after the blocks, if ranks do not divide the vocabulary
  double initial_value = 0.0;      // constant part of the start value
  double deviation = 0.0;          // normal part
  bool weight_decay = false;       // matrices decay, norms and biases do not
  // A step moves each element by this amount against the sign of the value in its gradient buffer; 0: AdamW.
  // The norm of gradients does not include it.
  double fixed_step = 0.0;
  bool is_first_copy = true;  // false on replicas, so that norm and checkpoint take each weight once
  bool expert = false;        // of routed experts
  bool partial = false;       // tensor ranks hold parts of its gradient, to be summed before use
  // Set by Parameters:
  int64_t count = 0;   // elements on this rank, padding included
  int64_t offset = 0;  // first element within its group
  size_t group = 0;
};

/// The sharing of states: ZeRO stage, groups of ranks, and the place of the state. Without sharing, groups
/// have one rank.
struct Sharding {
  int64_t zero = 0;
  Communicator* dense = nullptr;                        // ranks that share the state of dense weights
  Communicator* expert = nullptr;                       // and of routed experts
  SideStream* beside = nullptr;                         // runs their collectives; null: in place
  CallTime* waited = nullptr;                           // counts seconds of waiting for `beside`
  bool gathers_ahead = false, scatters_behind = false;  // collectives that are not awaited at once
  // For an offloaded optimizer: a device with host memory, for masters and moments. Null: these are in the
  // memory of the weights' device.
  Device* host = nullptr;
};

/// The direction of the work after a piece: to the next piece up, as in forward, or down.
enum class Toward : uint8_t { up, down };

/// This rank's share of a parameter: its elements begin .. begin + count.
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

  /// Begins a piece and returns its number; later additions belong to it. `works` is false for a piece that
  /// only holds weights for another piece.
  size_t begin_piece(bool works = true);
  /// Adds a weight to the newest piece and returns its index. Its blocks determine its count.
  int add(Parameter parameter);
  /// Piece `user` uses the weight `index` of another piece, as a tied head does.
  void use_in(size_t user, int index);
  /// Allocates everything and draws the start values. Without a seed all are zero, and set() must follow.
  /// Nothing can be added afterwards. Once `stop` is true, clearing and drawing end.
  void allocate(std::optional<uint64_t> seed, const std::atomic<bool>* stop = nullptr);

  /// Whether values no longer matter, because no step follows.
  bool stops() const { return stop_ != nullptr && *stop_; }

  std::span<const Parameter> list() const { return list_; }
  std::span<const ParameterGroup> groups() const { return groups_; }
  std::span<const OwnedRange> owned() const { return owned_; }
  DataType type() const { return type_; }
  DataType state_type() const { return state_type_of(type_); }
  int64_t zero() const { return sharding_.zero; }
  int64_t count() const { return count_; }              // elements of a buffer that holds everything
  int64_t share_count() const { return share_count_; }  // elements of a buffer of shares
  /// The first element of a parameter in a buffer that holds everything.
  int64_t first_element(const Parameter& p) const { return groups_[p.group].first + p.offset; }

  /// The weight and its gradient while its piece is working.
  void* value(int index);
  void* gradient(int index);

  /// To be called before a piece's forward or backward; returns when its weights are whole.
  void gather(size_t piece, Toward toward);
  /// After the optimizer, below ZeRO 3: begins to gather all weights.
  void begin_gathering();
  /// Waits until all gathering has ended; to be called before weights change.
  void finish_gathering();
  /// To be called before and after a piece's weight gradients. They start at the accumulated values, or at
  /// zero, and then go to their owners.
  void begin_gradients(size_t piece);
  void end_gradients(size_t piece);
  /// Returns when every owner has its gradients.
  void finish_gradients() { await(scattered_); }

  /// All elements below ZeRO 3 (values) and below ZeRO 2 (gradients), else shares.
  void* values() { return values_.data(); }
  void* gradients() { return gradients_.data(); }
  int64_t gradient_count() const { return sharding_.zero >= 2 ? share_count_ : count_; }
  /// The group's whole part of values() or gradients(): only below ZeRO 3 and 2.
  void* group_values(const ParameterGroup& group) { return at(values_, type_, group.first); }
  void* group_gradients(const ParameterGroup& group) { return at(gradients_, state_type(), group.first); }
  /// This rank's share of that part.
  void* own_values(const ParameterGroup& group) { return at(values_, type_, own_first(group, 3)); }
  void* own_gradients(const ParameterGroup& group) {
    return at(gradients_, state_type(), own_first(group, 2));
  }
  /// The weights that the optimizer changes, in state_type(), at a value or state offset of an OwnedRange.
  /// They are the values themselves, or full-precision copies on state_device().
  void* master(const OwnedRange& range);
  void* value_at(const OwnedRange& range) { return at(values_, type_, range.value_offset); }
  void* gradient_at(const OwnedRange& range) { return at(gradients_, state_type(), range.gradient_offset); }
  bool has_master() const { return sharding_.host != nullptr || state_type() != type_; }
  /// The device of masters and moments.
  Device& state_device() const { return sharding_.host != nullptr ? *sharding_.host : device_; }
  void zero_gradients();
  /// Whether owned() covers all gradients: then an optimizer step leaves them all zero.
  bool owns_all_gradients() const { return gradient_count() == share_count_; }
  /// To be called after weights changed: gathered copies are outdated.
  void values_changed() {
    whole_ = {};
    ++version_;
  }
  /// Increases whenever weights change.
  int64_t version() const { return version_; }

  /// Sets elements of this rank's part of a weight, from `first` on; elements that it does not keep are
  /// ignored.
  void set(const Parameter& parameter, std::span<const double> values, int64_t first = 0);

 private:
  static void* at(const Buffer& buffer, DataType type, int64_t element) {
    return static_cast<char*>(buffer.data()) + element * size_of(type);
  }
  Communicator& sharers(const ParameterGroup& group) const {
    return group.expert ? *sharding_.expert : *sharding_.dense;
  }
  /// The first element of this rank's share, in a buffer that holds only shares from ZeRO stage `zero` on.
  int64_t own_first(const ParameterGroup& group, int64_t zero) const;
  // A piece with whole weights, at once or once its ticket is complete, in one of two places.
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
  // For ZeRO 3 and 2: the working piece, with the place of each group in it. If weights are gathered ahead,
  // neighbouring pieces use opposite ends of the same memory.
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
