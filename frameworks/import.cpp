// SPDX-License-Identifier: Apache-2.0
#include "frameworks/import.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace mpt::frameworks {

void check_stages(const Layout& layout, const ModelSpec& model, const std::string& where) {
  const int64_t most = model.layers.count() + 2;  // the embedding and the head may each be a stage
  if (layout.stages() <= most) return;
  throw FrameworkRefusal(
      Problem{where, fmt::format("{} stages for {} layers", layout.stages(), model.layers.count()),
              fmt::format("at most {}", most), "fewer pipeline ranks or virtual stages"});
}

void check_imported(const Imported& in, const std::string& file) {
  if (in.model) {
    from_json<ModelSpec>(to_json(*in.model), file);
    validate_model(*in.model, file);
  }
  Layout layout = in.layout;
  layout.data = std::max<int64_t>(1, layout.data);
  if (const auto rejection = check_degrees(layout)) {
    throw FrameworkRefusal(Problem{file, rejection->reason,
                                   fmt::format("degrees whose product is at most {} ranks", kMostRanks), ""});
  }
  Workload workload = in.workload;
  workload.global_batch = std::max<int64_t>(1, workload.global_batch);
  from_json<Workload>(to_json(workload), file);
}

}  // namespace mpt::frameworks
