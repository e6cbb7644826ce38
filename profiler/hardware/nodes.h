// SPDX-License-Identifier: Apache-2.0
#pragma once

// The catalog's nodes as values. Clusters by name and cluster files are made of them.

#include <string>
#include <vector>

#include "core/cluster_spec.h"

namespace mpt::profiler {

inline constexpr int64_t kMostDevices = 10'000'000;

/// A node as the catalog's files hold it: one node's devices and its links, with the source of the figures.
struct NodeEntry {
#include "generated/NodeEntry.inc"
};

/// All nodes, by name; variants such as "dgx-b200@power-limited" come last.
const std::vector<NodeEntry>& catalog_nodes();
/// The nodes' names, without reading the files.
std::vector<std::string> node_names();
/// The node of that name, or nothing. Reads no other node's file.
const NodeEntry* node_named(const std::string& name);
/// The first node with a device of that name, or nothing. Reads few other files.
const NodeEntry* node_with_device(const std::string& device);
/// The node of that name, or the first one with a device of that name; nothing if there is none.
const NodeEntry* find_node(const std::string& node_or_device);
/// The words of a device's name, in small letters, without the maker: "a100", "pcie", "40gb".
std::vector<std::string> device_words(const std::string& device);
/// The node with the device of the nearest name: "gb200" means "gb200-186gb", and "a100-pcie-80gb" is nearest
/// to "a100-pcie-40gb". The name must have the first word. More common words count for it, more other words
/// against it. Nothing if no device has the first word.
const NodeEntry* nearest_node(const std::string& device);
/// Whether a driver's name of a device, "NVIDIA H100 80GB HBM3", means the catalog's "h100-sxm-80gb".
bool means_device(const std::string& reported, const std::string& name);

/// `count` such nodes. Throws UserError if they are too many.
ClusterSpec make_nodes(const NodeEntry& node, const std::string& name, int64_t count);

}  // namespace mpt::profiler
