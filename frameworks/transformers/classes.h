// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the classes of transformers differ: what their layers keep, and which modules PEFT adapts. The facts
// are in classes.json. Whoever prices, exports or imports such a model asks here.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/training.h"
#include "frameworks/framework.h"

namespace mpt::frameworks {

/// The type of the class that runs the model: its own if its file on the hub is taken, else that of the
/// config.json that is written.
std::string class_type(const ModelSpec& model, const std::string& framework);

/// `execution` as that class is written, if the framework runs classes of transformers.
Execution as_class_of(const ModelSpec& model, const Framework& framework, const Execution& execution);

/// Whether the model has dense MLPs or shared experts.
bool has_mlps(const ModelSpec& model);
/// Names that a table has for the model's type; most types have none. "moved_adapters": an MLP's gate, up and
/// down, whose adapters PEFT gives to the routed experts. "wrapped": the layers' class, where the model's own
/// list for FSDP has classes that it lacks, which accelerate refuses.
std::vector<std::string> class_names(const char* table, const Framework& framework, const ModelSpec& model);
/// Packages that run the mixers of a plan's class if they are installed, as is counted; "" for others.
std::string kernel_packages(const Plan& plan);
/// Whether dense MLPs or shared experts of the model would lose adapters by that.
bool moves_adapters(const Framework& framework, const ModelSpec& model, const Training& training);

}  // namespace mpt::frameworks
