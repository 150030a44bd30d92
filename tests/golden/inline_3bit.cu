// rotate.forward.wht_signed64.d64.f16-f32.sm_75
// ======== the plan ========
namespace kv {

// wht_signed, groups of 64
struct PlanRotationSigns {
  static constexpr int kSize = 64;
  static constexpr float kNorm = 0.125f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[2] = {0xe46a0359, 0x42f85949};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[2] = {0x16acee90, 0x3f628fdc};
    return kWords[word];
  }
};
using PlanRotation = Wht<PlanRotationSigns>;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4;
  static constexpr bool kIsInverse = false;
  KV_DEVICE static float load(const void* data, i64 i) { return f32_from_f16(static_cast<const u16*>(data)[i]); }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::RotateArgs) == 80, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_rotate(KV_PARAM kv::RotateArgs args) {
  kv::rotate<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_rotate_on_host(const void* args) {
  kv_rotate(*static_cast<const kv::RotateArgs*>(args));
}
#endif

// decode.b3_block64_lloyd_max_corrected_norm_wht_signed-b3_block32_uniform_amax.d64.g1.q1.planar.f16-f32.sm_75
// ======== the plan ========
namespace kv {

// K as b3_block64_lloyd_max_corrected_norm_wht_signed: 3.25 bits a value
KV_CONSTANT u16 kKeySection0Halves[8] = {  // values / kUnit, as halves
    0xbced, 0xba27, 0xb6ec, 0xb07d, 0x307d, 0x36ec, 0x3a27, 0x3ced};
struct KeySection0Plane0 {
  static constexpr int kAt = 0, kLaneBits = 48, kReadBytes = 0, kLoadBytes = 6, kUnit = 4, kFirstWord = 0, kWords = 2;
  static constexpr int kWrap = 0, kWrapBits = 0;
  static constexpr bool kLoadsWholeField = false, kIsUnaligned = false;
};
struct KeySection0 {
  static constexpr int kThreads = 384, kBits = 3, kOffset = 0;
  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads
  static constexpr int kFirst = 0, kDim = 64, kGroups = 1, kReads = 1, kReadCodes = 16, kReadWords = 2;
  static constexpr bool kIsJoined = false;
  static constexpr int kUnpackedCodes = 16;
  static constexpr int kBlocks = 1, kLanesPerBlock = 4, kBlockStride = 24;
  static constexpr int kSwizzle = 0;
  static constexpr int kScaleStride = 2, kScaleGroup = 0, kFirstScaled = 0;
  static constexpr bool kScalesGroups = true, kScalesValues = false, kRenormalises = false;
  static constexpr bool kOwnsTable = true;
  static constexpr int kTableAt = 0, kTableStride = 128, kTableCopies = 32, kCodeLaneBits = 0;
  KV_DEVICE static float scale(SharedAddress block, [[maybe_unused]] int group) {
    return f32_from_f16(load_staged_u16(block + 0 + group * 2));
  }
  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) { return load_staged_u16(block + 0 + group * 2); }
  static constexpr bool kAddsMinima = false, kScalesAreDense = true;
  KV_DEVICE static u32 half_value(int code) { return kKeySection0Halves[code]; }
  static constexpr bool kIsMasked = false, kAsBfloats = false;
  static constexpr int kQueryTerms = 1, kRests = 0;  // kRests: terms of a value behind the first one
  KV_DEVICE static void unpack(const u32 (&w)[2], u32* y) {
    y[0] = (w[0] & 0x07000007u) | (w[0] >> 1 & 0x00000700u) | (w[1] << 15 & 0x00070000u);
    y[1] = (w[0] >> 2 & 0x00070000u) | (w[0] >> 3 & 0x07000007u) | (w[1] >> 2 & 0x00000700u);
    y[2] = (w[0] >> 4 & 0x00000700u) | (w[0] >> 5 & 0x00070000u) | (w[1] << 11 & 0x07000000u) | (w[1] >> 4 & 0x00000007u);
    y[3] = (shift_right(w[0], w[1], 6) & 0x07000007u) | (w[0] >> 7 & 0x00000700u) | (w[1] << 9 & 0x00070000u);
  }
  static constexpr int kTableTerms = 1, kTableWords = 0;
  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {
    return 0;
  }
  using Pairs = TablePairs<KeySection0>;
  using Read = CodeRead<KeySection0>;
  using Planes = List<KeySection0Plane0>;
};
struct KeySide {
  static constexpr bool kIsPlanar = true, kIsMisaligned = false, kHasEvenOddOrder = false, kCachesInL1 = false, kScalesGroups = true, kOwnsTable = true;
  static constexpr int kDim = 64;
  static constexpr int kRowBytes = 24, kPitch = 24, kSwizzle = 0;  // the staged row
  static constexpr int kPadBytes = 0;  // zeros after a row
  static constexpr int kScaleRowBytes = 2, kScalesAt = 768, kScalePitch = 2, kStageBytes = 896;
  static constexpr int kTableCopies = 32, kScaledGroups = 1;
  static constexpr float kUnit = 0.21843699f;
  using Sections = List<KeySection0>;
};

// V as b3_block32_uniform_amax: 3.5 bits a value
struct ValueSection0Plane0 {
  static constexpr int kAt = 0, kLaneBits = 12, kReadBytes = 0, kLoadBytes = 3, kUnit = 1, kFirstWord = 0, kWords = 1;
  static constexpr int kWrap = 0, kWrapBits = 0;
  static constexpr bool kLoadsWholeField = false, kIsUnaligned = false;
};
struct ValueSection0 {
  static constexpr int kThreads = 384, kBits = 3, kOffset = 4;
  // dimensions kFirst .. kFirst + kDim of the row as the kernel counts them: kGroups x kReads lane reads
  static constexpr int kFirst = 0, kDim = 64, kGroups = 2, kReads = 1, kReadCodes = 4, kReadWords = 1;
  static constexpr bool kIsJoined = false;
  static constexpr int kUnpackedCodes = 4;
  static constexpr int kBlocks = 1, kLanesPerBlock = 8, kBlockStride = 12;
  static constexpr int kSwizzle = 0;
  static constexpr int kScaleStride = 2, kScaleGroup = 0, kFirstScaled = 0;
  static constexpr bool kScalesGroups = true, kScalesValues = false, kRenormalises = false;
  static constexpr bool kOwnsTable = false;
  static constexpr int kTableAt = 0, kTableStride = 128, kTableCopies = 32, kCodeLaneBits = 0;
  KV_DEVICE static float scale(SharedAddress block, [[maybe_unused]] int group) {
    return f32_from_f16(load_staged_u16(block + 0 + group * 2));
  }
  KV_DEVICE static u32 scale_half(SharedAddress block, [[maybe_unused]] int group) { return load_staged_u16(block + 0 + group * 2); }
  static constexpr bool kAddsMinima = false, kScalesAreDense = false;
  static constexpr bool kIsMasked = false, kAsBfloats = false;
  static constexpr int kQueryTerms = 1, kRests = 0;  // kRests: terms of a value behind the first one
  KV_DEVICE static void unpack(const u32 (&w)[1], u32* y) {
    y[0] = (w[0] << 21 & 0x07000000u) | (w[0] << 10 & 0x00070000u) | (w[0] & 0x00000007u) | (w[0] >> 1 & 0x00000700u);
  }
  static constexpr int kTableTerms = 1, kTableWords = 0;
  KV_DEVICE static u32 table_word([[maybe_unused]] int i) {
    return 0;
  }
  using Pairs = UniformPairs<ValueSection0>;
  using Read = CodeRead<ValueSection0>;
  using Planes = List<ValueSection0Plane0>;
};
struct ValueSide {
  static constexpr bool kIsPlanar = true, kIsMisaligned = false, kHasEvenOddOrder = false, kCachesInL1 = false, kScalesGroups = true, kOwnsTable = false;
  static constexpr int kDim = 64;
  static constexpr int kRowBytes = 24, kPitch = 24, kSwizzle = 0;  // the staged row
  static constexpr int kPadBytes = 0;  // zeros after a row
  static constexpr int kScaleRowBytes = 4, kScalesAt = 768, kScalePitch = 4, kStageBytes = 896;
  static constexpr bool kCodesAreNumbers = true;
  static constexpr int kTableCopies = 32, kScaledGroups = 2;
  static constexpr float kUnit = 1.0f;
  using Sections = List<ValueSection0>;
};

// Where each dimension of Q goes in the fragments of row 0; and the dimension of each row of O.
KV_TABLE u16 kKeyPlace[64] = {
    0, 2, 514, 4, 516, 518, 258, 768, 260, 262, 774, 256, 512, 770, 6, 772, 8, 10, 522, 12, 524, 526, 
    266, 776, 268, 270, 782, 264, 520, 778, 14, 780, 16, 18, 530, 20, 532, 534, 274, 784, 276, 278, 
    790, 272, 528, 786, 22, 788, 24, 26, 538, 28, 540, 542, 282, 792, 284, 286, 798, 280, 536, 794, 30, 
    796};
KV_TABLE u16 kValueOrder[64] = {
    0, 4, 8, 12, 16, 20, 24, 28, 3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30, 1, 5, 9, 
    13, 17, 21, 25, 29, 32, 36, 40, 44, 48, 52, 56, 60, 35, 39, 43, 47, 51, 55, 59, 63, 34, 38, 42, 46, 
    50, 54, 58, 62, 33, 37, 41, 45, 49, 53, 57, 61};

// wht_signed, groups of 64
struct KeyRotationSigns {
  static constexpr int kSize = 64;
  static constexpr float kNorm = 0.125f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[2] = {0xe46a0359, 0x42f85949};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[2] = {0x16acee90, 0x3f628fdc};
    return kWords[word];
  }
};
using KeyRotation = Wht<KeyRotationSigns>;

using KeyProjection = NoRotation;

struct KeyDomain {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = KeyRotation;
  using Projection = KeyProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
};

struct Plan {
  static constexpr int kKeyDim = 64, kValueDim = 64;
  static constexpr int kQueryDim = 64, kQueryStored = 64;  // of a row of Q: of the call, before its residual
  static constexpr int kOutputDim = 64, kOutputStored = 64;  // of a row of the output, and before its residual
  static constexpr int kGroup = 1, kRows = 1, kColumnBlocks = 1, kQueryTerms = 1;
  static constexpr int kQueryChunks = 1, kAllRows = 1;
  static constexpr bool kHoldQueries = true, kHasIntegerKeys = false, kScalesQueries = true;
  static constexpr bool kRotatesQueries = true, kFusesMerge = true, kMayNeedMergeKernel = false, kRotatesOutput = false;
  static constexpr int kWarps = 12, kThreads = 384, kStages = 2, kTile = 32, kSubtiles = 2;
  static constexpr int kTeam = 1, kValueShare = 1, kOwnBlocks = 1;
  static constexpr bool kSharesReferenceMax = false;
  static constexpr bool kScalesProbabilities = false;
  static constexpr bool kByWarpgroups = false;
  static constexpr int kSchedulerAt = 8192, kOrderAt = 8240, kIntegerTableAt = 8368;
  static constexpr int kQueriesAt = 8448, kSumsAt = 9472, kSumGroups = 0, kUnitsAt = 9472;
  static constexpr int kRingAt = 9600, kStageBytes = 1792, kEpilogueAt = 8448;
  static constexpr float kSumFactor = 0.0f;  // of integers: what a code stands for above its own
  using KeyCodes = KeySection0;
  using K = KeySide;
  using V = ValueSide;
  using Feature = NoFeature;
  using KeyDomain = kv::KeyDomain;
  KV_DEVICE static u32 load_query_bits(const void* data, i64 i) { return static_cast<const u16*>(data)[i]; }
  KV_DEVICE static float query_of(u32 bits) { return f32_from_f16(bits); }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
  KV_DEVICE static int key_place(int i) { return kKeyPlace[i]; }
  KV_DEVICE static bool is_bfloat([[maybe_unused]] u32 place) { return false; }
  KV_DEVICE static int value_order(int i) { return kValueOrder[i]; }
};
static_assert(KeySide::kStageBytes + ValueSide::kStageBytes == Plan::kStageBytes, "stages do not add up");

}  // namespace kv

static_assert(sizeof(kv::AttentionArgs) == 280, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(384, 1) kv_decode(KV_PARAM kv::AttentionArgs args) {
  kv::check_shared();
  kv::decode<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_decode_on_host(const void* args) {
  kv_decode(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// reference.b3_block64_lloyd_max_corrected_norm_wht_signed-b3_block32_uniform_amax.d64.g1.q1.planar.f16-f32.sm_75
// ======== the plan ========
namespace kv {

// b3_block64_lloyd_max_corrected_norm_wht_signed: 3.25 bits a value, 64 values in 26 bytes
KV_TABLE float kKeyFormatCodesValues[8] = {
    -0.2689932f, -0.16798866f, -0.09450066f, -0.030636773f, 0.030636773f, 0.09450066f, 0.16798866f, 
    0.2689932f};
KV_TABLE float kKeyFormatCodesBounds[7] = {
    -0.21849093f, -0.13124466f, -0.06256872f, 0.0f, 0.06256872f, 0.13124466f, 0.21849093f};
struct KeyFormatCodesData {
  static constexpr int kCount = 64, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kBounds = 7;
  KV_DEVICE static float value(u32 code) { return kKeyFormatCodesValues[code]; }
  KV_DEVICE static float bound(int i) { return kKeyFormatCodesBounds[i]; }
  KV_DEVICE static u32 cell_code(int cell) { return u32(cell); }
};
using KeyFormatCodes = TableCodes<KeyFormatCodesData>;

struct KeyFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 64, kGroup = 64;
  static constexpr int kCodeStride = 24, kScaleStride = 2, kRowUnit = 4;
  using Codes = KeyFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct ValueFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using ValueFormatCodes = UniformCodes<ValueFormatCodesData, HalfAway>;

struct ValueFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = ValueFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

struct Plan {
  static constexpr int kGroup = 1;
  using K = KeyFormat;
  using V = ValueFormat;
  using Feature = NoFeature;
  KV_DEVICE static float load_query(const void* data, i64 i) { return static_cast<const float*>(data)[i]; }
  KV_DEVICE static void store(void* data, i64 i, float v) { static_cast<float*>(data)[i] = v; }
};

}  // namespace kv

static_assert(sizeof(kv::AttentionArgs) == 280, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(32, 1) kv_reference(KV_PARAM kv::AttentionArgs args) {
  kv::reference<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_reference_on_host(const void* args) {
  kv_reference(*static_cast<const kv::AttentionArgs*>(args));
}
#endif

// quantize.b3_block64_lloyd_max_corrected_norm_wht_signed.d64.planar.sm_75
// ======== the plan ========
namespace kv {

// b3_block64_lloyd_max_corrected_norm_wht_signed: 3.25 bits a value, 64 values in 26 bytes
KV_TABLE float kStoredFormatCodesValues[8] = {
    -0.2689932f, -0.16798866f, -0.09450066f, -0.030636773f, 0.030636773f, 0.09450066f, 0.16798866f, 
    0.2689932f};
KV_TABLE float kStoredFormatCodesBounds[7] = {
    -0.21849093f, -0.13124466f, -0.06256872f, 0.0f, 0.06256872f, 0.13124466f, 0.21849093f};
struct StoredFormatCodesData {
  static constexpr int kCount = 64, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kBounds = 7;
  KV_DEVICE static float value(u32 code) { return kStoredFormatCodesValues[code]; }
  KV_DEVICE static float bound(int i) { return kStoredFormatCodesBounds[i]; }
  KV_DEVICE static u32 cell_code(int cell) { return u32(cell); }
};
using StoredFormatCodes = TableCodes<StoredFormatCodesData>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 64, kGroup = 64;
  static constexpr int kCodeStride = 24, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// wht_signed, groups of 64
struct PlanRotationSigns {
  static constexpr int kSize = 64;
  static constexpr float kNorm = 0.125f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[2] = {0xe46a0359, 0x42f85949};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[2] = {0x16acee90, 0x3f628fdc};
    return kWords[word];
  }
};
using PlanRotation = Wht<PlanRotationSigns>;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 64;
  static constexpr float kDivisor = 1.0f;
  using Rule = Norm;
  using Divide = UnitVector;
  using Refine = Matched;
};

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 80;
  using F = StoredFormat;
  using Encoder = RowEncoder;
  KV_DEVICE static void pad([[maybe_unused]] const StoredRow& to) {
  }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_on_host(const void* args) {
  kv_quantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize.b3_block32_uniform_amax.d64.planar.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 32;
  static constexpr float kDivisor = 3.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 80;
  using F = StoredFormat;
  using Encoder = RowEncoder;
  KV_DEVICE static void pad([[maybe_unused]] const StoredRow& to) {
  }
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::quantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_on_host(const void* args) {
  kv_quantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize.b3_block64_lloyd_max_corrected_norm_wht_signed.d64.planar.sm_75
// ======== the plan ========
namespace kv {

// b3_block64_lloyd_max_corrected_norm_wht_signed: 3.25 bits a value, 64 values in 26 bytes
KV_TABLE float kStoredFormatCodesValues[8] = {
    -0.2689932f, -0.16798866f, -0.09450066f, -0.030636773f, 0.030636773f, 0.09450066f, 0.16798866f, 
    0.2689932f};
KV_TABLE float kStoredFormatCodesBounds[7] = {
    -0.21849093f, -0.13124466f, -0.06256872f, 0.0f, 0.06256872f, 0.13124466f, 0.21849093f};
struct StoredFormatCodesData {
  static constexpr int kCount = 64, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kBounds = 7;
  KV_DEVICE static float value(u32 code) { return kStoredFormatCodesValues[code]; }
  KV_DEVICE static float bound(int i) { return kStoredFormatCodesBounds[i]; }
  KV_DEVICE static u32 cell_code(int cell) { return u32(cell); }
};
using StoredFormatCodes = TableCodes<StoredFormatCodesData>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 64, kGroup = 64;
  static constexpr int kCodeStride = 24, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

// wht_signed, groups of 64
struct PlanRotationSigns {
  static constexpr int kSize = 64;
  static constexpr float kNorm = 0.125f;  // 1 / sqrt(kSize)
  KV_DEVICE static u32 pre_signs(int word) {
    constexpr u32 kWords[2] = {0xe46a0359, 0x42f85949};
    return kWords[word];
  }
  KV_DEVICE static u32 post_signs(int word) {
    constexpr u32 kWords[2] = {0x16acee90, 0x3f628fdc};
    return kWords[word];
  }
};
using PlanRotation = Wht<PlanRotationSigns>;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 0;
  using F = StoredFormat;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize(KV_PARAM kv::CodecArgs args) {
  kv::dequantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_on_host(const void* args) {
  kv_dequantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize.b3_block32_uniform_amax.d64.planar.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kStored = 64;
  static constexpr bool kHasResidual = false, kIsOriginal = false, kHasChannels = false;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  KV_DEVICE static float channel([[maybe_unused]] int i) { return 1.f; }
  static constexpr int kWarps = 4, kWarpBytes = 0;
  using F = StoredFormat;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize(KV_PARAM kv::CodecArgs args) {
  kv::dequantize<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_on_host(const void* args) {
  kv_dequantize(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_blocks.b3_block32_uniform_amax.d64.planar.f16.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 32;
  static constexpr float kDivisor = 3.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct LaneEncoder : RowEncoder {
  using Lanes = InLane;
};

struct Plan {
  static constexpr int kHeadDim = 64, kThreads = 128, kValues = 32;
  using Encoder = LaneEncoder;
  using Words = F16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::quantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_blocks_on_host(const void* args) {
  kv_quantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_blocks.b3_block32_uniform_amax.d64.planar.bf16.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 32;
  static constexpr float kDivisor = 3.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct LaneEncoder : RowEncoder {
  using Lanes = InLane;
};

struct Plan {
  static constexpr int kHeadDim = 64, kThreads = 128, kValues = 32;
  using Encoder = LaneEncoder;
  using Words = Bf16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::quantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_blocks_on_host(const void* args) {
  kv_quantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// quantize_bulk_blocks.b3_block32_uniform_amax.d64.planar.f32.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct RowEncoder : EncoderDefaults {
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Projection = PlanProjection;
  static constexpr int kSpan = 32;
  static constexpr float kDivisor = 3.0f;
  using Rule = Amax;
  using Divide = Reciprocal;
  using Refine = AsFound;
};

struct LaneEncoder : RowEncoder {
  using Lanes = InLane;
};

struct Plan {
  static constexpr int kHeadDim = 64, kThreads = 128, kValues = 32;
  using Encoder = LaneEncoder;
  using Words = F32Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_quantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::quantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_quantize_bulk_blocks_on_host(const void* args) {
  kv_quantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk_blocks.b3_block32_uniform_amax.d64.planar.f16.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kThreads = 128, kValues = 32;
  static constexpr int kRowLanes = 2;
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Words = F16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_blocks_on_host(const void* args) {
  kv_dequantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk_blocks.b3_block32_uniform_amax.d64.planar.bf16.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kThreads = 128, kValues = 32;
  static constexpr int kRowLanes = 2;
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Words = Bf16Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_blocks_on_host(const void* args) {
  kv_dequantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

// dequantize_bulk_blocks.b3_block32_uniform_amax.d64.planar.f32.sm_75
// ======== the plan ========
namespace kv {

// b3_block32_uniform_amax: 3.5 bits a value, 32 values in 14 bytes
struct StoredFormatCodesData {
  static constexpr int kCount = 32, kBits = 3;
  static constexpr u32 kCodeXor = 0x0;
  using Fields = CodeFields<CodeField<0, 3, 0, 0>>;
  static constexpr int kOffset = 4, kLeast = 1, kMost = 7;
};
using StoredFormatCodes = UniformCodes<StoredFormatCodesData, HalfAway>;

struct StoredFormat : FormatDefaults {
  static constexpr bool kIsPlanar = true;
  static constexpr int kStored = 64, kBlock = 32, kGroup = 32;
  static constexpr int kCodeStride = 12, kScaleStride = 2, kRowUnit = 4;
  using Codes = StoredFormatCodes;
  static constexpr bool kHasScale = true;
  static constexpr int kScaleAt = 0;
  using Number = F16;
};

using PlanRotation = NoRotation;

using PlanProjection = NoRotation;

struct Plan {
  static constexpr int kHeadDim = 64, kThreads = 128, kValues = 32;
  static constexpr int kRowLanes = 2;
  using F = StoredFormat;
  using Rotation = PlanRotation;
  using Words = F32Words;
};

}  // namespace kv

static_assert(sizeof(kv::CodecArgs) == 152, "host and device disagree on the arguments");

KV_KERNEL KV_LAUNCH_BOUNDS(128, 1) kv_dequantize_bulk_blocks(KV_PARAM kv::CodecArgs args) {
  kv::check_shared();
  kv::dequantize_bulk_blocks<kv::Plan>(args);
}
#if !defined(__CUDACC__)
extern "C" __attribute__((visibility("default"))) void kv_dequantize_bulk_blocks_on_host(const void* args) {
  kv_dequantize_bulk_blocks(*static_cast<const kv::CodecArgs*>(args));
}
#endif

