// Contexts whose kernels run as PTX: they share neither keys nor loaded kernels with those of machine code. The device
// is tests/support/fake_cuda.cpp, and nothing is compiled.
// SPDX-License-Identifier: MIT
#include "runtime/jit/context.hpp"
#include "tests/unit/runtime/store/fake_world.hpp"

using namespace kvjit;
using namespace kvjit::test;

namespace {

Options on_fake_gpu(const std::string& arch, bool as_ptx) {
  Options options;
  options.cuda_library = KVJIT_FAKE_CUDA;
  options.cache_dir = "off";
  options.arch = arch;
  options.as_ptx = as_ptx;
  return options;
}

std::shared_ptr<Context> open(const Options& options) {
  const auto context = Context::open(options);
  REQUIRE(context);
  return *context;
}

Source sample_of(const std::string& arch) {
  Source source = sample();
  source.arch = arch;
  source.threads = 32;
  return source;
}

std::string key_of(Context& context, const std::string& arch) {
  const auto places = context.places(sample_of(arch));
  REQUIRE(places);
  return places->in_store.stored.hex;
}

}  // namespace

TEST_CASE("PTX and machine code of an arch differ in every key") {
  const auto ptx = open(on_fake_gpu("sm_90", true)), code = open(on_fake_gpu("sm_90", false));
  const Key key = ptx->store()->request_key(sample_of("sm_90"));
  CHECK(field(key, "kind") == "ptx");
  CHECK(field(key, "arch") == "sm_90");
  CHECK(field(key, "option") == "--gpu-architecture=compute_90");
  CHECK(field(code->store()->request_key(sample_of("sm_90")), "kind") == "cubin");
  CHECK(key_of(*ptx, "sm_90") != key_of(*code, "sm_90"));
  CHECK(ptx->places(sample_of("sm_90"))->in_memory != code->places(sample_of("sm_90"))->in_memory);
  CHECK(key_of(*ptx, "sm_90") != key_of(*ptx, "sm_80"));
}

TEST_CASE("contexts of other archs are on a device of their own, those of one arch share it") {
  const auto native = open(on_fake_gpu("", false)), ptx = open(on_fake_gpu("sm_80", true)),
             other = open(on_fake_gpu("sm_75", true)), again = open(on_fake_gpu("sm_80", true));
  CHECK(native->backend()->info().arch == "sm_90a");
  CHECK(ptx->backend()->info().arch == "sm_80");
  CHECK(ptx->backend()->info().runs_ptx);
  CHECK(ptx->backend()->info().multiprocessors == native->backend()->info().multiprocessors);
  CHECK(native->backend() != ptx->backend());
  CHECK(other->backend() != ptx->backend());
  CHECK(again->backend() == ptx->backend());
}

TEST_CASE("a context says that its kernels run as PTX; others say nothing") {
  std::string said;
  Options options = on_fake_gpu("sm_89", true);
  options.log = [&](const std::string& line) { said += line + "\n"; };
  open(options);
  CHECK(said == "Fake GPU, text for sm_89, run as PTX on sm_90\n");
  said.clear();
  options.arch = "sm_90", options.as_ptx = false;
  open(options);
  CHECK(said.empty());
}

TEST_CASE("a driver that refuses PTX is quoted") {
  const auto context = open(on_fake_gpu("sm_80", true));
  Artefact artefact;
  artefact.kind = ArtefactKind::ptx;
  const auto load = [&](const std::string& ptx) {
    artefact.bytes.assign(ptx.begin(), ptx.end());
    artefact.bytes.push_back(0);
    return context->backend()->load(sample_of("sm_80"), artefact);
  };
  CHECK(load(".version 8.0\n.target sm_80\n"));
  const auto refused = load(".version 8.0\n.target sm_100\n");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("loading decode.sample (PTX for sm_80) on Fake GPU (sm_90a)") == 0);
  CHECK(refused.error().notes == std::vector<std::string>{"the PTX is for a later GPU"});
}

TEST_CASE("PTX never runs on the CPU back-end because there is no GPU") {
  Options options = on_fake_gpu("sm_80", true);
  options.cuda_library = "/nowhere/libcuda.so.1";
  const auto context = Context::open(options);
  REQUIRE_FALSE(context);
  CHECK(context.error().code == Code::environment);
  options.as_ptx = false;
  CHECK(open(options)->backend()->info().arch == "sm_80");  // the text itself does
}
