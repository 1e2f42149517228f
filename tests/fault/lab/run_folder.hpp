#pragma once

#include <string>

namespace redlatch::test::fault {

/// A new folder for the files of one run, removed at the end unless it is to be kept.
class RunFolder {
public:
    explicit RunFolder(const std::string& name);
    ~RunFolder();
    RunFolder(const RunFolder&) = delete;
    RunFolder& operator=(const RunFolder&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    void keep() { kept_ = true; }

private:
    std::string path_;
    bool kept_ = false;
};

}  // namespace redlatch::test::fault
