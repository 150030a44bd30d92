// rotate.forward.wht_signed128.d128.f16-f32.sm_90a
// ======== the plan ========
namespace kv {

// wht_signed, groups of 128
KV_CONSTANT u32 kPlanRotationPre[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPlanRotationPost[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct PlanRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) { return kPlanRotationPre[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPlanRotationPost[word]; }
};
using PlanRotation = Wht<PlanRotationSigns>;

struct Plan {
  static constexpr int kHeadDim = 128, kWarps = 4;
  static constexpr bool kIsInverse = false;
  using Rotation = PlanRotation;
  KV_DEVICE static float load(const void* data, i64 i) { return f32_from_f16(static_cast<const u16*>(data)[i]); }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::RotateArgs) == 80, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_rotate(KV_PARAM kv::RotateArgs args) { kv::rotate<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_rotate_on_host(const void* args) {
  kv_rotate(*static_cast<const kv::RotateArgs*>(args));
}
#endif

// decode.tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32.sm_90a
// ======== the plan ========
namespace kv {

// K as tbq4_wht_dfirst_corr: 4.125 bits a value
KV_CONSTANT u16 kKeySideHalves[16] = {  // centroids / kUnit, as halves
    0xbdae, 0xbc4d, 0xbaba, 0xb939, 0xb7d6, 0xb576, 0xb274, 0xac45, 0x2c45, 0x3274, 0x3576, 0x37d6, 
    0x3939, 0x3aba, 0x3c4d, 0x3dae};
struct KeySide {
  static constexpr bool kIsPlanar = true, kHasScale = true, kIsBf16 = false, kOwnsTable = true, kIsSkewed = false;
  static constexpr int kThreads = 256, kBits = 4, kOffset = 0;
  // the staged row
  static constexpr int kRowBytes = 64, kRowUnit = 16, kPitch = 64, kGroupStride = 64, kCodesAt = 0;
  static constexpr int kScaleRowBytes = 2, kScalesAt = 2064, kScalePitch = 2, kScaleStride = 2, kStageBytes = 2128;
  // the codes of a lane: kGroups x kRuns runs
  static constexpr int kGroups = 1, kRuns = 1, kRunCodes = 32, kRunWords = 4, kRunLoadBytes = 16, kRunUnit = 16;
  static constexpr int kRunStride = 64, kPartBits = 128;
  static constexpr int kTableAt = 0, kTableStride = 256, kTableCopies = 32;
  static constexpr float kUnit = 0.17011923f;
  KV_DEVICE static u32 half_value(int code) { return kKeySideHalves[code]; }
  KV_DEVICE static void unpack(const u32 (&w)[4], u32 (&y)[8]) {
    y[0] = (w[0] & 0x0f0f0f0fu);
    y[1] = (w[0] >> 4 & 0x0f0f0f0fu);
    y[2] = (w[1] & 0x0f0f0f0fu);
    y[3] = (w[1] >> 4 & 0x0f0f0f0fu);
    y[4] = (w[2] & 0x0f0f0f0fu);
    y[5] = (w[2] >> 4 & 0x0f0f0f0fu);
    y[6] = (w[3] & 0x0f0f0f0fu);
    y[7] = (w[3] >> 4 & 0x0f0f0f0fu);
  }
  using Pairs = TablePairs<KeySide>;
  using Run = CodeRun<KeySide>;
};

// V as q8_0: 8.5 bits a value
struct ValueSide {
  static constexpr bool kIsPlanar = true, kHasScale = true, kIsBf16 = false, kOwnsTable = false, kIsSkewed = false;
  static constexpr int kThreads = 256, kBits = 8, kOffset = 128;
  // the staged row
  static constexpr int kRowBytes = 128, kRowUnit = 16, kPitch = 144, kGroupStride = 32, kCodesAt = 0;
  static constexpr int kScaleRowBytes = 8, kScalesAt = 4624, kScalePitch = 8, kScaleStride = 2, kStageBytes = 4880;
  // the codes of a lane: kGroups x kRuns runs
  static constexpr int kGroups = 4, kRuns = 1, kRunCodes = 4, kRunWords = 1, kRunLoadBytes = 4, kRunUnit = 4;
  static constexpr int kRunStride = 32, kPartBits = 32;
  static constexpr int kTableAt = 0, kTableStride = 4, kTableCopies = 1;
  static constexpr float kUnit = 1.0f;
  KV_DEVICE static void unpack(const u32 (&w)[1], u32 (&y)[1]) {
    y[0] = (w[0]) ^ 0x80808080u;
  }
  using Pairs = UniformPairs<ValueSide>;
  using Run = CodeRun<ValueSide>;
};

// Dimension of each contraction slot of Q, and of each row of O, in the order the packings give them.
KV_CONSTANT u16 kKeyOrder[128] = {
    0, 1, 2, 3, 32, 33, 34, 35, 64, 65, 66, 67, 96, 97, 98, 99, 4, 5, 6, 7, 36, 37, 38, 39, 68, 69, 70, 
    71, 100, 101, 102, 103, 8, 9, 10, 11, 40, 41, 42, 43, 72, 73, 74, 75, 104, 105, 106, 107, 12, 13, 
    14, 15, 44, 45, 46, 47, 76, 77, 78, 79, 108, 109, 110, 111, 16, 17, 18, 19, 48, 49, 50, 51, 80, 81, 
    82, 83, 112, 113, 114, 115, 20, 21, 22, 23, 52, 53, 54, 55, 84, 85, 86, 87, 116, 117, 118, 119, 24, 
    25, 26, 27, 56, 57, 58, 59, 88, 89, 90, 91, 120, 121, 122, 123, 28, 29, 30, 31, 60, 61, 62, 63, 92, 
    93, 94, 95, 124, 125, 126, 127};
KV_CONSTANT u16 kValueOrder[128] = {
    0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 
    15, 19, 23, 27, 31, 32, 36, 40, 44, 48, 52, 56, 60, 33, 37, 41, 45, 49, 53, 57, 61, 34, 38, 42, 46, 
    50, 54, 58, 62, 35, 39, 43, 47, 51, 55, 59, 63, 64, 68, 72, 76, 80, 84, 88, 92, 65, 69, 73, 77, 81, 
    85, 89, 93, 66, 70, 74, 78, 82, 86, 90, 94, 67, 71, 75, 79, 83, 87, 91, 95, 96, 100, 104, 108, 112, 
    116, 120, 124, 97, 101, 105, 109, 113, 117, 121, 125, 98, 102, 106, 110, 114, 118, 122, 126, 99, 
    103, 107, 111, 115, 119, 123, 127};

struct Plan {
  static constexpr int kHeadDim = 128, kGroup = 4, kRows = 4, kColumnBlocks = 1, kQueryParts = 2;
  static constexpr bool kHoldQueries = true;
  static constexpr int kWarps = 8, kThreads = 256, kStages = 2, kTile = 32, kSubtiles = 2;
  static constexpr int kQueriesAt = 65536, kRingAt = 69632, kStageBytes = 7008;
  using K = KeySide;
  using V = ValueSide;
  using Feature = Causal<1>;
  KV_DEVICE static float load_query(const void* data, i64 i) { return static_cast<const float*>(data)[i]; }
  KV_DEVICE static int key_order(int i) { return kKeyOrder[i]; }
  KV_DEVICE static int value_order(int i) { return kValueOrder[i]; }
};
static_assert(KeySide::kStageBytes + ValueSide::kStageBytes == Plan::kStageBytes, "stages do not add up");

}  // namespace kv

static_assert(sizeof(kv::AttentionArgs) == 240, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(256, 1) kv_decode(KV_PARAM kv::AttentionArgs args) { kv::decode<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_decode_on_host(const void* args) {
  kv_decode(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// merge.d128.g4.q1.f32.sm_90a
// ======== the plan ========
namespace kv {

struct Plan {
  static constexpr int kHeadDim = 128, kGroup = 4, kRows = 4, kThreads = 128;
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::MergeArgs) == 56, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_merge(KV_PARAM kv::MergeArgs args) { kv::merge<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_merge_on_host(const void* args) {
  kv_merge(*static_cast<const kv::MergeArgs*>(args));
}
#endif

// reference.tbq4_wht_dfirst_corr-q8_0.d128.g4.q1.planar.causal.f16-f32.sm_90a
// ======== the plan ========
namespace kv {

// tbq4_wht_dfirst_corr: 4.125 bits a value, 128 values in 66 bytes
KV_CONSTANT float kKeyFormatValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_CONSTANT float kKeyFormatBounds[15] = {
    -0.212232f, -0.162977f, -0.127056f, -0.097191f, -0.070693f, -0.04619f, -0.022832f, 0.0f, 0.022832f, 
    0.04619f, 0.070693f, 0.097191f, 0.127056f, 0.162977f, 0.212232f};
struct KeyFormat {
  static constexpr bool kIsPlanar = true, kIsPlain = false, kIsBf16 = false, kIsSplit = false, kHasScale = true;
  static constexpr int kBits = 4, kBlock = 128, kBlockBytes = 66, kCodeBytes = 64, kCodesAt = 2, kScaleAt = 0;
  static constexpr int kCodeStride = 64, kScaleStride = 2;
  static constexpr int kOffset = 0, kMaxCode = 15;
  static constexpr u32 kCodeXor = 0x0;
  static constexpr float kDivisor = 1.0f;
  KV_DEVICE static float value(u32 code) { return kKeyFormatValues[code]; }
  KV_DEVICE static float bound(u32 i) { return kKeyFormatBounds[i]; }
  KV_DEVICE static u32 code(float v) { return count_bounds<KeyFormat>(v); }
  KV_DEVICE static bool is_padding([[maybe_unused]] int j) { return false; }
  using Encoder = NormEncoder<true>;
};

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct ValueFormat {
  static constexpr bool kIsPlanar = true, kIsPlain = false, kIsBf16 = false, kIsSplit = false, kHasScale = true;
  static constexpr int kBits = 8, kBlock = 32, kBlockBytes = 34, kCodeBytes = 32, kCodesAt = 2, kScaleAt = 0;
  static constexpr int kCodeStride = 32, kScaleStride = 2;
  static constexpr int kOffset = 128, kMaxCode = 255;
  static constexpr u32 kCodeXor = 0x80;
  static constexpr float kDivisor = 127.0f;
  KV_DEVICE static float value(u32 code) { return float(int(code) - kOffset); }
  KV_DEVICE static u32 code(float v) { return round_half_away<ValueFormat>(v); }
  KV_DEVICE static bool is_padding([[maybe_unused]] int j) { return false; }
  using Encoder = AmaxEncoder<Amax>;
};

struct Plan {
  static constexpr int kHeadDim = 128, kGroup = 4;
  using K = KeyFormat;
  using V = ValueFormat;
  using Feature = Causal<1>;
  KV_DEVICE static float load_query(const void* data, i64 i) { return static_cast<const float*>(data)[i]; }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::AttentionArgs) == 240, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(32, 1) kv_reference(KV_PARAM kv::AttentionArgs args) { kv::reference<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_reference_on_host(const void* args) {
  kv_reference(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// quantise.tbq4_wht_dfirst_corr.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// tbq4_wht_dfirst_corr: 4.125 bits a value, 128 values in 66 bytes
KV_CONSTANT float kStoredFormatValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_CONSTANT float kStoredFormatBounds[15] = {
    -0.212232f, -0.162977f, -0.127056f, -0.097191f, -0.070693f, -0.04619f, -0.022832f, 0.0f, 0.022832f, 
    0.04619f, 0.070693f, 0.097191f, 0.127056f, 0.162977f, 0.212232f};
struct StoredFormat {
  static constexpr bool kIsPlanar = true, kIsPlain = false, kIsBf16 = false, kIsSplit = false, kHasScale = true;
  static constexpr int kBits = 4, kBlock = 128, kBlockBytes = 66, kCodeBytes = 64, kCodesAt = 2, kScaleAt = 0;
  static constexpr int kCodeStride = 64, kScaleStride = 2;
  static constexpr int kOffset = 0, kMaxCode = 15;
  static constexpr u32 kCodeXor = 0x0;
  static constexpr float kDivisor = 1.0f;
  KV_DEVICE static float value(u32 code) { return kStoredFormatValues[code]; }
  KV_DEVICE static float bound(u32 i) { return kStoredFormatBounds[i]; }
  KV_DEVICE static u32 code(float v) { return count_bounds<StoredFormat>(v); }
  KV_DEVICE static bool is_padding([[maybe_unused]] int j) { return false; }
  using Encoder = NormEncoder<true>;
};

// wht_signed, groups of 128
KV_CONSTANT u32 kPlanRotationPre[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPlanRotationPost[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct PlanRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) { return kPlanRotationPre[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPlanRotationPost[word]; }
};
using PlanRotation = Wht<PlanRotationSigns>;

struct Plan {
  static constexpr int kHeadDim = 128, kWarps = 4, kWarpBytes = 144;
  using F = StoredFormat;
  using Rotation = PlanRotation;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 136, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantise(KV_PARAM kv::CodecArgs args) { kv::quantise<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantise_on_host(const void* args) {
  kv_quantise(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantise.q8_0.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormat {
  static constexpr bool kIsPlanar = true, kIsPlain = false, kIsBf16 = false, kIsSplit = false, kHasScale = true;
  static constexpr int kBits = 8, kBlock = 32, kBlockBytes = 34, kCodeBytes = 32, kCodesAt = 2, kScaleAt = 0;
  static constexpr int kCodeStride = 32, kScaleStride = 2;
  static constexpr int kOffset = 128, kMaxCode = 255;
  static constexpr u32 kCodeXor = 0x80;
  static constexpr float kDivisor = 127.0f;
  KV_DEVICE static float value(u32 code) { return float(int(code) - kOffset); }
  KV_DEVICE static u32 code(float v) { return round_half_away<StoredFormat>(v); }
  KV_DEVICE static bool is_padding([[maybe_unused]] int j) { return false; }
  using Encoder = AmaxEncoder<Amax>;
};

using PlanRotation = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kWarps = 4, kWarpBytes = 144;
  using F = StoredFormat;
  using Rotation = PlanRotation;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 136, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantise(KV_PARAM kv::CodecArgs args) { kv::quantise<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantise_on_host(const void* args) {
  kv_quantise(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantise.tbq4_wht_dfirst_corr.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// tbq4_wht_dfirst_corr: 4.125 bits a value, 128 values in 66 bytes
KV_CONSTANT float kStoredFormatValues[16] = {
    -0.241556f, -0.182907f, -0.143047f, -0.111065f, -0.083317f, -0.058069f, -0.034311f, -0.011353f, 
    0.011353f, 0.034311f, 0.058069f, 0.083317f, 0.111065f, 0.143047f, 0.182907f, 0.241556f};
KV_CONSTANT float kStoredFormatBounds[15] = {
    -0.212232f, -0.162977f, -0.127056f, -0.097191f, -0.070693f, -0.04619f, -0.022832f, 0.0f, 0.022832f, 
    0.04619f, 0.070693f, 0.097191f, 0.127056f, 0.162977f, 0.212232f};
struct StoredFormat {
  static constexpr bool kIsPlanar = true, kIsPlain = false, kIsBf16 = false, kIsSplit = false, kHasScale = true;
  static constexpr int kBits = 4, kBlock = 128, kBlockBytes = 66, kCodeBytes = 64, kCodesAt = 2, kScaleAt = 0;
  static constexpr int kCodeStride = 64, kScaleStride = 2;
  static constexpr int kOffset = 0, kMaxCode = 15;
  static constexpr u32 kCodeXor = 0x0;
  static constexpr float kDivisor = 1.0f;
  KV_DEVICE static float value(u32 code) { return kStoredFormatValues[code]; }
  KV_DEVICE static float bound(u32 i) { return kStoredFormatBounds[i]; }
  KV_DEVICE static u32 code(float v) { return count_bounds<StoredFormat>(v); }
  KV_DEVICE static bool is_padding([[maybe_unused]] int j) { return false; }
  using Encoder = NormEncoder<true>;
};

// wht_signed, groups of 128
KV_CONSTANT u32 kPlanRotationPre[4] = {0xe46a0359, 0x42f85949, 0xa4c63bbb, 0x49f250a9};
KV_CONSTANT u32 kPlanRotationPost[4] = {0x16acee90, 0x3f628fdc, 0xb7a5357a, 0xbea56562};
struct PlanRotationSigns {
  static constexpr int kSize = 128;
  static constexpr float kNorm = 0.088388346f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) { return kPlanRotationPre[word]; }
  KV_DEVICE static u32 post_signs(int word) { return kPlanRotationPost[word]; }
};
using PlanRotation = Wht<PlanRotationSigns>;

struct Plan {
  static constexpr int kHeadDim = 128, kWarps = 4, kWarpBytes = 144;
  using F = StoredFormat;
  using Rotation = PlanRotation;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 136, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantise(KV_PARAM kv::CodecArgs args) { kv::dequantise<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantise_on_host(const void* args) {
  kv_dequantise(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantise.q8_0.d128.planar.sm_90a
// ======== the plan ========
namespace kv {

// q8_0: 8.5 bits a value, 32 values in 34 bytes
struct StoredFormat {
  static constexpr bool kIsPlanar = true, kIsPlain = false, kIsBf16 = false, kIsSplit = false, kHasScale = true;
  static constexpr int kBits = 8, kBlock = 32, kBlockBytes = 34, kCodeBytes = 32, kCodesAt = 2, kScaleAt = 0;
  static constexpr int kCodeStride = 32, kScaleStride = 2;
  static constexpr int kOffset = 128, kMaxCode = 255;
  static constexpr u32 kCodeXor = 0x80;
  static constexpr float kDivisor = 127.0f;
  KV_DEVICE static float value(u32 code) { return float(int(code) - kOffset); }
  KV_DEVICE static u32 code(float v) { return round_half_away<StoredFormat>(v); }
  KV_DEVICE static bool is_padding([[maybe_unused]] int j) { return false; }
  using Encoder = AmaxEncoder<Amax>;
};

using PlanRotation = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 128, kWarps = 4, kWarpBytes = 144;
  using F = StoredFormat;
  using Rotation = PlanRotation;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 136, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantise(KV_PARAM kv::CodecArgs args) { kv::dequantise<kv::Plan>(args); }
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantise_on_host(const void* args) {
  kv_dequantise(*static_cast<const kv::CodecArgs*>(args));
}
#endif

