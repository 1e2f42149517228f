#pragma once

#include "harness/statistics.hpp"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace redlatch::bench {

/// What all of the programs that measure with processes of their own are told.
struct Arguments {
    Seconds seconds{10};  ///< how long one row measures in each round
    int rounds = 1;
    int attempts = 100;  ///< of each thread, where the work is fixed instead of the time
    std::chrono::microseconds round_trip{0};  ///< how far away the server is made to look
    std::string filter{};                     ///< rows whose names contain it
    std::string json{};                       ///< a file for the figures

    bool wants(std::string_view row) const { return row.find(filter) != std::string_view::npos; }
};

/// All of `text`, or it throws.
inline double number(const std::string& text) {
    std::size_t end = 0;
    const double value = std::stod(text, &end);
    if (end != text.size() || !std::isfinite(value)) throw std::invalid_argument{text};
    return value;
}
inline int count(const std::string& text) {
    std::size_t end = 0;
    const int value = std::stoi(text, &end);
    if (end != text.size()) throw std::invalid_argument{text};
    return value;
}

/// Reads `--name value` and `--name=value`; ends the program if it cannot.
inline Arguments read_arguments(int argc, char** argv, Arguments result) {
    const std::map<std::string, std::function<void(const std::string&)>, std::less<>> readers{
        {"--seconds", [&](const std::string& text) { result.seconds = Seconds{number(text)}; }},
        {"--rounds", [&](const std::string& text) { result.rounds = count(text); }},
        {"--attempts", [&](const std::string& text) { result.attempts = count(text); }},
        {"--round-trip-ms",
         [&](const std::string& text) {
             const double milliseconds = number(text);
             if (milliseconds > 60'000) throw std::invalid_argument{text};
             result.round_trip = std::chrono::round<std::chrono::microseconds>(
                 std::chrono::duration<double, std::milli>{milliseconds});
         }},
        {"--filter", [&](const std::string& text) { result.filter = text; }},
        {"--json", [&](const std::string& text) { result.json = text; }}};
    try {
        for (int i = 1; i < argc; ++i) {
            const std::string word = argv[i];
            const auto equals = word.find('=');
            const auto reader = readers.find(word.substr(0, equals));
            if (reader == readers.end()) throw std::invalid_argument{word};
            if (equals == std::string::npos && ++i == argc) throw std::invalid_argument{word};
            reader->second(equals == std::string::npos ? argv[i] : word.substr(equals + 1));
        }
        if (result.seconds <= Seconds{0} || result.rounds < 1 || result.attempts < 1 ||
            result.round_trip.count() < 0) {
            throw std::invalid_argument{"a number that is too small"};
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "not understood: %s\nusage: %s", e.what(), argv[0]);
        for (const auto& [name, reader] : readers) std::fprintf(stderr, " [%s ...]", name.c_str());
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    return result;
}

/// The whole of such a program: its exit code.
inline int run_program(int (*run)(const Arguments&), int argc, char** argv,
                       const Arguments& usual = {}) {
    const Arguments arguments = read_arguments(argc, argv, usual);
    try {
        return run(arguments);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}

}  // namespace redlatch::bench
