// Runs a program with one more argument, the URI of a redis-server that lives as long as it: with_redis ./quickstart

#include <redlatch/testing.hpp>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fputs("usage: with_redis PROGRAM [ARGUMENT...]\n", stderr);
        return 2;
    }
    try {
        const redlatch::TestServer server;
        std::string uri = server.uri();
        std::vector<char*> words{argv + 1, argv + argc};
        words.push_back(uri.data());
        words.push_back(nullptr);
        ::pid_t program = 0;
        if (::posix_spawnp(&program, words[0], nullptr, nullptr, words.data(), environ) != 0) {
            std::fprintf(stderr, "with_redis: cannot start %s\n", words[0]);
            return 1;
        }
        int status = 0;
        ::waitpid(program, &status, 0);
        if (!WIFEXITED(status)) return 1;
        std::printf("it ended with %d\n", WEXITSTATUS(status));
        return WEXITSTATUS(status);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "with_redis: %s\n", error.what());
        return 1;
    }
}
