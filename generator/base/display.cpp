// Escapes and cuts what a message shows: see display.hpp.
// SPDX-License-Identifier: MIT
#include "generator/base/display.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace kvjit {
namespace {

constexpr std::string_view kGap = "...";
constexpr std::size_t kShownLines = 2000;  // a compiler's log fits, a text of megabytes does not

// One character of a text: a code point of UTF-8, or one byte that is none.
struct Character {
  std::size_t bytes = 1;
  std::uint32_t code = 0;
  bool is_utf8 = false;
};

// The character at the start of `text`, which is not empty. Overlong forms, surrogates and numbers above 10FFFF are no
// UTF-8 (RFC 3629).
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, lead, true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  const Character none{1, lead, false};
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return none;
  std::uint32_t code = lead & (0x7F >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return none;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return none;
  return {bytes, code, true};
}

// Whether a terminal could take the code point for a command: C0, DEL, C1, line and paragraph separators, and the
// overrides of writing direction (Unicode, UAX #9).
bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// The character as it is shown. A tab is one blank, so that columns can be counted.
std::string shown(std::string_view text, const Character& character) {
  if (!character.is_utf8) return fmt::format("\\x{:02x}", character.code);
  if (character.code == '\t') return " ";
  if (!is_control(character.code)) return std::string(text.substr(0, character.bytes));
  return character.code < 0x100 ? fmt::format("\\x{:02x}", character.code) : fmt::format("\\u{{{:x}}}", character.code);
}

std::size_t columns_of(std::string_view shown_text) {
  const auto is_first = [](char c) { return (c & 0xC0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(shown_text.begin(), shown_text.end(), is_first));
}

// The shown form of `text` up to `most` columns, and the bytes of `text` that it stands for.
struct Part {
  std::string shown;
  std::size_t bytes = 0, columns = 0;
};
Part first_part(std::string_view text, std::size_t most) {
  Part part;
  while (part.bytes < text.size()) {
    const std::string_view rest = text.substr(part.bytes);
    const Character character = first_character(rest);
    const std::string next = shown(rest, character);
    const std::size_t columns = columns_of(next);
    if (part.columns + columns > most) break;
    part.shown += next, part.bytes += character.bytes, part.columns += columns;
  }
  return part;
}

// The start of the character that ends before byte `end`, which is above 0.
std::size_t character_before(std::string_view text, std::size_t end) {
  for (std::size_t bytes = std::min<std::size_t>(end, 4); bytes > 1; --bytes) {
    const Character character = first_character(text.substr(end - bytes, bytes));
    if (character.is_utf8 && character.bytes == bytes) return end - bytes;
  }
  return end - 1;
}

// Likewise the last `most` columns.
Part last_part(std::string_view text, std::size_t most) {
  std::size_t begin = text.size(), columns = 0;
  while (begin > 0) {
    const std::size_t before = character_before(text, begin);
    const std::string_view character = text.substr(before, begin - before);
    columns += columns_of(shown(character, first_character(character)));
    if (columns > most) break;
    begin = before;
  }
  return first_part(text.substr(begin), most);
}

}  // namespace

std::string displayed(std::string_view text, std::size_t most) {
  Part whole = first_part(text, most);
  if (whole.bytes == text.size()) return std::move(whole.shown);
  const Part start = first_part(text, most - most / 3), end = last_part(text.substr(start.bytes), most / 3);
  return fmt::format("{} ...{} bytes... {}", start.shown, text.size() - start.bytes - end.bytes, end.shown);
}

std::string displayed_lines(std::string_view text, std::size_t most) {
  std::string out;
  for (std::size_t lines = 0;; ++lines) {
    const std::size_t end = text.find('\n');
    if (lines == kShownLines) return out + fmt::format("...{} bytes...", text.size());
    out += displayed(text.substr(0, end), most);
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string excerpt_with_caret(std::string_view line, int column, std::size_t most) {
  std::size_t at = 0;  // the byte below which the caret stands
  for (int i = 1; i < column && at < line.size(); ++i) at += first_character(line.substr(at)).bytes;
  const std::string_view before = line.substr(0, at), after = line.substr(at);
  // Two thirds of the columns show what stands before the caret, or more if what follows is short.
  const std::size_t space = most - 2 * kGap.size();
  const Part following = first_part(after, space);
  const Part left = last_part(before, std::max(space - space / 3, space - following.columns));
  const Part right = first_part(after, space - left.columns);
  const std::string_view cut_left = left.bytes < before.size() ? kGap : "",
                         cut_right = right.bytes < after.size() ? kGap : "";
  return fmt::format("{}{}{}{}\n{:{}}^\n", cut_left, left.shown, right.shown, cut_right, "",
                     cut_left.size() + left.columns);
}

}  // namespace kvjit
