// SPDX-License-Identifier: Apache-2.0

// A cuDNN 9.6: old enough to be refused. Nothing but its version is asked for.

#include <cstddef>

extern "C" {
size_t cudnnGetVersion() { return 90600; }
void cudnnCreate() {}
void cudnnDestroy() {}
void cudnnSetStream() {}
void cudnnGetErrorString() {}
void cudnnBackendCreateDescriptor() {}
void cudnnBackendDestroyDescriptor() {}
void cudnnBackendSetAttribute() {}
void cudnnBackendGetAttribute() {}
void cudnnBackendFinalize() {}
void cudnnBackendExecute() {}
}
