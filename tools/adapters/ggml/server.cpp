// Opens contexts, requests programs and calls them: see server.hpp.
// SPDX-License-Identifier: MIT
#include "server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "own_file.hpp"
#include "policy.hpp"
#include "settings.hpp"
#include "stats.hpp"
#include "ways/cuda_driver.hpp"

namespace kvjit::plugin {
namespace {

constexpr std::size_t kFirstWorkspace = std::size_t{16} << 20;  // bytes: enough for 64 rows of 128 on 132 SMs

kvjit_error empty_error() {
  kvjit_error error{};
  error.size = sizeof error;
  return error;
}

std::string text_of(const kvjit_error& error) {
  std::string text = error.message;
  for (const char* at = error.notes; *at;) {
    const std::size_t length = std::strcspn(at, "\n");
    if (length > 0) text += "; " + std::string(at, length);
    at += length + (at[length] == '\n');
  }
  return text;
}

// The number that the driver gives the GPU of a device; -1 if that is no GPU; -2 if the GPU is not found.
int ordinal_of(ggml_backend_dev_t device) {
  if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) return -1;
  union {  // space for members that a later ggml adds
    ggml_backend_dev_props props;
    char space[1024];
  } u{};
  ggml_backend_dev_get_props(device, &u.props);
  if (!u.props.device_id) return -2;
  const CudaDriver* const driver = CudaDriver::open();
  int ordinal = -2;
  if (!driver || driver->cuDeviceGetByPCIBusId(&ordinal, u.props.device_id) != 0) return -2;
  return ordinal;
}

// The servers that were opened, and why others were not. They are never destroyed: ggml's threads may outlive statics.
struct Servers {
  struct One {
    Server* server = nullptr;
    std::string why;
  };
  std::mutex mutex;
  std::map<ggml_backend_dev_t, One> by_device;
};
Servers& all_servers() {
  static auto& servers = *new Servers;
  return servers;
}

// The bundles of kernels beside the plugin: kvjit-ggml*.kvb, which `ninja bundles` makes.
std::vector<std::string> own_bundles() {
  std::vector<std::string> files;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(own_folder(), failed)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("kvjit-ggml") && name.ends_with(".kvb")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

Workspace::~Workspace() {
  for (void* block : blocks_) server_.library().kvjit_release(server_.context(), block);
}

void* Workspace::memory(std::size_t bytes, std::string& why) {
  if (bytes <= bytes_) return blocks_.back();
  const std::size_t wanted = std::max({bytes, 2 * bytes_, kFirstWorkspace});
  void* fresh = nullptr;
  kvjit_error error = empty_error();
  const Library& library = server_.library();
  const std::vector<char> zeros(KVJIT_COUNTER_BYTES);
  if (library.kvjit_allocate(server_.context(), wanted, &fresh, &error) != KVJIT_OK)
    return why = text_of(error), nullptr;
  blocks_.push_back(fresh);
  if (library.kvjit_copy_to_device(server_.context(), fresh, zeros.data(), zeros.size(), &error) != KVJIT_OK)
    return why = text_of(error), nullptr;
  bytes_ = wanted;
  return fresh;
}

MaskRanges::~MaskRanges() {
  for (const Block& block : blocks_) server_.library().kvjit_release(server_.context(), block.memory);
  for (void* memory : outgrown_) server_.library().kvjit_release(server_.context(), memory);
}

const int* MaskRanges::of(const Node& node, kvjit_program* program, const kvjit_attention_call& call,
                          std::string& why) {
  const Key key{node.mask, call.sequences, call.tokens, call.queries};
  if (const auto at = found_.find(key); at != found_.end()) return at->second;
  const Library& library = server_.library();
  kvjit_error error = empty_error();
  if (blocks_.size() <= found_.size()) blocks_.emplace_back();
  Block& block = blocks_[found_.size()];
  if (block.sequences < call.sequences) {
    void* fresh = nullptr;
    const std::size_t bytes = 2 * sizeof(int) * std::size_t(call.sequences);
    if (library.kvjit_allocate(server_.context(), bytes, &fresh, &error) != KVJIT_OK)
      return why = text_of(error), nullptr;
    if (block.memory) outgrown_.push_back(block.memory);
    block = {static_cast<int*>(fresh), call.sequences};
  }
  if (library.kvjit_mask_ranges(program, &call, block.memory, &error) != KVJIT_OK) return why = text_of(error), nullptr;
  return found_[key] = block.memory;
}

void Server::end_requests() {
  const std::lock_guard guard(all_servers().mutex);
  for (const auto& [device, one] : all_servers().by_device) {
    if (!one.server) continue;
    Server& server = *one.server;
    const std::lock_guard own_guard(server.mutex_);
    for (const auto& [key, entry] : server.programs_) server.library_.kvjit_request_cancel(entry.request);
    std::erase_if(server.programs_, [&](const auto& program) {
      if (program.second.answer != Answer::compiling) return false;
      server.library_.kvjit_request_destroy(program.second.request);  // waits until the compile has ended
      return true;
    });
  }
}

Server* Server::of(ggml_backend_dev_t device, std::string& why) {
  const std::lock_guard guard(all_servers().mutex);
  const auto [at, is_new] = all_servers().by_device.try_emplace(device);
  Servers::One& own = at->second;
  if (is_new && !(own.server = open(device, own.why))) say(own.why + "; ggml stays as it is");
  if (!own.server) why = own.why;
  return own.server;
}

Server* Server::open(ggml_backend_dev_t device, std::string& why) {
  const int ordinal = ordinal_of(device);
  const auto refuse = [&](const std::string& reason) { return why = reason, nullptr; };
  if (ordinal < -1) return refuse("the driver does not know this GPU");
  // kvjit reads ordinal 0 as the environment's.
  if (const char* other = std::getenv("KVJIT_DEVICE_ORDINAL"); other && *other && ordinal == 0)
    return refuse("KVJIT_DEVICE_ORDINAL is set, but ggml names the devices");
  std::string missing;
  const Library* const library = Library::open(missing);
  if (!library) return refuse("no libkvjit: " + missing);
  if (library->kvjit_version() / 100 != KVJIT_VERSION_NUMBER / 100)
    return refuse(library->file + " is of another version than the plugin was built for");
  kvjit_context_options options{};
  options.size = sizeof options;
  options.device = ordinal < 0 ? KVJIT_DEVICE_CPU : KVJIT_DEVICE_GPU;
  options.ordinal = std::max(ordinal, 0);
  const std::vector<std::string> files = own_bundles();
  std::vector<const char*> bundles;
  for (const std::string& file : files) bundles.push_back(file.c_str());
  options.bundles = bundles.data(), options.bundle_count = int(bundles.size());
  options.log = [](void*, const char* message) {
    if (std::strncmp(message, "compiling ", 10) != 0) say(message);
  };
  kvjit_context* context = nullptr;
  kvjit_error error = empty_error();
  if (library->kvjit_context_create(&options, &context, &error) != KVJIT_OK) return refuse(text_of(error));
  return new Server(*library, context, ordinal);  // never freed: graphs may hold its programs
}

Server::Key Server::key_of(const Node& node, int queries, const Reading& reading) {
  return {node.k->type,
          node.v->type,
          int(node.k->ne[0]),
          int(node.v->ne[0]),
          node.heads() / node.kv_heads(),
          queries,
          reading.token_heads ? node.kv_heads() : 0,
          reading.token_ranges,
          node.mask != nullptr,
          node.max_bias > 0,
          node.sinks != nullptr,
          node.softcap};
}

void Server::finish(Entry& entry, kvjit_status status, const kvjit_error& error) {
  entry.answer = status == KVJIT_OK ? Answer::ready : Answer::refused;
  if (status != KVJIT_OK) entry.why = text_of(error);
  // An unsupported node is only counted (KVJIT_GGML_STATS). Other failures, such as a missing compiler, are printed.
  if (status != KVJIT_OK && status != KVJIT_UNSUPPORTED) say(entry.name + ": " + entry.why);
  library_.kvjit_request_destroy(entry.request);
  entry.request = nullptr;
  // Handlers run in the reverse order, and the compiler's library, which registers its own, has been loaded by now.
  static const int registered = std::atexit(&Server::end_requests);
  (void)registered;
}

// The caller holds the lock.
Server::Entry& Server::entry_of(const Node& node, int queries, const Reading& reading, bool may_wait) {
  const auto [at, is_new] = programs_.try_emplace(key_of(node, queries, reading));
  Entry& entry = at->second;
  if (entry.answer != Answer::compiling) return entry;
  kvjit_error error = empty_error();
  if (is_new) {
    entry.reading = reading;
    const std::string spec = spec_of(node, queries, reading);
    entry.name =
        fmt::format("{}, {}, heads of {} and {}, {} query heads a KV head, {} queries{}{}",
                    ggml_type_name(node.k->type), ggml_type_name(node.v->type), node.k->ne[0], node.v->ne[0],
                    node.heads() / node.kv_heads(), queries == kAnyQueries ? "any number of" : std::to_string(queries),
                    reading.token_heads ? fmt::format(", {} heads of a token at once", node.kv_heads()) : "",
                    reading.token_ranges ? ", tokens that the mask shows" : "");
    const kvjit_status status = library_.kvjit_program_request(context_, spec.c_str(), "ggml", nullptr, nullptr,
                                                               nullptr, &entry.request, &error);
    if (status != KVJIT_OK) {
      finish(entry, status, error);
      return entry;
    }
  }
  const int patience_ms = may_wait ? -1 : is_new ? kPatienceMs : 0;
  const kvjit_status status = library_.kvjit_request_wait(entry.request, patience_ms, &entry.program, &error);
  if (status != KVJIT_OK || entry.program) finish(entry, status, error);
  return entry;
}

// The program that reads the cache as the policy wants it, once it is ready; else the plain one. Token-major heads are
// refused for many query rows. The caller holds the lock.
Server::Entry& Server::best_entry(const Node& node, bool may_wait) {
  const int queries = node.queries() <= kMostExact ? node.queries() : kAnyQueries;
  Reading reading = queries == kAnyQueries ? Reading{} : policy().reading_of(node);
  if (reading.token_heads && entry_of(node, queries, reading, may_wait).answer == Answer::refused)
    reading.token_heads = false;
  if (reading != Reading{})
    if (Entry& entry = entry_of(node, queries, reading, may_wait); entry.answer == Answer::ready) return entry;
  return entry_of(node, queries, {}, may_wait);
}

Answer Server::ask(const Node& node, bool may_wait, std::string& why) {
  if (why = misfit(node); !why.empty()) return Answer::refused;
  const std::lock_guard guard(mutex_);
  const Entry& entry = best_entry(node, may_wait);
  if (entry.answer == Answer::refused) why = entry.why;
  if (entry.answer == Answer::compiling) why = "a program is being compiled";
  return entry.answer;
}

const float* Server::slopes(const Node& node, std::string& why) {
  const float*& found = slopes_[{node.max_bias, node.heads()}];
  if (found) return found;
  std::vector<float> numbers(std::size_t(node.heads()));
  void* memory = nullptr;
  kvjit_error error = empty_error();
  const std::size_t bytes = numbers.size() * sizeof(float);
  if (library_.kvjit_alibi_slopes(node.max_bias, node.heads(), numbers.data(), &error) != KVJIT_OK ||
      library_.kvjit_allocate(context_, bytes, &memory, &error) != KVJIT_OK ||
      library_.kvjit_copy_to_device(context_, memory, numbers.data(), bytes, &error) != KVJIT_OK)
    return why = text_of(error), nullptr;
  return found = static_cast<const float*>(memory);
}

bool Server::attend(const Node& node, void* stream, Workspace& workspace, MaskRanges& ranges, std::string& why) {
  const std::lock_guard guard(mutex_);
  const Entry& entry = best_entry(node, false);
  if (entry.answer != Answer::ready) return why = "a program is not ready", false;
  for (int first = 0; first < node.queries(); first += kMostQueries) {
    kvjit_attention_call call = call_of(node, first, std::min(node.queries() - first, kMostQueries));
    call.stream = stream;
    if (node.max_bias > 0 && !(call.slopes = slopes(node, why))) return false;
    if (entry.reading.token_ranges && !(call.token_ranges = ranges.of(node, entry.program, call, why))) return false;
    kvjit_error error = empty_error();
    if (library_.kvjit_workspace_bytes(entry.program, &call, &call.workspace_bytes, &error) != KVJIT_OK)
      return why = text_of(error), false;
    call.workspace = workspace.memory(call.workspace_bytes, why);
    if (!call.workspace) return false;
    if (library_.kvjit_attention(entry.program, &call, nullptr, &error) != KVJIT_OK) return why = text_of(error), false;
  }
  stats().served(entry.name);
  return true;
}

}  // namespace kvjit::plugin
