// The code of both back-ends: Buffer and check_timing; and which archs a GPU runs, by their names alone.
// SPDX-License-Identifier: MIT
#include "runtime/device/backend.hpp"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/arch_name.hpp"

namespace kvjit {

std::string device_text(const DeviceInfo& device, const std::string& text_arch) {
  return fmt::format("{}, text for {}{}", device.name, text_arch,
                     device.runs_ptx ? fmt::format(", run as PTX on {}", without_suffix(device.own_arch)) : "");
}

Result<void> check_runs_as_ptx(const std::string& arch, const DeviceInfo& gpu) {
  const int number = number_of_arch(arch);
  if (number == 0) return fail(Code::bad_input, fmt::format("arch '{}' is not known", arch));
  if (!has_portable_ptx(arch))
    return fail(Code::unsupported,
                fmt::format("PTX of {} is not portable: its suffix unlocks instructions that only this chip has", arch),
                {},
                {arch == gpu.own_arch ? fmt::format("{} runs {} as machine code: leave out as-ptx", gpu.name, arch)
                                      : fmt::format("PTX of {} is portable", without_suffix(arch))});
  if (number > number_of_arch(gpu.own_arch))
    return fail(Code::unsupported, fmt::format("PTX of {} runs on {} and later GPUs; {} is {}", arch, arch, gpu.name,
                                               without_suffix(gpu.own_arch)));
  return {};
}

std::string way_to_run(const std::vector<std::string>& archs, const DeviceInfo& gpu) {
  for (const std::string& arch : archs) {
    if (arch == without_suffix(gpu.own_arch)) return fmt::format("--arch {} runs the text for {} here", arch, arch);
    if (check_runs_as_ptx(arch, gpu))
      return fmt::format(
          "--arch {} --as-ptx runs the text for {} here, as PTX (engines: `arch` and `as_ptx` of a context)", arch,
          arch);
  }
  return "";
}

Result<void> choose_arch(const Options& options, DeviceInfo& gpu) {
  gpu.arch = options.arch.empty() ? gpu.own_arch : options.arch;
  gpu.runs_ptx = options.as_ptx;
  if (options.as_ptx && options.arch.empty())
    return fail(Code::usage, "as-ptx needs the name of an arch", {}, {"for example --arch sm_80 --as-ptx"});
  if (options.as_ptx) return check_runs_as_ptx(options.arch, gpu);
  if (gpu.arch == gpu.own_arch || gpu.arch == without_suffix(gpu.own_arch)) return {};
  std::vector<std::string> notes = {"--device cpu runs the text of any arch"};
  if (const std::string way = way_to_run({gpu.arch}, gpu); !way.empty()) notes.insert(notes.begin(), way);
  return fail(Code::unsupported,
              fmt::format("kernels for {} are asked for; the device is {} ({})", gpu.arch, gpu.own_arch, gpu.name), {},
              std::move(notes));
}

Result<void> check_timing(int repeats, int buffer_sets) {
  if (repeats >= 1 && buffer_sets >= 1) return {};
  return fail(Code::usage,
              fmt::format("{} timed repeats, {} buffer sets: at least 1 of each is needed", repeats, buffer_sets));
}

Result<Buffer> Buffer::make(std::shared_ptr<Backend> backend, std::size_t bytes) {
  KV_TRY(pointer, backend->allocate(bytes));
  Buffer buffer;
  buffer.backend_ = std::move(backend);
  buffer.pointer_ = pointer;
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (backend_ != nullptr && pointer_ != 0) backend_->release(pointer_);
}

}  // namespace kvjit
