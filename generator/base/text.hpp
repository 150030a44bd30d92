// Text: the text of a kernel, about a hundred KB that never change. Copies share the bytes. So a kernel that exists
// twice, as a source and in a context, has its text in memory once, and comparing the two copies reads no byte.
// SPDX-License-Identifier: MIT
#pragma once
#include <memory>
#include <string>
#include <utility>

namespace kvjit {

class Text {
 public:
  Text() = default;
  Text(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  Text(const char* text) : Text(std::string(text)) {}

  const std::string& str() const { return text_ ? *text_ : none(); }
  std::size_t size() const { return str().size(); }
  // Whether both are copies of one text, by a comparison of pointers. Equal texts need not be copies.
  bool is_copy_of(const Text& other) const { return text_ == other.text_; }

  friend bool operator==(const Text& a, const Text& b) { return a.is_copy_of(b) || a.str() == b.str(); }
  friend bool operator==(const Text& a, const std::string& b) { return a.str() == b; }

 private:
  static const std::string& none() {
    static const std::string empty;
    return empty;
  }
  std::shared_ptr<const std::string> text_;
};

}  // namespace kvjit
