// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda_module.h"

#include <gtest/gtest.h>

#include <fstream>

namespace mpt::runtime {
namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CudaModule, AMissingModuleSaysWhetherCudaWasFound) {
  const std::filesystem::path tree = std::filesystem::path(testing::TempDir()) / "a build tree";
  std::filesystem::create_directories(tree / "bin");
  std::ofstream(tree / "CMakeCache.txt") << "";
  const std::filesystem::path program = tree / "bin" / "mpt-run";
  const std::string quoted = "'" + tree.string() + "'";
  const std::string build = "cmake --build " + quoted + " --target mpt_cuda";

  const std::string not_built = missing_module_text({"CUDA 13.0 and NCCL 2.28", ""}, program);
  EXPECT_TRUE(holds(not_built, "CMake found CUDA 13.0 and NCCL 2.28, but the module has not been built"));
  EXPECT_TRUE(holds(not_built, build)) << not_built;
  EXPECT_FALSE(holds(not_built, "did not find"));

  const std::string not_found = missing_module_text({"", "nvcc, NCCL"}, program);
  EXPECT_TRUE(holds(not_found, "CMake did not find: nvcc, NCCL"));
  EXPECT_TRUE(holds(not_found, "cmake " + quoted + " && " + build)) << not_found;

  const std::string off = missing_module_text({}, program);
  EXPECT_TRUE(holds(off, "MPT_WITH_CUDA=OFF")) << off;
  EXPECT_TRUE(holds(off, "-DMPT_WITH_CUDA=ON")) << off;
}

TEST(CudaModule, AnInstalledProgramNamesNoBuildTree) {
  const std::string text = missing_module_text({"CUDA 13.0 and NCCL 2.28", ""}, "/opt/mpt/bin/mpt-run");
  EXPECT_TRUE(holds(text, "cmake --build BUILD --target mpt_cuda, then copy it to /opt/mpt/bin")) << text;
}

TEST(CudaModule, AModuleThatCannotBeLoadedIsDamagedOrLacksALibrary) {
  const std::string lacks =
      unloadable_module_text("libnccl.so.2: cannot open shared object file: No such file or directory");
  EXPECT_TRUE(holds(lacks, "libnccl.so.2") && holds(lacks, "LD_LIBRARY_PATH")) << lacks;
  for (const char* said : {"/opt/mpt/bin/libmpt_cuda.so: file too short",
                           "/lib/libc.so.6: version `GLIBC_2.38' not found (required by libmpt_cuda.so)"}) {
    const std::string damaged = unloadable_module_text(said);
    EXPECT_TRUE(holds(damaged, said) && holds(damaged, "target mpt_cuda")) << damaged;
    EXPECT_FALSE(holds(damaged, "LD_LIBRARY_PATH")) << damaged;
  }
}

}  // namespace
}  // namespace mpt::runtime
