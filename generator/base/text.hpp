// Text: the text of a kernel, a hundred KB that never changes once it is made. Copies share it, so that who has one
// kernel twice (a source and what a context keeps of it) has its text once, and sees that two are one without reading
// them.
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
  // Copies of one text: equal, and known to be at the cost of a comparison of pointers.
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
