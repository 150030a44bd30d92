// Element and Layout: the number types of tensors and the layouts of caches. Enumerators have the names that specs use.
// SPDX-License-Identifier: MIT
#pragma once
#include <string_view>

namespace kvjit {

// rows: whole blocks in token rows; planar: a plane of codes and a plane of scales; paged: a pool of pages.
enum class Layout { rows, planar, paged };
enum class Element { f16, bf16, f32, e4m3, e5m2, e4m3b15 };  // those of 8 bits occur in caches only

std::string_view to_string(Layout layout);
std::string_view to_string(Element element);

// Bytes of one element of queries and outputs, which are f16, bf16 or f32.
constexpr int wide_element_bytes(Element element) { return element == Element::f32 ? 4 : 2; }

}  // namespace kvjit
