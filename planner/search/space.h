// SPDX-License-Identifier: Apache-2.0
#pragma once

// The space of layouts, in two steps. A Family fixes all degrees, the micro-batch, the placement, ZeRO and
// offload: its members share the price of every layer. A Member adds what sits on top: schedule and chunks,
// how layers are divided into stages, and recompute. Combinations that differ in name alone stand once: one
// pipeline rank has one schedule.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/schedule_catalog.h"
#include "frameworks/supports.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// even: as equal in number as can be. balanced: the slowest stage as fast as can be, embedding and head
/// counted as the work they are. by_memory: in mixed clusters, in proportion to what each rank can hold.
enum class StageSplit : uint8_t { even, balanced, by_memory };
/// Recompute of a member; fitted: full recompute of as few layers of each stage as memory asks for.
enum class RecomputeChoice : uint8_t { none, selective, full, fitted };

Recompute recompute_of(RecomputeChoice choice);
/// That makes it no slower than it is: fitting may leave no layer to recompute.
Recompute least_recompute(RecomputeChoice choice);

struct Member {
  uint16_t schedule = 0;  // index into schedule_catalog()
  uint16_t chunks = 1;
  StageSplit split = StageSplit::even;
  RecomputeChoice recompute = RecomputeChoice::none;
};

struct Family {
  Layout layout;  // layers_per_stage is left empty
};

/// Rules that fail, and how often each ruled something out.
using NotDividing = std::map<std::string, int64_t>;

/// What the families of one group differ in.
using Sharding = frameworks::Sharing;

/// Calls `visit` with the layout of every group of families, which differ in sharding alone; those of one
/// split follow each other. There may be hundreds of thousands.
void visit_groups(const SearchProblem& problem, const std::function<void(const Layout&)>& visit,
                  NotDividing* not_dividing = nullptr);
std::vector<Sharding> shardings_of(const SearchProblem& problem, const Layout& group);
Family family_of(const Layout& group, const Sharding& sharding);
/// Calls `visit` with every family.
void visit_families(const SearchProblem& problem, const std::function<void(const Family&)>& visit,
                    NotDividing* not_dividing = nullptr);
/// Whether bounds and framework allow a schedule of this name.
bool has_schedule(const SearchProblem& problem, const std::string& name);
/// Members of a family; they depend on its pipeline, its number of micro-batches and on whether it overlaps
/// the exchange with experts. Notes rules that fail.
std::vector<Member> members_of(const SearchProblem& problem, const Family& family,
                               NotDividing* not_dividing = nullptr);

/// Whether the chunks of a rank are laid in rounds: two of them may lie in a V, all others have one
/// placement.
bool in_rounds(const Member& member);

/// The layout without its division into stages (layers_per_stage is even) and without recomputed_layers.
Layout layout_of(const SearchProblem& problem, const Family& family, const Member& member);

std::vector<int64_t> divisors(int64_t value);

}  // namespace mpt::planner
