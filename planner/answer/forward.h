// SPDX-License-Identifier: Apache-2.0
#pragma once

// Forward questions: which of several offers of GPUs trains a model by a date, for a budget, or on the fewest
// GPUs. mpt-plan recommend and the door use it.

#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"
#include "planner/api.h"

namespace mpt::planner {

/// Nodes that the user can get.
struct Offer {
#include "generated/Offer.inc"
};
/// "dgx-h100:16" is at most 16 such nodes. Names are read as --cluster reads them: "8xh100" is dgx-h100:1.
Offer offer_of(const std::string& text);
/// So many nodes of an offer, as --cluster takes them.
std::string cluster_of(const Offer& offer, int64_t nodes);

/// Failures that end steps, and their cost.
struct Failures {
#include "generated/Failures.inc"
};

struct ForwardQuestion {
#include "generated/ForwardQuestion.inc"

  PlanRequest request;  // without a cluster
};

/// The best plan on some nodes of an offer.
struct ForwardPoint {
#include "generated/ForwardPoint.inc"
};

struct ForwardAnswer {
  std::vector<ForwardPoint> points;  // by offer, fewest nodes first
  std::optional<size_t> chosen;      // index in points
  bool likely = true;  // deadline and budget are kept in nine of ten cases; else by the prediction
  std::vector<std::string> without;  // nodes on which nothing fits, or which cannot be fast enough, and why
};

/// Daly's optimum interval between checkpoints in seconds (Future Generation Computer Systems 22, 2006,
/// equation 37). By his model (equation 20), the share of the time that is spent on steps which count.
double checkpoint_interval_s(const Failures& failures, int64_t gpus);
double goodput_of(const Failures& failures, int64_t gpus);

/// Counts of nodes to try first: all up to 16, then powers of two, three halves of them, and `most`.
std::vector<int64_t> tried_nodes(int64_t most);

/// With a deadline the cheapest point that keeps it and the budget, with a budget alone the fastest, else the
/// fewest GPUs. By the range of eight in ten cases if possible. Throws UserError for wrong requests.
ForwardAnswer forward(const ForwardQuestion& question, const Watch& watch = {});

Json forward_json(const ForwardAnswer& answer);
/// The answer as lines for a terminal.
std::string describe_forward(const ForwardQuestion& question, const ForwardAnswer& answer);

}  // namespace mpt::planner
