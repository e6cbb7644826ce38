// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mpt::test {

/// Expects `text` to equal the file tests/golden/<name>, in which "%any" matches anything up to the end of
/// the line: for facts of a machine such as seconds. With MPT_UPDATE_GOLDEN=1 in the environment
/// (scripts/update_golden) the file is written instead and the test fails, so that an update is never
/// mistaken for a pass.
void expect_golden(const std::string& name, const std::string& text);

/// The same for a file anywhere in the source tree, without placeholders.
void expect_source_file(const std::string& path, const std::string& text);

/// The same for the part of such a file that follows `head` up to the next empty line or the end.
void expect_part_of_file(const std::string& path, const std::string& head, const std::string& text);

}  // namespace mpt::test
