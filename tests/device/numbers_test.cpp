// The functions of the device layer (device/simt.cuh, device/math.cuh) on numbers that kernels seldom meet: zeros,
// subnormals, infinities and NaN. One kernel runs on the GPU and on the CPU back-end, which must say the same: a
// difference there hides from every test that runs without a GPU.
// SPDX-License-Identifier: MIT
#include <bit>
#include <cmath>
#include <random>

#include "generator/base/minifloat.hpp"
#include "generator/emit/writer.hpp"
#include "tests/device/gpu.hpp"
#include "tests/support/registry.hpp"

namespace kvjit::test {
namespace {

enum class Type { halves, bfloats, real, approximate, integer };
struct Function {
  Type type;
  const char* call;  // an expression of u32, of the words a and b
};
const std::vector<Function> kFunctions = {
    {Type::halves, "larger_f16x2(a, b)"},
    {Type::bfloats, "larger_bf16x2(a, b) & 0x7fff7fffu"},
    {Type::bfloats, "mul_bf16x2(a, b)"},
    {Type::halves, "mul_f16x2(a, b)"},
    {Type::halves, "sub_f16x2(a, b)"},
    {Type::halves, "fma_f16x2(a, b, a ^ 0x12345678u)"},
    {Type::halves, "pack_f16x2(x, y)"},
    {Type::bfloats, "pack_bf16x2(x, y)"},
    {Type::halves, "u32(f16_from_f32(x))"},
    {Type::bfloats, "u32(bf16_from_f32(x))"},
    {Type::real, "bits_of(f32_from_f16(a & 0xffffu))"},
    {Type::halves, "bytes_as_halves(a, 0)"},
    {Type::halves, "bytes_as_halves(a, 1)"},
    {Type::real, "bits_of(larger(x, y))"},
    {Type::real, "bits_of(smaller(x, y))"},
    {Type::real, "bits_of(absolute(x))"},
    {Type::real, "bits_of(fma_rn(x, y, x))"},
    {Type::real, "bits_of(mul_rn(x, y))"},
    {Type::real, "bits_of(add_rn(x, y))"},
    {Type::real, "bits_of(div_rn(x, y))"},
    {Type::real, "bits_of(sqrt_rn(x))"},
    {Type::integer, "u32(round_to_int(x))"},
    {Type::approximate, "bits_of(exp2_fast(x))"},
    {Type::approximate, "bits_of(log2_fast(x))"},
    {Type::approximate, "bits_of(reciprocal_fast(x))"},
    {Type::approximate, "bits_of(rsqrt_fast(x))"},
    {Type::approximate, "bits_of(sum_of_products(a, b))"},
};

struct NumberArgs {
  const std::uint32_t* words;
  std::uint32_t* results;  // [function][a][b]
  int count;               // words
};

Source number_kernel(const std::string& arch) {
  emit::Writer w = emit::begin(registry(), "numbers." + arch, "functions of the device layer, of every pair of words");
  w.fragment("device/math.cuh");
  w.text += R"(namespace kv {

struct NumberArgs { const u32* words; u32* results; int count; };
struct Plan {};
KV_DEVICE u32 bytes_as_halves(u32 bytes, int i) {
  u32 h[2];
  f16x4_from_e4m3x4(h, bytes);
  return h[i];
}
// Two rows of the lane's own products: 2 times those of a and b, where other lanes have the same words.
KV_DEVICE float sum_of_products(u32 a, u32 b) {
  float d[4] = {};
  mma_16x8x16(d, a, a, 0u, 0u, b, 0u);
  return d[0];
}
template <class Plan>
KV_DEVICE void numbers(const NumberArgs& args) {
  for (int i = 0; i < args.count * args.count; ++i) {
    const u32 a = args.words[i / args.count], b = args.words[i % args.count];
    const float x = float_of(a), y = float_of(b);
)";
  for (std::size_t n = 0; n < kFunctions.size(); ++n)
    w.line("    args.results[i64({}) * args.count * args.count + i] = {};", n, kFunctions[n].call);
  w.text += "  }\n}\n";
  return emit::finish(w, "numbers." + arch, arch, {"numbers", "NumberArgs", 32, 0, int(sizeof(NumberArgs))});
}

std::vector<std::uint32_t> results_on(const std::shared_ptr<Context>& device, const std::string& arch,
                                      const std::vector<std::uint32_t>& words) {
  const auto& backend = device->backend();
  const std::size_t count = kFunctions.size() * words.size() * words.size();
  const Buffer in = must(Buffer::make(backend, words.size() * 4)), out = must(Buffer::make(backend, count * 4));
  must(backend->copy_to_device(in.pointer(), words.data(), words.size() * 4));
  const KernelRecord kernel = must(device->get(number_kernel(arch)));
  struct {
    DevicePointer words, results;
    int count;
  } args{in.pointer(), out.pointer(), int(words.size())};
  must(backend->launch(*kernel.kernel, Grid{1, 1, 1}, &args, nullptr));
  std::vector<std::uint32_t> results(count);
  must(backend->copy_to_host(results.data(), out.pointer(), count * 4));
  return results;
}

bool agree(float a, float b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(double(a) - b) <= tolerance * std::max(1.0, std::fabs(double(a)));
}

bool agree(Type type, std::uint32_t gpu, std::uint32_t cpu) {
  const auto half = [](std::uint32_t word, int i) { return float_from_f16(std::uint16_t(word >> 16 * i)); };
  const auto bfloat = [](std::uint32_t word, int i) { return std::bit_cast<float>(word >> 16 * i << 16); };
  switch (type) {
    case Type::halves:
      return agree(half(gpu, 0), half(cpu, 0), 0) && agree(half(gpu, 1), half(cpu, 1), 0);
    case Type::bfloats:
      return agree(bfloat(gpu, 0), bfloat(cpu, 0), 0) && agree(bfloat(gpu, 1), bfloat(cpu, 1), 0);
    case Type::real:
      return agree(std::bit_cast<float>(gpu), std::bit_cast<float>(cpu), 0);
    case Type::approximate:
      return agree(std::bit_cast<float>(gpu), std::bit_cast<float>(cpu), 0x1p-20);
    case Type::integer:
      return gpu == cpu;
  }
  return false;
}

TEST_CASE("functions of the device layer: zeros, subnormals, infinities and NaN, as on the CPU back-end") {
  const auto device = gpu(), host = open_context(DeviceKind::cpu);
  const std::string arch = device->backend()->info().arch;
  std::vector<std::uint32_t> words;
  for (const float x :
       {0.f,      1.f,     2.5f,    1e-40f,  0x1p-126f, 0x1p-127f, 0x1p126f, 0x1p127f, 1e-30f, 1e-8f,    0x1p-24f,
        0x1p-25f, 65504.f, 65519.f, 65520.f, 0x1p31f,   1e38f,     3.4e38f,  126.5f,   149.f,  INFINITY, NAN})
    for (const float sign : {1.f, -1.f}) words.push_back(std::bit_cast<std::uint32_t>(std::copysign(x, sign)));
  for (const std::uint32_t halves : {0x7e000001u, 0x3c007fffu, 0xffffu, 0x7c00fc00u, 0x3c00u, 0x00010001u, 0x83ff0400u,
                                     0x7bff7bffu, 0x7f80ff80u, 0xffffffffu, 0x7fff3f80u, 0x7f7f0080u})
    words.push_back(halves);
  std::mt19937 random(49);
  while (words.size() < 90) words.push_back(random());
  for (std::uint32_t& word : words)  // signalling NaNs, which C and the GPU quiet in different places, are left out
    if (std::isnan(std::bit_cast<float>(word))) word |= 0x00400000u;
  const auto of_gpu = results_on(device, arch, words), of_cpu = results_on(host, arch, words);
  for (std::size_t i = 0; i < of_gpu.size(); ++i) {
    const std::size_t pair = i % (words.size() * words.size());
    const Function& function = kFunctions[i / (words.size() * words.size())];
    CHECK_MESSAGE(agree(function.type, of_gpu[i], of_cpu[i]),
                  fmt::format("{} of {:08x} and {:08x}: {:08x} on the GPU, {:08x} on the CPU", function.call,
                              words[pair / words.size()], words[pair % words.size()], of_gpu[i], of_cpu[i]));
  }
}

}  // namespace
}  // namespace kvjit::test
