// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda_module.h"

#include "base/error.h"
#include "base/files.h"
#include "base/module.h"
#include "base/terminal.h"

namespace mpt::runtime {
namespace {

// The build tree that contains the program, or a placeholder for it.
std::string build_folder(const std::filesystem::path& program) {
  const std::filesystem::path folder = program.parent_path().parent_path();
  return is_there(folder / "CMakeCache.txt") ? shell_word(folder.string()) : "BUILD";
}

}  // namespace

std::string missing_module_text(const CudaBuild& build, const std::filesystem::path& program) {
  const std::string folder = build_folder(program);
  const std::string make = fmt::format("cmake --build {} --target mpt_cuda", folder);
  if (!build.found.empty())
    return fmt::format(
        "the GPU module {} is not beside the program. CMake found {}, but the module has not been built\n"
        "    build it: {}{}",
        kCudaModuleFile, build.found, make,
        folder == "BUILD" ? fmt::format(", then copy it to {}", program.parent_path().string()) : "");
  if (!build.missing.empty())
    return fmt::format(
        "this build has no GPU module. When it was configured, CMake did not find: {}\n"
        "    install what is missing (NCCL_HOME names its folder), then: cmake {} && {}",
        build.missing, folder, make);
  return fmt::format(
      "this build has no GPU module. It was configured with MPT_WITH_CUDA=OFF\n"
      "    build one: cmake {} -DMPT_WITH_CUDA=ON && {}",
      folder, make);
}

std::string unloadable_module_text(const std::string& loader_said) {
  // The loader says this if a library is missing that the module needs. The module itself was found.
  const bool lacks_library = loader_said.find("cannot open shared object file") != std::string::npos;
  return fmt::format("the GPU module cannot be loaded ({})\n    {}", loader_said,
                     lacks_library ? "add the folder of that library to LD_LIBRARY_PATH"
                                   : "build it again on a system like this one: target mpt_cuda");
}

std::unique_ptr<Backend> load_cuda_backend(const std::string& remedy) {
  const auto refuse = [&](const std::string& why) {
    throw NoDeviceError(
        fmt::format("no GPU can be used: {}{}{}", why, remedy.empty() ? "" : "\n    ", remedy));
  };
  std::string reason;
  void* const module = open_module(kCudaModuleFile, reason);
  if (module == nullptr && reason.empty()) {
    std::error_code error;
    refuse(missing_module_text({MPT_CUDA_FOUND, MPT_CUDA_MISSING},
                               std::filesystem::read_symlink("/proc/self/exe", error)));
  }
  if (module == nullptr) refuse(unloadable_module_text(reason));
  const auto make = reinterpret_cast<CudaModuleFactory>(symbol_of(module, kCudaModuleFactory));
  if (make == nullptr)
    refuse(fmt::format("{} beside this program is of another program\n    build it again: target mpt_cuda",
                       kCudaModuleFile));
  std::unique_ptr<Backend> backend(make(kCudaModuleVersion, &reason));
  if (!backend) refuse(reason);
  return backend;
}

}  // namespace mpt::runtime
