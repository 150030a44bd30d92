// Reads and copies safetensors files: see safetensors.hpp. Limits and checks are those of the format's description
// (huggingface/safetensors, README "Format").
// SPDX-License-Identifier: MIT
#include "tools/io/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/input_file.hpp"

namespace kvjit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the header length is read as it lies");

constexpr std::uint64_t kLengthBytes = 8, kMaxHeader = 100'000'000;

// Bytes of an element; 0 for a type that is not listed, whose shape is not checked.
int element_bytes(const std::string& dtype) {
  constexpr std::array<std::pair<const char*, int>, 15> kTypes = {{{"F64", 8},
                                                                   {"F32", 4},
                                                                   {"F16", 2},
                                                                   {"BF16", 2},
                                                                   {"I64", 8},
                                                                   {"I32", 4},
                                                                   {"I16", 2},
                                                                   {"I8", 1},
                                                                   {"U64", 8},
                                                                   {"U32", 4},
                                                                   {"U16", 2},
                                                                   {"U8", 1},
                                                                   {"BOOL", 1},
                                                                   {"F8_E4M3", 1},
                                                                   {"F8_E5M2", 1}}};
  for (const auto& [name, bytes] : kTypes)
    if (dtype == name) return bytes;
  return 0;
}

// Returns why an entry of the header cannot be a tensor of a file with `data` bytes behind the header, or "".
std::string read_entry(const Json& entry, std::uint64_t data, Tensor& tensor) {
  const auto is_count = [](const Json& j) { return j.is_number_unsigned(); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
    return "is not an object with dtype, shape and data_offsets";
  const Json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!dtype.is_string()) return "has a dtype that is not a string";
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_count))
    return "has a shape that is not a list of sizes";
  if (!offsets.is_array() || offsets.size() != 2 || !std::all_of(offsets.begin(), offsets.end(), is_count))
    return "has data_offsets that are not two positions";
  tensor.dtype = dtype.get<std::string>();
  tensor.begin = offsets[0].get<std::uint64_t>();
  tensor.end = offsets[1].get<std::uint64_t>();
  if (tensor.begin > tensor.end || tensor.end > data)
    return fmt::format("lies at {}..{}, but the file has {} bytes of data", tensor.begin, tensor.end, data);
  std::uint64_t bytes = static_cast<std::uint64_t>(element_bytes(tensor.dtype));
  const bool is_known = bytes != 0;
  for (const Json& item : shape) {
    const auto size = item.get<std::uint64_t>();
    if (size > static_cast<std::uint64_t>(std::numeric_limits<long long>::max()) ||
        (size != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / size))
      return "has a shape that no memory holds";
    tensor.shape.push_back(static_cast<long long>(size));
    bytes *= size;
  }
  if (is_known && bytes != tensor.bytes())
    return fmt::format("has shape {} of {}, {} bytes, but holds {}", tensor.shape_text(), tensor.dtype, bytes,
                       tensor.bytes());
  return "";
}

// Tensors must lie one behind the other and fill the data, because bytes that no tensor owns could hide anything.
std::string check_order(const std::map<std::string, Tensor>& tensors, std::uint64_t data) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, tensor] : tensors) ranges.emplace_back(tensor.begin, tensor.end);
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at)
      return fmt::format("tensors {} at byte {} of the data", begin < at ? "overlap" : "leave a hole",
                         std::min(at, begin));
    at = end;
  }
  return at == data ? "" : fmt::format("{} bytes after the last tensor", data - at);
}

}  // namespace

std::string Tensor::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<const Tensor*> Safetensors::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return &found->second;
  std::vector<std::string> names, notes;
  for (const auto& [other, tensor] : tensors) names.push_back(other);
  if (const std::string guess = closest(name, names); !guess.empty())
    notes.push_back(fmt::format("did you mean '{}'?", guess));
  return fail(Code::bad_input, fmt::format("{}: has no tensor '{}'", file, name), {}, notes);
}

Result<Safetensors> open_safetensors(const std::string& file) {
  const auto refuse = [&](const std::string& what) { return fail(Code::bad_input, fmt::format("{}: {}", file, what)); };
  KV_TRY(opened_file, open_input(file, std::numeric_limits<std::uint64_t>::max()));
  const File& in = opened_file.file;
  const std::uint64_t size = opened_file.size;
  std::uint64_t length = 0;
  if (size < kLengthBytes || !read_at(in, 0, {reinterpret_cast<std::uint8_t*>(&length), kLengthBytes}))
    return refuse("is too short for a safetensors file");
  if (length > kMaxHeader || length > size - kLengthBytes)
    return refuse(
        fmt::format("states a header of {} bytes; the file has {}, the limit is {}", length, size, kMaxHeader));
  std::string header(length, '\0');
  if (!read_at(in, kLengthBytes, {reinterpret_cast<std::uint8_t*>(header.data()), header.size()}))
    return refuse("ended inside its header");

  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key && !seen.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  const Json json = Json::parse(header, watch, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return refuse("has a header that is not a JSON object");
  if (!twice.empty()) return refuse(fmt::format("names '{}' twice", twice));
  Safetensors opened{file, {}, {}};
  const std::uint64_t data = size - kLengthBytes - length;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items())
        if (value.is_string()) opened.metadata[key] = value;
      continue;
    }
    if (const std::string wrong = read_entry(entry, data, opened.tensors[name]); !wrong.empty())
      return refuse(fmt::format("'{}' {}", name, wrong));
  }
  if (const std::string wrong = check_order(opened.tensors, data); !wrong.empty()) return refuse(wrong);
  for (auto& [name, tensor] : opened.tensors)
    tensor.begin += kLengthBytes + length, tensor.end += kLengthBytes + length;
  return opened;
}

Result<std::vector<std::uint8_t>> read_tensor(const Safetensors& from, const Tensor& tensor) {
  std::vector<std::uint8_t> bytes(tensor.bytes());
  KV_TRY(opened, open_input(from.file, std::numeric_limits<std::uint64_t>::max()));
  if (!read_at(opened.file, tensor.begin, bytes))
    return fail(Code::bad_input, fmt::format("{}: cannot be read at byte {}", from.file, tensor.begin));
  return bytes;
}

Result<void> write_changed(const Safetensors& from, const std::map<std::string, std::vector<std::uint8_t>>& changed,
                           const std::string& out) {
  const std::string beside = fmt::format("{}.{}.tmp", out, getpid());
  const auto refused = [&](const std::string& why) {
    std::error_code ignored;
    fs::remove(beside, ignored);
    return fail(Code::environment, fmt::format("{}: cannot be written: {}", out, why));
  };
  std::error_code problem;
  if (fs::exists(out, problem) && !fs::is_regular_file(out, problem))
    return fail(Code::bad_input, fmt::format("{}: is not a regular file", out));
  fs::copy_file(from.file, beside, problem);
  if (problem) return refused(problem.message());
  fs::permissions(beside, fs::perms::owner_write, fs::perm_options::add, problem);
  std::fstream file(beside, std::ios::binary | std::ios::in | std::ios::out);
  for (const auto& [name, bytes] : changed) {
    KV_TRY(tensor, from.tensor(name));
    if (bytes.size() != tensor->bytes())
      return refused(fmt::format("'{}' has {} bytes, not {}", name, tensor->bytes(), bytes.size()));
    file.seekp(static_cast<std::streamoff>(tensor->begin));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  file.close();
  if (!file) return refused(std::strerror(errno));
  fs::rename(beside, out, problem);
  if (problem) return refused(problem.message());
  return {};
}

}  // namespace kvjit
