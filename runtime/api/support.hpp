// Code that all files of the C interface share: the handles, sized structs, statuses, and the path from a spec to a
// generated program. Internal to api/.
// SPDX-License-Identifier: MIT
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "generator/base/display.hpp"
#include "generator/catalogue/registry.hpp"
#include "generator/kernels/operations/operations.hpp"
#include "generator/program.hpp"
#include "generator/resolve/problem.hpp"
#include "generator/spec/spec.hpp"
#include "runtime/api/answers.hpp"
#include "runtime/api/readiness.hpp"
#include "runtime/base/workers.hpp"
#include "runtime/jit/context.hpp"
#include "runtime/kvjit.h"
#include "runtime/launch/program.hpp"

namespace kvjit::c_api {

struct ServedSpec;

// The key of a copy's kernel within its source spec: the target spec, the sides, and the properties of a call that
// CopyPlan depends on.
struct CopyKey {
  std::weak_ptr<ServedSpec> to;
  int from_side, to_side, alignment;
  bool has_same_scale, is_bulk;
  bool operator<(const CopyKey& other) const {
    if (to.owner_before(other.to) || other.to.owner_before(to)) return to.owner_before(other.to);
    return std::tie(from_side, to_side, alignment, has_same_scale, is_bulk) <
           std::tie(other.from_side, other.to_side, other.alignment, other.has_same_scale, other.is_bulk);
  }
};
struct CopyKernel {
  CopyKind kind;
  Source source;
};
// Kernels of operations, generated on the first call that needs them. Nodes of a map do not move, so callers may hold
// pointers to them. The key of shifts and ropes is the side. Kernels of `ropes` rotate rows to their positions and
// quantize them. `tile_shifts` and `tile_ropes` are the bulk kernels.
struct OperationKernels {
  std::map<CopyKey, CopyKernel> copies;
  std::map<int, Source> shifts, tile_shifts, ropes, tile_ropes;
  std::map<std::pair<Role, kv::SlotType>, Source> by_slots;
};

// The cached result of generating one spec, shared by all programs that a context creates from it. Creating a program
// from the same spec again (one for each layer of a model) skips the generator. Its sources are the same objects, so
// the JIT's memory compares their texts by pointer.
struct ServedSpec {
  std::shared_ptr<const Registry> registry;
  Problem problem;
  std::shared_ptr<const ProgramSource> source;
  std::mutex mutex;  // guards `operation_kernels`
  OperationKernels operation_kernels;
};

// The generated specs of a context, each as long as some program uses it.
class ServedSpecs {
 public:
  std::shared_ptr<ServedSpec> find(const std::string& spec_key) {
    const std::lock_guard lock(mutex_);
    const auto entry = specs_.find(spec_key);
    return entry == specs_.end() ? nullptr : entry->second.lock();
  }
  void keep(const std::string& spec_key, const std::shared_ptr<ServedSpec>& spec) {
    const std::lock_guard lock(mutex_);
    std::erase_if(specs_, [](const auto& entry) { return entry.second.expired(); });
    specs_[spec_key] = spec;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<ServedSpec>> specs_;  // by Answers::key and file name
};

}  // namespace kvjit::c_api

struct kvjit_context {
  std::shared_ptr<kvjit::Context> context;
  std::shared_ptr<const kvjit::Registry> own_registry;  // built-in files and specs_dirs; null: built-in files only
  std::string own_specs;                                // digest of its files; "": built-in files only
  kvjit::c_api::ServedSpecs specs;
  mutable kvjit::c_api::Answers answers;  // of kvjit_context_supports
  kvjit::c_api::Readiness readiness;
  kvjit::Workers workers;  // threads of requests; destroyed before the members above, which they use
};

struct kvjit_program {
  std::shared_ptr<kvjit::Context> context;
  std::shared_ptr<kvjit::c_api::ServedSpec> spec;
  std::shared_ptr<kvjit::Program> program;
  std::mutex mutex;             // guards `texts`
  std::set<std::string> texts;  // strings that the C interface returned; nodes do not move
  const char* intern(const std::string& text) {
    const std::lock_guard lock(mutex);
    return texts.insert(text).first->c_str();
  }
};

namespace kvjit::c_api {

static_assert(sizeof(kvjit_index) == 8 && sizeof(void*) == 8, "64-bit platforms only");
static_assert(static_cast<int>(Code::internal) == KVJIT_INTERNAL && static_cast<int>(Code::usage) == KVJIT_USAGE &&
              static_cast<int>(Code::bad_input) == KVJIT_BAD_INPUT &&
              static_cast<int>(Code::unsupported) == KVJIT_UNSUPPORTED &&
              static_cast<int>(Code::compile) == KVJIT_COMPILE && static_cast<int>(Code::differs) == KVJIT_DIFFERS &&
              static_cast<int>(Code::environment) == KVJIT_ENVIRONMENT &&
              static_cast<int>(Code::integrity) == KVJIT_INTEGRITY &&
              static_cast<int>(Code::cancelled) == KVJIT_CANCELLED && static_cast<int>(Code::sealed) == KVJIT_SEALED);

inline void copy_text(char* to, std::size_t size, std::string_view text) {
  if (size == 0) return;
  constexpr std::string_view kCut = "...";
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
  if (length < text.size() && length >= kCut.size()) std::memcpy(to + length - kCut.size(), kCut.data(), kCut.size());
}

inline std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

inline std::string lines(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += (text.empty() ? "" : "\n") + note;
  return text;
}

// Writes a struct to a caller whose version of it may be shorter: only the bytes up to its size.
template <class Struct>
void write_struct(Struct* to, Struct value) {
  const std::size_t size = to->size;
  value.size = size;
  std::memcpy(to, &value, std::min(size, sizeof value));
}

template <class Struct>
Result<void> check_output(const Struct* to, const char* name) {
  if (!to) return fail(Code::usage, fmt::format("{} is NULL", name));
  if (to->size < sizeof to->size)
    return fail(Code::usage, fmt::format("{}->size is {}; set it with KVJIT_INIT", name, to->size));
  return {};
}

// Reads a sized struct of any version. A caller with an older header gets defaults for the members that it does not
// know. A caller with a newer header is refused if it sets a member that this library does not know.
template <class Struct>
Result<Struct> read_struct(const Struct* from, const char* name) {
  KV_CHECK(check_output(from, name));
  constexpr std::size_t kMostBytes = 4096;  // no future struct is larger; a larger size means memory that was never set
  if (from->size > kMostBytes)
    return fail(Code::usage, fmt::format("{}: size {} is no size of a struct", name, from->size));
  Struct value{};
  std::memcpy(&value, from, std::min(from->size, sizeof value));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof value; i < from->size; ++i)
    if (bytes[i] != 0)
      return fail(Code::unsupported, fmt::format("{} sets a member that version {} of the library does not have", name,
                                                 KVJIT_VERSION_NUMBER));
  return value;
}

// Reports an exception. Allocates nothing, because the exception may be bad_alloc. So a control character of its text
// becomes a question mark, not an escape.
inline kvjit_status tell(Code code, const char* message, kvjit_error* to) noexcept {
  if (to && to->size >= sizeof to->size) {
    kvjit_error value{};
    value.status = static_cast<int>(code);
    copy_text(value.message, sizeof value.message, message);
    for (char& letter : value.message)
      if ((letter > 0 && letter < ' ') || letter == 0x7f) letter = '?';
    write_struct(to, value);
  }
  return static_cast<kvjit_status>(code);
}

inline kvjit_status tell(const Error& error, kvjit_error* to) noexcept {
  if (to && to->size >= sizeof to->size) {
    kvjit_error value{};
    value.status = static_cast<int>(error.code);
    value.line = error.where.line;
    value.column = error.where.column;
    try {
      copy_text(value.file, sizeof value.file, displayed(error.where.file, sizeof value.file));
      copy_text(value.message, sizeof value.message, displayed_lines(error.message, sizeof value.message));
      copy_text(value.notes, sizeof value.notes, displayed_lines(lines(error.notes), sizeof value.notes));
    } catch (...) {
      copy_text(value.message, sizeof value.message, "no memory for the message");
    }
    write_struct(to, value);
  }
  return static_cast<kvjit_status>(error.code);
}

// Runs the body of a C function. It turns the Result into a status, and every exception into an error.
template <class Work>
kvjit_status guarded(kvjit_error* error, Work work) noexcept {
  try {
    const Result<void> result = work();
    if (!result) return tell(result.error(), error);
    if (error && error->size >= sizeof error->size) write_struct(error, kvjit_error{});
    return KVJIT_OK;
  } catch (const std::bad_alloc&) {
    return tell(Code::environment, "no memory", error);
  } catch (const std::exception& e) {
    return tell(Code::internal, e.what(), error);
  } catch (...) {
    return tell(Code::internal, "an unknown exception", error);
  }
}

// Runs the body of a C function that returns nothing. There is nobody to tell of an exception, so it ends here.
template <class Work>
void guarded(Work work) noexcept {
  try {
    work();
  } catch (...) {
  }
}

inline Result<void> need(const void* pointer, const char* name) {
  if (!pointer) return fail(Code::usage, fmt::format("{} is NULL", name));
  return {};
}

inline Result<std::shared_ptr<const Registry>> load_registry(const FileSet& files, const FileNames& shown_as = {}) {
  KV_TRY(loaded, Registry::load(files, shown_as));
  return std::make_shared<const Registry>(std::move(loaded));
}
inline Result<std::shared_ptr<const Registry>> registry() {
  static const Result<std::shared_ptr<const Registry>> loaded = load_registry(embedded_files());
  return loaded;
}
inline Result<std::shared_ptr<const Registry>> registry(const kvjit_context& context) {
  if (context.own_registry) return context.own_registry;
  return registry();
}

inline Result<const SideInfo*> side_of(const kvjit_program* program, int side) {
  KV_CHECK(need(program, "program"));
  if (side != KVJIT_K && side != KVJIT_V)
    return fail(Code::usage, fmt::format("side {}; KVJIT_K (0) and KVJIT_V (1) are possible", side));
  return side == KVJIT_K ? &program->program->source().k : &program->program->source().v;
}

struct Generated {
  Problem problem;
  ProgramSource source;
};
// device: name of the GPU that the program will run on; "": unknown.
inline Result<Generated> generate(const Spec& spec, const Registry& registry, const std::string& arch,
                                  const std::string& device) {
  KV_TRY(problem, resolve(spec, registry, arch));
  problem.device = device;
  KV_TRY(source, make_program(problem, registry));
  return Generated{std::move(problem), std::move(source)};
}

// The caller's choice, else that of the context's options, else the device's own arch if the spec allows it. The CPU
// back-end runs kernels of any arch.
inline Result<std::string> choose_arch(const Spec& spec, const char* arch, const kvjit::Context& context) {
  const DeviceInfo& device = context.backend()->info();
  if (arch && device.runs_ptx) KV_CHECK(check_runs_as_ptx(arch, device));
  if (arch) return std::string(arch);
  if (!context.options().arch.empty()) return device.arch;
  if (spec.archs.empty() || std::count(spec.archs.begin(), spec.archs.end(), device.arch)) return device.arch;
  if (!device.is_gpu) return spec.archs.front();
  std::vector<std::string> notes = {fmt::format("add \"{}\" to [target] arch, or leave it out", device.arch)};
  if (const std::string way = way_to_run(spec.archs, device); !way.empty()) notes.push_back(way);
  return fail(
      Code::unsupported,
      fmt::format("the spec is for {}; this device is {} ({})", fmt::join(spec.archs, ", "), device.arch, device.name),
      spec.where("target.arch"), std::move(notes));
}

}  // namespace kvjit::c_api
