// The line of progress and work in order: see progress.hpp.
// SPDX-License-Identifier: MIT
#include "tools/io/progress.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "runtime/base/parallel.hpp"

namespace kvjit {
namespace {

constexpr const char* kClearLine = "\r\033[K";

// A write that fails is no error of its own: Cli::close_output notices that of stdout.
void write(std::FILE* file, const std::string& text) { std::fwrite(text.data(), 1, text.size(), file); }

// The line of progress belongs to the process, as its terminal does.
std::mutex line_mutex;
std::string line;  // what stands there now; empty: nothing

}  // namespace

std::string left_text(std::size_t done, std::size_t count, double seconds) {
  const std::string text = fmt::format("{} of {}", done, count);
  if (done == 0 || done >= count) return text;
  const double left = seconds / static_cast<double>(done) * static_cast<double>(count - done);
  if (left < 90) return fmt::format("{}, {:.0f} s left", text, left);
  return left < 90 * 60 ? fmt::format("{}, {:.0f} min left", text, left / 60)
                        : fmt::format("{}, {:.1f} h left", text, left / 3600);
}

void print_above(std::FILE* file, const std::string& text) {
  const std::lock_guard guard(line_mutex);
  if (line.empty()) {
    write(file, text);
    return;
  }
  write(stderr, kClearLine);
  std::fflush(stderr);
  write(file, text);
  std::fflush(file);
  write(stderr, line);
}

Progress::Progress(std::size_t count, bool is_shown)
    : count_(count), is_shown_(is_shown), begin_(std::chrono::steady_clock::now()) {
  show(0);
}

Progress::~Progress() {
  const std::lock_guard guard(line_mutex);
  if (is_shown_) write(stderr, kClearLine);
  line.clear();
}

void Progress::show(std::size_t done, std::size_t count, const std::string& what) {
  count_ = count;
  show(done, what);
}

void Progress::show(std::size_t done, const std::string& what) {
  if (!is_shown_) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const std::lock_guard guard(line_mutex);
  line = left_text(done, count_, seconds);
  if (!what.empty()) line += fmt::format(": {:.60}", what);
  write(stderr, kClearLine + line);
  std::fflush(stderr);
}

std::string fixed_row(const std::vector<std::string>& cells, const std::vector<int>& widths) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const int width = i < widths.size() ? widths[i] : 0;
    text += width < 0 ? fmt::format("{:<{}}  ", cells[i], -width) : fmt::format("{:>{}}  ", cells[i], width);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

std::size_t in_order(std::size_t count, unsigned threads, const std::function<bool(std::size_t)>& work,
                     const std::function<void(std::size_t)>& done, const std::function<bool()>& is_stopped) {
  std::vector<char> is_done(count, 0);
  std::size_t reported = 0;
  std::mutex mutex;
  std::atomic<bool> has_failed = false;
  in_parallel(count, threads, [&](std::size_t i) {
    if (has_failed || is_stopped()) return;
    if (!work(i)) {
      has_failed = true;
      return;
    }
    const std::lock_guard guard(mutex);
    is_done[i] = 1;
    for (; reported < count && is_done[reported]; ++reported) done(reported);
  });
  return reported;
}

}  // namespace kvjit
