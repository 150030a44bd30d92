// Golden bytes of published formats: the stored form of test::golden_input(128), in memory order of layout rows. Origin
// "C": the source project's own reference, compiled. Origin "P": an independent implementation in double precision that
// reproduces every image of origin "C". No rotated value lies nearer than 2e-4 (in units of the scale) to a bound
// between codes, so float32 implementations must match exactly.
//
// A golden that is shorter than the row holds its first block (or first group). Some source projects store a format in
// sections. Their goldens are stated as data followed by scale, which is how layout rows stores them. Layout planar
// splits a block at the code fields of `Format`.
// SPDX-License-Identifier: MIT
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvjit::test {

struct Golden {
  const char* format;
  char origin;      // 'C' or 'P'
  const char* hex;  // first block or blocks of the row
};

inline constexpr Golden kGoldens[] = {
    {"tbq4_wht_dfirst_corr", 'C',
     "1d4df768ca446a59c59837a55278ad667ce8ad867646932d8b84a9b727b8587a7c0887491794624c7699941769c25e2e956b8f657d714956"
     "cdcb55936ca388326935"},
    {"turbo4_66_pr197", 'P',
     "194df768ca446a59c59837a55278ad667ce8ad867646932d8b84b9b727b8587a7c0887491794614c7699941769c15e2e956b8f657d714956"
     "cdcb55936ca388326935"},
    {"turbo4_legacy68", 'C',
     "594d0000f758eb335c3ae39816c44069be647df8cf857635911e8c93cad707d8497b6e09862907a3502e64baa20659d03f1f945c9f647f70"
     "2a45deed34b14ec188215a14"},
    {"turbo3_qk128", 'C',
     "294dcfa98d0a67c8e6ce36bf61217487d80e8323ac4e318c7bd2e3ceb49a5a5a506c36e548d30bb6cb5586c4926513f19813"},
    {"turbo3_qk32", 'C',  // the codes of turbo3_qk128 in four blocks, each behind its norm
     "294dcfa98d0a67c8e6ce36e548d3294d36bf61217487d80e0bb6cb55294d8323ac4e318c7bd286c49265294de3ceb49a5a5a506c13f198"
     "13"},
    {"turbo2_qk128", 'C', "9d4d6d5e66ad91645be79b55389a9ae16627699174a518c637695b4752ef85870a16"},
    {"turbo4_qjl68", 'P',
     "234dad313b574b1d25938b0a71aee6f1eeb84da1538aecbad054e71123358898a5b1e1c0c1d72376a7e661cc64d7526aa564c229939cd88a"
     "a00f55a3d0cc4c9fc4e6f03c"},
    {"turbo_split2_b", 'P', "874d233588b3786e1833d935134e6d5e66ad91645be79b55389a9ae166279418c637695d78280000"},
    {"tbq4_dense_qsfirst_raw", 'P',
     "5494777772ecd9c31e95c283366973ab8a7b7814a7a793c6996c9db89f796957994ca46a9d4b46ebb8ac96cc49741455cc2b8a87994c6218"
     "a459c566b5b67d66234d"},
    {"tq3_0_s2", 'P', "6829aa6b5695591a91c042880042"},
    {"atlas_turbo4", 'P', "f768da446b49c4983d"},
    {"atlas_turbo3", 'P', "3b474b1d25933f"},
    {"atlas_turbo2", 'P', "6d5a66a943"},
    {"atlas_turbo8", 'P', "cb7e52ea6d78f2f271ea69f1f0765464203c"},
    {"atlas_nvfp4", 'P', "9fe6724dafe6703d2f"},
    {"fp8_e4m3", 'P', "c2a041be3043ba39c4b13ec11842bd33"},
    {"q4_0", 'C', "4036f258be1379df359bf147ac0268ce248a"},
    {"q4_1", 'C', "893640c2f257bd1379cf358ae146ac0268bd2479"},
    {"q5_0", 'C', "4032b4b4a525f4bf7b27e3ae5a16d19d4904c08c38f4"},
    {"q5_1", 'C', "533240c2b4b4a525f3bf6b27e2ae5a16d19d4904c07c38f3"},
    {"q8_0", 'C', "4d269dfb59b61472d02e8be947a50361be1c7ad73593f14fac0a68c62481df3d9af8"},
    {"iq4_nl", 'C', "5426f157ce137adf249cf036bd0258ce137a"},
    {"mxfp4", 'C', "7e7ec056fe9267ec147fda35feb056ed93"},
    {"nvfp4", 'C', "2f303030ffa966ee0277dd3477dc35ffb956ee9156ee0267dc247fca347fba56fe9166ed"},
};

inline std::vector<std::uint8_t> bytes_of_hex(std::string_view hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(std::uint8_t(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

inline std::string hex_of(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  for (const std::uint8_t b : bytes) text += "0123456789abcdef"[b >> 4], text += "0123456789abcdef"[b & 15];
  return text;
}

}  // namespace kvjit::test
