# Sourced by scripts of .ci: packages of another Debian suite, fetched into a folder. The
# system's own sources, packages and lists stay as they are.

# mirror: prints Debian's archive as the system itself reaches it.
mirror() {
    local address
    address=$(apt-get indextargets --format '$(REPO_URI) $(SUITE) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        awk '$3 == "Debian" && $2 !~ /security/ { print $1; exit }')
    if [[ -z $address ]]; then
        say "Found no Debian archive among this system's package sources."
        return 1
    fi
    printf '%s\n' "$address"
}

# other_suite <deb or deb-src> <suite> <folder>: `suite_apt` then is an apt-get that knows that suite alone.
other_suite() {
    local type=$1 suite=$2 folder=$3 address
    address=$(mirror) || return
    mkdir -p "$folder"/{lists,cache}
    cat >"$folder/debian.sources" <<END
Types: $type
URIs: $address
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    # As whoever runs this: apt's own user may not write here. It knows nothing of what is installed, whose
    # versions it would prefer.
    suite_apt=(apt-get -qq
        -o Dir::Etc::sourcelist="$folder/debian.sources" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache"
        -o Dir::State::status=/dev/null -o APT::Sandbox::User=)
    "${suite_apt[@]}" update >&2
}

# unpacked <suite> <name> <package>...: prints the folder that has the files of these packages. They are not installed.
# (`|| return`, as `set -e` does not reach into `$(unpacked …)`.)
unpacked() {
    local suite=$1 folder=$PWD/build/$2-$1 package
    shift 2
    if [[ ! -e $folder/complete ]]; then
        rm -rf "$folder"
        mkdir -p "$folder/packages"
        say "Fetching $* from $suite"
        other_suite deb "$suite" "$folder" || return
        (cd "$folder/packages" && "${suite_apt[@]}" download "$@" >&2) || return
        for package in "$folder"/packages/*.deb; do dpkg-deb --extract "$package" "$folder/root" || return; done
        rm -rf "$folder/cache" "$folder/lists" "$folder/packages"
        touch "$folder/complete"
    fi
    printf '%s\n' "$folder/root"
}
