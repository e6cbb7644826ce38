// SPDX-License-Identifier: Apache-2.0
#pragma once

// The dynamic shared memory of the block that runs. Each word knows the threads that touched it since the
// last barrier: a thread that writes what another touched, or reads what another wrote, without a barrier
// between them is a race. Barriers of a warp order its lanes. Reported accesses also tell how long a warp's
// take: 32 banks of 4 bytes each give one word a cycle (CUDA C++ Programming Guide, "Shared Memory" of
// compute capability 5.x and later).

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

/// Bytes that a block may have on the GPU that this stands for; 227 KiB on compute capability 9.0, 163
/// on 8.0, 99 on 8.6 and 8.9 (the guide's technical specifications).
int most_shared_bytes();
void set_most_shared_bytes(int bytes);

/// All of it; rubbish, as on a GPU: a kernel must write before it reads.
unsigned char* begin_shared(size_t bytes);
bool is_shared(const void* data);
/// Whether banks are counted, too, which takes long.
void count_banks(bool yes);

/// What a warp's accesses took, and what they would take without conflicts of banks.
struct BankCycles {
  int64_t taken = 0, least = 0;
};

/// An access by thread `thread` of the block, at place `code` of the kernel. What is wrong with it; empty:
/// nothing.
std::string note_shared(size_t thread, const void* data, size_t bytes, bool writes, const void* code);
void pass_block_barrier();
/// Barriers of blocks order nothing from now on, as if a kernel had none.
void set_lost_barriers(bool lost);
void pass_warp_barrier(size_t thread);
/// Of what was noted since the last call.
BankCycles take_bank_cycles();

}  // namespace cuda_on_cpu
