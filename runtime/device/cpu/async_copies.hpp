// Copies to shared memory on the CPU back-end: they land as late as the rules allow. Functions that return text say
// which rule was broken, or nothing.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace kvjit {

// A lane's asynchronous copies (templates/device/simt.cuh), in groups; they land when they are waited for.
class CopyQueue {
 public:
  std::string add(void* to, const void* from, int bytes, int valid);
  void commit() { groups_.push_back(pending_.size()); }
  std::string wait(int groups_left);
  std::size_t pending() const { return pending_.size(); }
  void begin_block() { groups_.clear(); }  // committed groups without a copy may be left over; copies may not

 private:
  struct Copy {
    unsigned char* to;
    const unsigned char* from;
    int bytes, valid;
  };
  std::vector<Copy> pending_;
  std::vector<std::size_t> groups_;  // of each committed group: where it ends in `pending_`
};

// The barriers of bulk copies (templates/device/bulk_copy.cuh), of one block. Copies spoil what they will overwrite as
// soon as they are asked for, and land when a phase that announced them is waited for: as early and as late as the
// rules allow. Opening and closing a barrier spoils its bytes.
class BulkBarriers {
 public:
  std::string open(void* at, unsigned arrivals);
  std::string close(void* at);
  std::string arrive(void* at, unsigned bytes);
  std::string copy(void* to, const void* from, unsigned bytes, void* at);
  std::string end_block();  // all are gone then

  bool is_open(void* at) const { return barriers_.count(at) != 0; }
  // Whether the phase of that parity is over; lets copies land that it waits for.
  bool is_over(void* at, unsigned parity);

 private:
  struct Copy {
    void* to;
    const void* from;
    unsigned bytes;
  };
  struct Barrier {
    unsigned arrivals = 0, missing = 0, phase = 0;
    unsigned long long announced = 0, asked = 0;  // bytes, in this phase
    std::vector<Copy> copies;
    void settle();
  };
  std::map<void*, Barrier> barriers_;
};

}  // namespace kvjit
