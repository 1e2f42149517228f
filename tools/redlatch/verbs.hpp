#pragma once

#include "command_line.hpp"

#include <memory>

namespace tool {

// Each carries out what the user asks for and returns the exit code. They throw `redlatch::LockError` and
// `std::system_error`.
int run(const Settings& settings);
int status(const Settings& settings);
int take_away(const Settings& settings);

/// Says why a lock could not be looked at. Returns the exit code.
int failed(const Settings& settings, const redlatch::Error& error);

/// The client for `settings.uris`.
redlatch::Client make_client(const Settings& settings,
                             std::shared_ptr<redlatch::Observer> observer = nullptr);

/// One line on standard error, unless the user wants none.
void complain(const Settings& settings, const std::string& line);

}  // namespace tool
