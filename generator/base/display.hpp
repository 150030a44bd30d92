// Shows bytes from outside in messages: a name, a line of a file, an error's text. Such bytes may hold control
// characters, which a terminal obeys, and a line may have megabytes. `displayed` writes every byte that is not
// printable as an escape and leaves out the middle of what is too long, so that a message is valid UTF-8 and short.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace kvjit {

// Columns of a shown line if the width of the terminal is not known.
inline constexpr std::size_t kShownColumns = 120;

// `text` with control characters, bidirectional overrides and bytes that are no UTF-8 as escapes (\x1b, \u{202e}). If
// it takes more than `most` columns, the middle is replaced by the number of its bytes.
std::string displayed(std::string_view text, std::size_t most = kShownColumns);
// The same for each line of `text`. Line breaks stay, and lines beyond the 2000th are left out.
std::string displayed_lines(std::string_view text, std::size_t most);

// The line of a file with a caret below the character `column` (from 1, counted as the TOML parser counts: code
// points), both ended by newlines. Of a line of more than `most` columns the part around the caret is shown.
std::string excerpt_with_caret(std::string_view line, int column, std::size_t most = kShownColumns);

}  // namespace kvjit
