// A Footprint is the memory that a call reads or writes as one tensor or one plane of a cache: equal rows of bytes,
// repeated along up to three dimensions. A call that writes compares footprints before it launches anything. Internal
// to runtime/.
// SPDX-License-Identifier: MIT
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "generator/base/result.hpp"

namespace kvjit {

__extension__ typedef __int128 Wide;  // sums of products of 64-bit strides and counts

// stride: bytes from one of `count` equal parts to the next.
struct Dimension {
  Wide stride = 0;
  long long count = 1;
};

// The name of memory in messages: "out", or "k.codes". Every call names its tensors and hardly any has a message, so
// the text is made for a message alone. The characters must outlive the name.
struct MemoryName {
  const char *of, *part;  // part: null if there is none
  MemoryName(const char* memory, const char* its_part = nullptr) : of(memory), part(its_part) {}
  std::string text() const { return part ? std::string(of) + "." + part : of; }
};

class Footprint {
 public:
  // data: the row of index 0 in all dimensions, `first` bytes further on.
  Footprint(MemoryName name, const void* data, Wide row_bytes, Wide first, std::initializer_list<Dimension> dimensions);

  std::string name() const { return name_.text(); }
  // From the first byte to the last.
  Wide bytes() const { return bytes_from(0); }
  // Whether two rows may share a byte. Dimensions that are nested in each other never do; other strides count as if
  // they did.
  bool overlaps_itself() const;
  // Whether a row of one and a row of the other may share a byte. Footprints that take turns in memory by the same
  // strides, as parts of one block for each sequence, share none.
  friend bool overlap(const Footprint& a, const Footprint& b);

 private:
  MemoryName name_;
  Wide begin_ = 0, row_bytes_ = 0;           // begin_: address of the first byte
  std::array<Dimension, 3> dimensions_{};    // those of more than one part, the largest stride first; none is negative
  std::size_t used_ = 0;                     // entries of dimensions_
  bool repeats_ = false;                     // a dimension has stride 0: several rows are the same bytes
  Wide bytes_from(std::size_t level) const;  // of one part, without the dimensions before `level`
  static bool overlap(const Footprint& a, std::size_t level, const Footprint& b, std::size_t other_level,
                      Wide distance);
};

// Fails with bad_input if the footprints overlap. `written` is memory that the call writes.
Result<void> check_apart(const Footprint& written, const Footprint& other);
Result<void> check_apart(const Footprint& written, const std::vector<Footprint>& others);

}  // namespace kvjit
