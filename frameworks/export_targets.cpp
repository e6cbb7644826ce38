// SPDX-License-Identifier: Apache-2.0
#include "frameworks/export_targets.h"

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"

namespace mpt::frameworks {
namespace {

const ExportTarget* target_named(const std::string& name) {
  return first_if(export_targets(), [&](const ExportTarget& t) { return name == t.name; });
}

}  // namespace

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> targets = [] {
    std::vector<ExportTarget> all;
    for (const FrameworkCode& code : framework_code())
      if (code.write != nullptr) all.push_back({code.framework, code.files().exported.c_str(), code.write});
    all.push_back({"trl", "TRL 1.16.0: sft.yaml, and accelerate's YAML", export_trl, true});
    all.push_back({"llamafactory", "LLaMA-Factory 0.9.5: its recipe", export_llamafactory, true});
    all.push_back({"axolotl", "axolotl 0.21.0: its recipe", export_axolotl, true});
    all.push_back({"slurm", "Slurm batch file that starts torchrun on every node", export_slurm});
    all.push_back(
        {"kubernetes", "Kubernetes indexed Job that starts torchrun in every pod", export_kubernetes});
    return all;
  }();
  return targets;
}

const ExportTarget* usual_target(const Plan& plan, const std::string& asked) {
  const std::string& framework = plan.layout.execution->framework;
  const ExportTarget* const named = target_named(asked);
  if (named != nullptr && named->tuner && tuner_lacks(asked, plan).empty()) return named;
  const Framework* const known = find_framework(framework);
  if (known == nullptr) return nullptr;
  if (verdict_on(*known, plan.model, plan.layout.training).verdict == VerdictKind::exported)
    return export_target_of(framework);
  const bool others = any_of(features_of(plan.layout.training), [&](TrainingFeature f) {
    return known->abilities.trains_unwritten.contains(f) && !tuners_write(framework, f);
  });
  const bool models = verdict_on(*known, plan.model, Training{}).verdict == VerdictKind::exported;
  return models && !others && tuners_take(framework) ? target_named("trl") : nullptr;
}

const ExportTarget& find_export_target(const std::string& name) {
  if (const ExportTarget* target = target_named(name)) return *target;
  const Framework* framework = find_framework(name);
  if (const auto* target = target_named(framework != nullptr ? framework->name : name)) return *target;
  auto names = mapped<std::string>(export_targets(), &ExportTarget::name);
  const std::string expected = one_of(names);
  for (const ExportTarget& target : export_targets()) {
    const Framework* its = find_framework(target.name);
    for (const std::string& alias : its != nullptr ? its->other_names() : std::vector<std::string>{})
      names.push_back(alias);
  }
  refuse_input("--to", fmt::format("\"{}\"{}", name.substr(0, 40), did_you_mean(name, names)), expected);
}

const ExportTarget* export_target_of(const std::string& framework) {
  const Framework* known = find_framework(framework);
  return known != nullptr ? target_named(known->name) : nullptr;
}

bool takes_plans_of(const ExportTarget& target, const std::string& framework) {
  if (target.tuner) return tuners_take(framework);
  const Framework* its = find_framework(target.name);
  if (its == nullptr) return true;
  const Framework* known = find_framework(framework);
  return known != nullptr && (known == its || contains(its->takes_plans_of, known->name));
}

std::optional<Rejection> cannot_run(const ExportTarget& target, const Plan& plan) {
  const std::string& planned = plan.layout.execution->framework;
  const std::string lacks = target.tuner ? tuner_lacks(target.name, plan) : "";
  if (!lacks.empty()) return Rejection{"framework", -1, 0.0, 0.0, lacks};
  const std::string trainer = tuners_take(planned) ? planned : "transformers-fsdp";
  const Framework* framework = find_framework(target.tuner ? trainer : target.name);
  if (framework == nullptr) return std::nullopt;
  Layout l = plan.layout;
  const Abilities& can = framework->abilities;
  if (l.execution->framework != framework->name) {
    const auto always = [&](AlwaysBeside what) { return contains(can.always_overlaps, what); };
    l.overlap_gradient_reduce |= always(AlwaysBeside::gradient_reduce);
    l.overlap_parameter_gather |= always(AlwaysBeside::parameter_gather);
    l.overlap_transfer |= always(AlwaysBeside::transfer);
    l.overlap_tensor &= can.overlap_tensor;
    l.overlap_exchange &= can.overlap_exchange;
  }
  return supports(*framework, plan.model, l, plan.workload);
}

}  // namespace mpt::frameworks
