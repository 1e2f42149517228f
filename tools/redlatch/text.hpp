#pragma once

#include <string>
#include <string_view>

namespace tool {

/// Whether it is printable ASCII.
bool is_plain(char c);

/// The two hexadecimal digits of a byte.
std::string hex_of(char c);

/// Bytes as text for a terminal: all but printable ASCII as `\xNN`.
std::string printable(std::string_view bytes);

/// An owner token as a terminal shows it.
std::string printable_owner(std::string_view token);

bool is_uri(std::string_view word);

/// A word of the command line as a message has it, in one line. Of a URI, which may have a password, it says only that
/// it is one.
std::string shown(std::string_view word);

}  // namespace tool
