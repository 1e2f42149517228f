// A program that speaks TLS.

#include <redlatch/redlatch.hpp>
#include <redlatch/tls.hpp>

int main() {
    redlatch::Client client{{.uris = {"rediss://localhost"}, .tls = redlatch::tls()}};
}
