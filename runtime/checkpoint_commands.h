// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mpt::runtime {

/// mpt-run inspect CHECKPOINT: what it holds, after checking it whole.
int inspect(int argc, char** argv);

/// mpt-run export CHECKPOINT FOLDER: its weights as a Hugging Face model.
int export_weights(int argc, char** argv);

}  // namespace mpt::runtime
