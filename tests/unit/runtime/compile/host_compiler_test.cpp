// runtime/compile/host_compiler.cpp: kernel text becomes a shared object and runs on the CPU back-end, with this
// machine's compiler.
// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <vector>

#include "generator/catalogue/registry.hpp"
#include "runtime/compile/compiler.hpp"
#include "runtime/device/backend.hpp"

using kvjit::Code;

namespace {

struct ScaleArgs {
  const float* in;
  float* out;
  float factor;
};

kvjit::Source scale_source(const std::string& factor = "args.factor") {
  kvjit::Source source;
  source.name = "scale.test";
  source.entry = "kv_scale";
  source.arch = "sm_90a";
  source.threads = 64;
  source.shared_bytes = 256;
  source.args_bytes = sizeof(ScaleArgs);
  source.text =
      "struct Args { const float* in; float* out; float factor; };\n"
      "KV_KERNEL kv_scale(KV_PARAM Args args) {\n"
      "  float* shared = reinterpret_cast<float*>(kv::cpu::self().shared);\n"
      "  const int i = kv::cpu::self().thread, at = kv::cpu::self().block_x * 64;\n"
      "  shared[i] = args.in[at + i];\n"
      "  kv::cpu::host.wait(kv::cpu::Wait::block, __FILE__, __LINE__);\n"
      "  args.out[at + i] = shared[63 - i] * " +
      factor +
      ";\n"
      "}\n"
      "extern \"C\" void kv_scale_on_host(const void* args) { kv_scale(*static_cast<const Args*>(args)); }\n";
  return source;
}

std::shared_ptr<kvjit::Compiler> compiler() {
  const auto opened = kvjit::open_host_compiler({});
  REQUIRE(opened);
  return *opened;
}

}  // namespace

TEST_CASE("a kernel compiles, loads and runs; two kernels of one entry name do not mix") {
  const auto host = compiler();
  const auto backend = kvjit::open_cpu({});
  REQUIRE(backend);
  CHECK_FALSE((*backend)->info().is_gpu);

  std::vector<float> in(128), out(128);
  std::iota(in.begin(), in.end(), 1.0f);
  std::vector<std::shared_ptr<kvjit::Kernel>> kernels;
  for (const char* factor : {"args.factor", "2.0f * args.factor"}) {
    const kvjit::Source source = scale_source(factor);
    const auto artefact = host->compile(source);
    REQUIRE(artefact);
    CHECK(artefact->kind == kvjit::ArtefactKind::host_object);
    CHECK(artefact->compile_ms > 0);
    const auto kernel = (*backend)->load(source, *artefact);
    REQUIRE(kernel);
    kernels.push_back(*kernel);
  }
  const ScaleArgs args{in.data(), out.data(), 10};
  for (int k = 0; k < 2; ++k) {
    REQUIRE((*backend)->launch(*kernels[static_cast<std::size_t>(k)], {2, 1, 1}, &args, nullptr));
    CHECK(out[0] == 64 * 10 * (k + 1));
    CHECK(out[127] == 65 * 10 * (k + 1));
  }
  // Unload and load again: the dynamic loader must not return the old object.
  kernels.clear();
  const kvjit::Source source = scale_source("5.0f");
  const auto artefact = host->compile(source);
  REQUIRE(artefact);
  const auto kernel = (*backend)->load(source, *artefact);
  REQUIRE(kernel);
  REQUIRE((*backend)->launch(**kernel, {2, 1, 1}, &args, nullptr));
  CHECK(out[0] == 64 * 5);

  std::vector<int> buffer_sets;
  const auto timing = (*backend)->time(
      [&](kvjit::Stream s, int buffer_set) {
        buffer_sets.push_back(buffer_set);
        return (*backend)->launch(**kernel, {2, 1, 1}, &args, s);
      },
      5, 3);
  REQUIRE(timing);
  CHECK(timing->repeats == 5);
  CHECK(timing->calls == 1);
  CHECK(buffer_sets == std::vector<int>{0, 1, 2, 0, 1});
  CHECK(timing->low_us <= timing->median_us);
  CHECK(timing->median_us <= timing->high_us);
  const auto nothing = [](kvjit::Stream, int) { return kvjit::Result<void>{}; };
  CHECK((*backend)->time(nothing, 0, 1).error().message ==
        "0 timed repeats, 1 buffer sets: at least 1 of each is needed");
  CHECK((*backend)->time(nothing, 1, 0).error().code == kvjit::Code::usage);
}

TEST_CASE("an error of the kernel names the kernel") {
  kvjit::Source source = scale_source();
  const auto artefact = compiler()->compile(source);
  const auto backend = kvjit::open_cpu({});
  source.shared_bytes = 128;  // the kernel uses 256 bytes
  const auto kernel = (*backend)->load(source, *artefact);
  REQUIRE(kernel);
  std::vector<float> numbers(64);
  const ScaleArgs args{numbers.data(), numbers.data(), 1};
  const auto ran = (*backend)->launch(**kernel, {1, 1, 1}, &args, nullptr);
  REQUIRE_FALSE(ran.has_value());
  CHECK(ran.error().message.find("overrun") != std::string::npos);
  CHECK(ran.error().notes.back() == "in kernel scale.test");
}

TEST_CASE("a refused text is a compile error with the compiler's words and the kernel's own file name") {
  const auto refused = compiler()->compile(scale_source("no_such_name"));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == Code::compile);
  REQUIRE(refused.error().notes.size() == 1);
  CHECK(refused.error().notes[0].find("no_such_name") != std::string::npos);
  CHECK(refused.error().notes[0].find("kernel.cu:7:") != std::string::npos);
  CHECK(refused.error().notes[0].find("/kernel.cu") == std::string::npos);  // messages must be equal on every machine
}

TEST_CASE("the temporary folder goes away, after success and after failure") {
  const auto base = std::filesystem::temp_directory_path() / "kvjit-unit-host-compiler";
  std::filesystem::create_directories(base);
  const char* old = std::getenv("TMPDIR");
  const std::string before = old ? old : "";
  setenv("TMPDIR", base.c_str(), 1);
  const auto host = compiler();
  CHECK(host->compile(scale_source()));
  CHECK_FALSE(host->compile(scale_source("no_such_name")).has_value());
  CHECK(std::filesystem::is_empty(base));
  old ? setenv("TMPDIR", before.c_str(), 1) : unsetenv("TMPDIR");
  std::filesystem::remove_all(base);
}

TEST_CASE("the identity names the compiler and the seam; the options hold no path") {
  const auto host = compiler();
  CHECK(host->identity().find("cpu.hpp sha256:") != std::string::npos);
  CHECK(host->identity().find('\n') == std::string::npos);
  CHECK(host->archs().empty());
  for (const std::string& option : host->options(scale_source())) {
    CHECK(option != "");
    CHECK(option[0] != '/');
  }
  CHECK(compiler()->identity() == host->identity());
}

TEST_CASE("a compiler that was asked for is used or refused, never replaced") {
  for (const char* name : {"no-such-compiler", "/no/such/compiler", "/bin/false"}) {
    kvjit::Options options;
    options.host_compiler = name;
    const auto opened = kvjit::open_host_compiler(options);
    REQUIRE_FALSE(opened.has_value());
    CHECK(opened.error().code == Code::environment);
    CHECK(opened.error().notes.at(0).find(name) != std::string::npos);
  }
}

TEST_CASE("bytes that are no object, and artefacts of another kind, are refused") {
  const auto backend = kvjit::open_cpu({});
  kvjit::Artefact artefact;
  artefact.kind = kvjit::ArtefactKind::host_object;
  artefact.bytes = {1, 2, 3};
  CHECK((*backend)->load(scale_source(), artefact).error().code == Code::integrity);
  artefact.kind = kvjit::ArtefactKind::cubin;
  CHECK((*backend)->load(scale_source(), artefact).error().code == Code::integrity);
}

TEST_CASE("memory of the CPU back-end: aligned, poisoned, bounded") {
  const auto backend = kvjit::open_cpu({});
  const auto pointer = (*backend)->allocate(1000);
  REQUIRE(pointer);
  CHECK(*pointer % 256 == 0);
  unsigned char byte = 0;
  REQUIRE((*backend)->copy_to_host(&byte, *pointer + 999, 1));
  CHECK(byte == 0xff);
  REQUIRE((*backend)->fill(*pointer, 7, 1000));
  REQUIRE((*backend)->copy_to_host(&byte, *pointer + 999, 1));
  CHECK(byte == 7);
  (*backend)->release(*pointer);
  CHECK(*(*backend)->allocate(0) == 0);
  CHECK((*backend)->allocate(SIZE_MAX).error().code == Code::environment);
  CHECK_FALSE((*backend)->copy_to_device(0, &byte, 1).has_value());
}

TEST_CASE("a process that ignores SIGCHLD is told so") {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto opened = kvjit::open_host_compiler({});
  std::signal(SIGCHLD, before);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == Code::environment);
  CHECK(kvjit::render(opened.error()).find("this process ignores SIGCHLD") != std::string::npos);
  CHECK(kvjit::open_host_compiler({}));
}
