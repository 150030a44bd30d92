// Progress of long work on a terminal: one line at the end of stderr, "12 of 300, 4 min left", and rows above it.
// in_order runs the work on several threads and reports it in order.
// SPDX-License-Identifier: MIT
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace kvjit {

// "12 of 300, 4 min left". The rest takes as long for each piece as those that are done.
std::string left_text(std::size_t done, std::size_t count, double seconds);

// Prints text whose end is the end of a line, above the line of progress if there is one.
void print_above(std::FILE* file, const std::string& text);

// The line of progress, from construction to destruction. There is at most one at a time.
class Progress {
 public:
  // is_shown: whether stderr is a terminal that shall have the line
  Progress(std::size_t count, bool is_shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::size_t done, const std::string& what = "");                // what: the piece that was done last
  void show(std::size_t done, std::size_t count, const std::string& what);  // the count is known only now

 private:
  std::size_t count_;
  bool is_shown_;
  std::chrono::steady_clock::time_point begin_;
};

// One line of a table whose widths are known before its rows; a negative width aligns to the left.
std::string fixed_row(const std::vector<std::string>& cells, const std::vector<int>& widths);

// Calls work(0) .. work(count - 1) on at most `threads` threads, and done(i) in the order of i, one at a time, as soon
// as work(0) .. work(i) have ended. A piece whose work returns false is not done, nor is any after it. Once is_stopped
// returns true no further piece begins. Returns the number of pieces that were done.
std::size_t in_order(std::size_t count, unsigned threads, const std::function<bool(std::size_t)>& work,
                     const std::function<void(std::size_t)>& done, const std::function<bool()>& is_stopped);

}  // namespace kvjit
