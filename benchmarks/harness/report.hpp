#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::bench {

struct Column {
    std::string_view key;    ///< in the JSON
    std::string_view title;  ///< in the table
    int decimals = 0;
};

/// Prints rows as they come, and writes them to a file as JSON at the end. A figure that is not a
/// number means "does not apply".
class Report {
public:
    Report(std::string_view program, std::vector<Column> columns, std::string json)
        : program_(program), columns_(std::move(columns)), json_(std::move(json)) {}

    void row(const std::string& name, const std::vector<double>& figures) {
        print_titles();
        std::printf("%-*s", name_width, name.c_str());
        std::string fields;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const std::string text = number(figures[i], columns_[i].decimals, "-");
            std::printf(" %*s", width(columns_[i]), text.c_str());
            fields += ", \"" + std::string{columns_[i].key} +
                      "\": " + number(figures[i], precise_decimals, "null");
        }
        std::printf("\n");
        std::fflush(stdout);
        add(name, fields);
    }

    /// A row without figures, as they would be wrong.
    void failed(const std::string& name, const std::string& why) {
        print_titles();
        std::printf("%-*s %s\n", name_width, name.c_str(), why.c_str());
        std::fflush(stdout);
        add(name, R"(, "error": ")" + escaped(why) + "\"");
        failed_ = true;
    }

    /// Writes the JSON if there is to be one and a row to be in it. Returns what main() should.
    int finish() const {
        if (!json_.empty() && !rows_.empty()) {
            std::ofstream file{json_};
            file << "[" << rows_ << "\n]\n";
            if (!file.flush()) std::fprintf(stderr, "cannot write %s\n", json_.c_str());
            if (!file) return 1;
        }
        return failed_ ? 1 : 0;
    }

private:
    static constexpr int name_width = 40;
    static constexpr int precise_decimals = 6;

    static int width(const Column& column) {
        constexpr std::size_t narrowest = 7;
        return static_cast<int>(std::max(column.title.size(), narrowest));
    }

    static std::string number(double value, int decimals, const char* otherwise) {
        if (!std::isfinite(value)) return otherwise;
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
        return text.data();
    }

    static std::string escaped(const std::string& text) {
        std::string result;
        for (const char c : text) {
            if (c == '"' || c == '\\') result += '\\';
            result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
        }
        return result;
    }

    void print_titles() {
        if (std::exchange(titled_, true)) return;
        std::printf("%-*s", name_width, "");
        for (const Column& column : columns_) {
            std::printf(" %*.*s", width(column), static_cast<int>(column.title.size()),
                        column.title.data());
        }
        std::printf("\n");
    }

    void add(const std::string& name, const std::string& fields) {
        rows_ += std::string{rows_.empty() ? "\n" : ",\n"} + R"(  {"program": ")" + program_ +
                 R"(", "name": ")" + name + "\"" + fields + "}";
    }

    std::string program_;
    std::vector<Column> columns_;
    std::string json_;
    std::string rows_;
    bool titled_ = false;
    bool failed_ = false;
};

}  // namespace redlatch::bench
