# Completion of redlatch(1) for bash.
_redlatch() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} i
    COMPREPLY=()
    for ((i = 2; i < COMP_CWORD; ++i)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        [[ ${COMP_WORDS[1]} == run ]] || return
        if declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        elif ((COMP_CWORD == i + 1)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$word" | sort -u)
        else
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
        fi
        return
    done
    # An equals sign is a word of its own.
    if [[ $word == = ]]; then
        word=
    elif [[ $previous == = ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    case $previous in
        --uri-file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return ;;
        -u | --uri | --key-space | -w | --wait | -l | --lease | -k | --kill-after | --at-least | --longest-lease | --permits) return ;;
        -E | --exit-code) return ;;
    esac
    local words
    if ((COMP_CWORD == 1)); then
        words='run status break --help --version'
    else
        case ${COMP_WORDS[1]} in
            run) words='--wait --no-wait --lease --kill-after --at-least --longest-lease --shared --exclusive --permits
                --uri --uri-file --key-space --no-fence --stoppable --exit-code --quiet --verbose --help --version --' ;;
            status) words='--json --uri --uri-file --key-space --exit-code --quiet --help --version' ;;
            break) words='--yes --uri --uri-file --key-space --exit-code --quiet --help --version' ;;
            *) return ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _redlatch redlatch
