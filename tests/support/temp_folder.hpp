#pragma once

#include <sys/types.h>

#include <string>

namespace redlatch::test {

/// A private folder with a path short enough for Unix sockets in it, removed with its content by
/// the destructor. A forked child that destroys its copy removes nothing.
class TempFolder {
public:
    TempFolder();
    ~TempFolder();

    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

    /// The path of a file in the folder.
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
    pid_t owner_;
};

}  // namespace redlatch::test
