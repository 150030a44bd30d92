// resolve_side: looks up a format by name or makes an inline format, and then applies the calibration.
// SPDX-License-Identifier: MIT
#include "generator/catalogue/side_format.hpp"

namespace kvjit {

Result<Format> resolve_side(const SideSpec& side, const Spec& spec, const std::string& key, const Registry& registry) {
  const auto uncalibrated = [&]() -> Result<Format> {
    if (side.format.empty()) {
      KV_TRY(format, inline_format(side, registry));
      KV_CHECK(check_head_dim(format, spec.dim_of(key), spec.where_of_dim(key)));
      return format;
    }
    KV_CHECK(registry.format(side.format, spec.where(key + ".format")));
    return registry.format_for(side.format, spec.dim_of(key), spec.where_of_dim(key));
  };
  KV_TRY(format, uncalibrated());
  if (side.swizzles_scales) format.swizzles_scales = true, format.name += ".4x4";
  if (!side.calibration) return {std::move(format)};
  const Where where = spec.where(key + ".calibration");
  KV_TRY(calibration, registry.calibration(*side.calibration, where));
  KV_CHECK(check_calibration(*calibration, spec.dim_of(key), where));
  return calibrated(std::move(format), *calibration, where);
}

}  // namespace kvjit
