// runtime/compile/nvrtc_compiler.cpp: kernel text becomes a cubin or PTX; refusals carry NVRTC's log. Cases that need
// NVRTC pass without it and print the reason.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/compile/compiler.hpp"

using namespace kvjit;

namespace {

Source sample(const std::string& body = "out[threadIdx.x] = threadIdx.x;") {
  Source source;
  source.name = "sample";
  source.entry = "kv_sample";
  source.arch = "sm_90a";
  source.text = "extern \"C\" __global__ void kv_sample(int* out) { " + body + " }\n";
  return source;
}

// Returns null on a machine without NVRTC, and prints the reason.
std::shared_ptr<Compiler> nvrtc(ArtefactKind kind = ArtefactKind::cubin) {
  auto opened = open_nvrtc(Options::from_environment(), kind);
  if (opened) return *opened;
  MESSAGE("skipped: " << render(opened.error()));
  return nullptr;
}

// Returns null as well if the library cannot stop a compile.
std::shared_ptr<Compiler> stoppable_nvrtc() {
  const auto compiler = nvrtc();
  if (!compiler || compiler->can_stop()) return compiler;
  MESSAGE("skipped: " << compiler->identity() << " has no nvrtcSetFlowCallback, as 12.9 and later have");
  return nullptr;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a missing NVRTC names what was searched") {
  Options options;
  options.nvrtc_library = "/nowhere/libnvrtc.so";
  const auto opened = open_nvrtc(options);
  REQUIRE(!opened);
  CHECK(opened.error().code == Code::environment);
  CHECK(contains(render(opened.error()), "the loader finds no /nowhere/libnvrtc.so"));
  CHECK(contains(render(opened.error()), "KVJIT_NVRTC"));
}

TEST_CASE("a library that is not NVRTC is named with what it lacks") {
  Options options;
  options.nvrtc_library = "libm.so.6";
  const auto opened = open_nvrtc(options);
  REQUIRE(!opened);
  CHECK(opened.error().code == Code::environment);
  CHECK(contains(opened.error().message, "has no nvrtc"));
}

TEST_CASE("a kernel becomes a cubin with the assembler's numbers") {
  const auto compiler = nvrtc();
  if (!compiler) return;
  CHECK(contains(compiler->identity(), "nvrtc 1"));
  CHECK(contains(compiler->identity(), ":"));
  const auto artefact = compiler->compile(sample());
  REQUIRE(artefact);
  CHECK(artefact->kind == ArtefactKind::cubin);
  REQUIRE(artefact->bytes.size() > 64);
  CHECK(std::memcmp(artefact->bytes.data(), "\177ELF", 4) == 0);
  CHECK(artefact->registers > 0);
  CHECK(artefact->registers < 64);
  CHECK(artefact->stack_bytes == 0);
  CHECK(artefact->spill_store_bytes == 0);
  CHECK(artefact->compile_ms > 0);
}

TEST_CASE("a stack frame and spills are seen") {
  const auto compiler = nvrtc();
  if (!compiler) return;
  const auto stack = compiler->compile(
      sample("int a[64]; for (int i = 0; i < 64; ++i) a[out[i] & 63] = i; out[0] = a[out[70] & 63];"));
  REQUIRE(stack);
  CHECK(stack->stack_bytes == 256);

  Source crowded = sample();
  crowded.text =
      "extern \"C\" __global__ void __launch_bounds__(1024, 2) kv_sample(float* out) { float a[96];\n"
      "#pragma unroll\nfor (int i = 0; i < 96; ++i) a[i] = out[i * 1024 + threadIdx.x];\n__syncthreads();\n"
      "#pragma unroll\nfor (int i = 0; i < 96; ++i) out[i * 1024 + threadIdx.x] = a[i] + a[(i * 7 + 5) % "
      "96];\n}";
  const auto spilled = compiler->compile(crowded);
  REQUIRE(spilled);
  CHECK(spilled->registers == 32);
  CHECK(spilled->spill_store_bytes > 0);
  CHECK(spilled->spill_load_bytes > 0);
}

TEST_CASE("PTX is text for the virtual arch") {
  const auto compiler = nvrtc(ArtefactKind::ptx);
  if (!compiler) return;
  const auto artefact = compiler->compile(sample());
  REQUIRE(artefact);
  CHECK(artefact->kind == ArtefactKind::ptx);
  const std::string text(artefact->bytes.begin(), artefact->bytes.end());
  CHECK(contains(text, ".target sm_90a"));
  CHECK(contains(text, ".entry kv_sample"));
}

TEST_CASE("a refused kernel carries NVRTC's log") {
  const auto compiler = nvrtc();
  if (!compiler) return;
  const auto artefact = compiler->compile(sample("int unused; out[0] = not_declared;"));
  REQUIRE(!artefact);
  CHECK(artefact.error().code == Code::compile);
  CHECK_FALSE(contains(render(artefact.error()), "warning"));
  CHECK(contains(render(artefact.error()), "not_declared"));
  CHECK(contains(render(artefact.error()), "sample.cu"));

  std::string many;
  for (int i = 0; i < 90; ++i) many += "undeclared_" + std::to_string(i) + "();\n";
  const auto long_log = compiler->compile(sample(many));
  REQUIRE(!long_log);
  REQUIRE(long_log.error().notes.size() == 41);
  CHECK(contains(long_log.error().notes.back(), "more bytes of log"));
}

TEST_CASE("NVRTC is stopped on the way: it does not get as far as the error in the text") {
  const auto compiler = stoppable_nvrtc();
  if (!compiler) return;
  std::stop_source stop;
  const Source broken = sample("out[0] = not_declared;");
  CHECK(compiler->compile(broken, stop.get_token()).error().code == Code::compile);
  stop.request_stop();
  const auto stopped = compiler->compile(broken, stop.get_token());
  REQUIRE(!stopped);
  CHECK(stopped.error().code == Code::cancelled);
  CHECK(compiler->compile(sample(), stop.get_token()).error().code == Code::cancelled);
}

TEST_CASE(
    "NVRTC is stopped in the middle of a compile: it does not get as far as the error that the assembler finds last") {
  const auto compiler = stoppable_nvrtc();
  if (!compiler) return;
  std::string body;
  for (int i = 0; i < 3000; ++i) {
    const std::string at = std::to_string(i), from = std::to_string(i * 7 % 3000);
    body += "out[" + at + "] = __popc(out[" + from + "]) * out[" + from + "];\n";
  }
  const Source slow = sample(body + "asm volatile(\"no_instruction;\");");
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(compiler->compile(slow).error().code == Code::compile);
  const auto whole = std::chrono::steady_clock::now() - begin;
  Code got = Code::compile;
  // On a busy machine the stop request may come too late, so try again.
  for (int attempt = 0; attempt < 4 && got == Code::compile; ++attempt) {
    std::stop_source stop;
    std::thread canceller([&] {
      std::this_thread::sleep_for(whole / 3);
      stop.request_stop();
    });
    got = compiler->compile(slow, stop.get_token()).error().code;
    canceller.join();
  }
  CHECK(got == Code::cancelled);
}

TEST_CASE("an arch that NVRTC does not know is unsupported, with the list") {
  const auto compiler = nvrtc();
  if (!compiler) return;
  REQUIRE(!compiler->archs().empty());
  Source source = sample();
  source.arch = "sm_999a";
  const auto artefact = compiler->compile(source);
  REQUIRE(!artefact);
  CHECK(artefact.error().code == Code::unsupported);
  CHECK(contains(artefact.error().message, "sm_999a is not known to NVRTC"));
  CHECK(contains(artefact.error().message, compiler->archs().front() + ", "));
  for (const auto& arch : compiler->archs()) {
    source.arch = arch;
    CHECK(compiler->compile(source).has_value());
  }
}

TEST_CASE("options are known without the library, and hold no path") {
  const auto cubin = nvrtc_options(sample(), ArtefactKind::cubin);
  CHECK(cubin[0] == "--gpu-architecture=sm_90a");
  CHECK(nvrtc_options(sample(), ArtefactKind::ptx)[0] == "--gpu-architecture=compute_90a");
  for (const auto& option : cubin) CHECK(!contains(option, "/"));
  if (const auto compiler = nvrtc()) CHECK(compiler->options(sample()) == cubin);
}

TEST_CASE("threads compile at the same time, to the same bytes") {
  const auto compiler = nvrtc();
  if (!compiler) return;
  std::vector<std::vector<std::uint8_t>> bytes(4);
  std::vector<std::thread> threads;
  for (auto& own : bytes)
    threads.emplace_back([&] {
      if (auto artefact = compiler->compile(sample())) own = artefact->bytes;
    });
  for (auto& thread : threads) thread.join();
  CHECK(!bytes[0].empty());
  for (const auto& own : bytes) CHECK(own == bytes[0]);
}
