// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the plots that stand alone have in common.

namespace mpt::reports {

/// A plot of about 700 units is shown on 340 pixels there: 21 of them are the 10 pixels that can be read.
/// As specific as the page's own rule for drawings, and after it.
inline constexpr const char* kLargerOnPhones =
    "@media(max-width:760px){svg text{font-size:21px}svg .title{font-size:23px}}";

}  // namespace mpt::reports
