// NumPy .npy files: see npy.hpp. A file (numpy.lib.format) has "\x93NUMPY", major, minor, header length (u16 in version
// 1, u32 in version 2), then a Python dict literal with descr, fortran_order and shape, then the elements.
// SPDX-License-Identifier: MIT
#include "tools/io/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>

#include "generator/formats/reference_codec.hpp"
#include "runtime/base/input_file.hpp"
#include "tools/io/files.hpp"

namespace kvjit {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie");

struct TypeRow {
  NpyType type;
  const char* name;
  const char* descr;
  int bytes;
};
constexpr TypeRow kTypes[] = {{NpyType::f16, "f16", "<f2", 2},
                              {NpyType::f32, "f32", "<f4", 4},
                              {NpyType::f64, "f64", "<f8", 8},
                              {NpyType::i8, "i8", "|i1", 1}};
constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMaxRank = 8;

const TypeRow& row_of(NpyType type) { return kTypes[static_cast<int>(type)]; }

// Returns the text after "'key':", without leading blanks; empty if the key is absent.
std::string_view after_key(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{}{}{}", quote, key, quote);
    const std::size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = header.substr(at + quoted.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t:"), rest.size()));
    return rest;
  }
  return {};
}

// Reads the numbers of "(2, 1024, 128)...", "(5,)..." or "()...". Returns false if the text is anything else or the
// product of the numbers overflows.
bool parse_shape(std::string_view text, std::vector<long long>& shape, long long& count) {
  count = 1;
  if (text.empty() || text[0] != '(') return false;
  text.remove_prefix(1);
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) return false;
    if (text[0] == ')') return true;
    long long extent = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 0 || shape.size() == kMaxRank) return false;
    if (__builtin_mul_overflow(count, extent, &count)) return false;
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

}  // namespace

const char* to_string(NpyType type) { return row_of(type).name; }

long long Npy::count() const { return static_cast<long long>(bytes.size()) / row_of(type).bytes; }

std::string Npy::shape_text() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<float> Npy::floats() const {
  std::vector<float> values(static_cast<std::size_t>(count()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint8_t* at = bytes.data() + i * static_cast<std::size_t>(row_of(type).bytes);
    const auto load = [at](auto number) { return std::memcpy(&number, at, sizeof number), number; };
    switch (type) {
      case NpyType::f16:
        values[i] = float_from_f16(load(std::uint16_t{}));
        break;
      case NpyType::f32:
        values[i] = load(float{});
        break;
      case NpyType::f64:
        values[i] = static_cast<float>(load(double{}));
        break;
      case NpyType::i8:
        values[i] = load(std::int8_t{});
        break;
    }
  }
  return values;
}

Result<Npy> parse_npy(std::vector<std::uint8_t> bytes, const std::string& file) {
  const auto refuse = [&](const std::string& what) {
    return fail(Code::bad_input, fmt::format("{}: {}", file, what), {},
                {"accepted: .npy version 1 or 2, little-endian, C order, f16 (<f2), f32 (<f4), f64 (<f8) or "
                 "i8 (|i1)"});
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.substr(0, kMagic.size()) != kMagic)
    return refuse("is not a .npy file: its first bytes are not \"\\x93NUMPY\"");
  if (bytes.size() < 12) return refuse(fmt::format("is cut off inside its header, after {} bytes", bytes.size()));
  const int version = bytes[6];
  if (version != 1 && version != 2) return refuse(fmt::format("is a .npy file of version {}.{}", bytes[6], bytes[7]));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::uint32_t header_length = 0;
  std::memcpy(&header_length, bytes.data() + 8, length_bytes);
  const std::size_t data_at = 8 + length_bytes + header_length;
  if (data_at > bytes.size())
    return refuse(fmt::format("is cut off: its header needs {} bytes, the file has {}", data_at, bytes.size()));
  const std::string_view header = text.substr(8 + length_bytes, header_length);

  Npy npy;
  const std::string_view descr = after_key(header, "descr");
  const TypeRow* found = nullptr;
  for (const TypeRow& row : kTypes)
    if (descr.size() >= 5 && descr.substr(1, 3) == row.descr && descr[4] == descr[0]) found = &row;
  if (descr.empty()) return refuse("has a header that names no type of its elements ('descr')");
  if (!found)
    return refuse(fmt::format("has elements of type {}", descr.substr(0, std::min<std::size_t>(descr.find(','), 40))));
  npy.type = found->type;
  if (after_key(header, "fortran_order").substr(0, 5) != "False")
    return refuse("is in Fortran order: save it with numpy.ascontiguousarray");
  long long count = 0;
  if (!parse_shape(after_key(header, "shape"), npy.shape, count) ||
      count > std::numeric_limits<long long>::max() / found->bytes)
    return refuse(fmt::format("has a shape that cannot be read or held (at most {} dimensions)", kMaxRank));
  const std::size_t have = bytes.size() - data_at,
                    need = static_cast<std::size_t>(count) * static_cast<std::size_t>(found->bytes);
  if (have != need)
    return refuse(fmt::format("holds {} bytes of elements, but shape {} of {} takes {}", have, npy.shape_text(),
                              found->name, need));
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(data_at));
  npy.bytes = std::move(bytes);
  return npy;
}

Result<Npy> read_npy(const std::string& file) {
  KV_TRY(bytes, read_bytes(file));
  return parse_npy(std::move(bytes), file);
}

std::vector<std::uint8_t> npy_bytes(NpyType type, const std::vector<long long>& shape,
                                    std::span<const std::uint8_t> elements) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", row_of(type).descr,
                                   fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  // The elements start at a multiple of 64; the header ends with a newline.
  header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
  std::string start(kMagic);
  start.append({1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)});
  start += header;
  std::vector<std::uint8_t> bytes(start.size() + elements.size());
  std::copy(elements.begin(), elements.end(), std::copy(start.begin(), start.end(), bytes.begin()));
  return bytes;
}

Result<void> write_npy(const std::string& file, const std::vector<long long>& shape, std::span<const float> values) {
  return write_bytes(file, npy_bytes(NpyType::f32, shape,
                                     {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()}));
}

}  // namespace kvjit
