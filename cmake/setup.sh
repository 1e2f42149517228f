# Sourced by tests/run, examples/run and .ci/run: what they need, and how it gets installed.

tools=(cmake ninja-build g++ pkg-config redis-server)
libraries=(libhiredis-dev)
test_libraries=(libssl-dev openssl libgtest-dev libbenchmark-dev liblua5.1-0-dev nlohmann-json3-dev
    lua-check libasio-dev libboost1.81-dev)

say() { printf '%s\n' "$*" >&2; }

# install_packages <Debian package>...: installs those that are missing, nothing if none is.
install_packages() {
    if ! { command -v apt-get && command -v dpkg-query; } >/dev/null; then
        check_programs
        return
    fi

    local package missing=() as_root=()
    for package; do
        if [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
            missing+=("$package")
        fi
    done
    if ((${#missing[@]} == 0)); then return; fi

    if ((EUID != 0)); then
        if ! command -v sudo >/dev/null; then
            say "Missing packages, and neither root nor sudo to install them. As root:"
            say "    apt-get install ${missing[*]}"
            return 1
        fi
        as_root=(sudo)
    fi
    say "Installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq || return
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null || return

    # Where an init system runs, installing redis-server starts it. Nobody asked for that: the tests and
    # examples start servers of their own.
    if [[ " ${missing[*]} " == *" redis-server "* ]]; then
        if [[ -d /run/systemd/system ]]; then
            "${as_root[@]}" systemctl disable --quiet --now redis-server
        else
            "${as_root[@]}" service redis-server stop >/dev/null 2>&1 || true
        fi
    fi
}

# install_other_clients: the other lock clients that some tests and benchmarks need. Where they cannot be
# had, these are skipped.
install_other_clients() {
    local packages=(python3-redis)
    if ! { command -v node && command -v npm; } >/dev/null; then packages+=(nodejs npm); fi
    install_packages "${packages[@]}" || true
    tests/interop/install
}

# Without Debian's packages: says what to install.
check_programs() {
    local program missing=()
    for program in cmake ninja g++ pkg-config redis-server; do
        if ! command -v "$program" >/dev/null; then missing+=("$program"); fi
    done
    if ((${#missing[@]} == 0)); then return; fi
    say "Missing: ${missing[*]}"
    say "Install CMake 3.25 or newer, Ninja, g++, pkg-config, redis-server, and the development files of"
    say "hiredis, GoogleTest, Google Benchmark, nlohmann-json and Lua 5.1."
    return 1
}
