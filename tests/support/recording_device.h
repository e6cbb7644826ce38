// SPDX-License-Identifier: Apache-2.0
#pragma once

// RecordingDevice: computes nothing and writes down every forward operator with its shape, as the
// LayerProgram names them; RecordingCommunicator does the same for collectives.

#include <memory>
#include <vector>

#include "models/layer_program.h"
#include "runtime/device/device.h"

namespace mpt::test {

struct Record {
  std::vector<models::OperatorShape> forward;   // in order
  std::vector<models::Collective> collectives;  // in order, forward and backward
  int64_t uploaded = 0;                         // numbers from the host
};

std::unique_ptr<runtime::Device> make_recording_device(Record& record);
/// Stands for rank 0 of a tensor-parallel group of `size`.
std::unique_ptr<runtime::Communicator> make_recording_communicator(Record& record, int size);

}  // namespace mpt::test
