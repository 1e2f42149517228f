# Sourced by .ci/newer_hiredis and .ci/valkey: packages of another Debian suite, fetched into a folder. The
# system's own sources, packages and lists stay as they are.

# other_suite <deb or deb-src> <suite> <folder>: `suite_apt` then is an apt-get that knows that suite alone.
other_suite() {
    local type=$1 suite=$2 folder=$3 mirror

    # Debian's archive as the system itself reaches it, whatever mirror that is.
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(SUITE) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        awk '$3 == "Debian" && $2 !~ /security/ { print $1; exit }')
    if [[ -z $mirror ]]; then
        say "Found no Debian archive among this system's package sources."
        return 1
    fi

    mkdir -p "$folder"/{lists,cache}
    cat >"$folder/debian.sources" <<END
Types: $type
URIs: $mirror
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
    # As whoever runs this: apt's own user may not write here.
    suite_apt=(apt-get -qq
        -o Dir::Etc::sourcelist="$folder/debian.sources" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::lists="$folder/lists" -o Dir::Cache="$folder/cache"
        -o APT::Sandbox::User=)
    "${suite_apt[@]}" update >&2
}
