# Functions for job submission verifiers that are shell scripts: source this file, define jsv_on_start and
# jsv_on_verify, and call jsv_main. For bash, ksh and any shell with eval; names and values are never evaluated as code.
#
#   #!/bin/sh
#   jsv_on_start() { jsv_send_env; }
#   jsv_on_verify() {
#       if [ "$(jsv_get_param b)" = y ]; then jsv_reject "no binary jobs"; return; fi
#       jsv_sub_add_param l_hard h_rt 3600
#       jsv_correct "the limit is an hour"
#   }
#   . "$SGE_ROOT/util/resources/jsv/jsv_include.sh"
#   jsv_main

# Parameters and variables of the job are in shell variables jsv_p_NAME and jsv_e_NAME; their names in these lists.
jsv_params=""
jsv_envs=""
jsv_state=initialized

jsv__is_name() {
    case "$1" in
    "" | *[!A-Za-z0-9_]*) return 1 ;;
    esac
    return 0
}

jsv_clear_params() {
    for jsv__name in $jsv_params; do unset "jsv_p_$jsv__name"; done
    jsv_params=""
}
jsv_clear_envs() {
    for jsv__name in $jsv_envs; do unset "jsv_e_$jsv__name"; done
    jsv_envs=""
}

jsv__listed() {
    case " $1 " in
    *" $2 "*) return 0 ;;
    esac
    return 1
}

jsv__without() {
    jsv__rest=""
    for jsv__name in $1; do
        [ "$jsv__name" = "$2" ] || jsv__rest="$jsv__rest $jsv__name"
    done
}

jsv__keep_param() {
    jsv__is_name "$1" || return 0
    jsv__listed "$jsv_params" "$1" || jsv_params="$jsv_params $1"
    eval "jsv_p_$1=\$2"
}

jsv__keep_env() {
    jsv__is_name "$1" || return 0
    jsv__listed "$jsv_envs" "$1" || jsv_envs="$jsv_envs $1"
    eval "jsv_e_$1=\$2"
}

jsv_send_command() { printf '%s\n' "$*"; }
jsv_send_env() { jsv_send_command "SEND ENV"; }

# Puts the value of a parameter into jsv__v; no process is started for it.
jsv__load() {
    jsv__v=""
    if jsv_is_param "$1"; then eval "jsv__v=\$jsv_p_$1"; fi
}

# What stands behind the first word, into jsv__v.
jsv__behind() {
    case "$1" in
    *" "*) jsv__v=${1#* } ;;
    *) jsv__v="" ;;
    esac
}

jsv_is_param() { jsv__is_name "$1" && jsv__listed "$jsv_params" "$1"; }
jsv_get_param() {
    jsv_is_param "$1" || return 0
    eval "printf '%s\n' \"\$jsv_p_$1\""
}
jsv_set_param() {
    jsv__is_name "$1" || return 1
    jsv__keep_param "$1" "$2"
    jsv_send_command "PARAM $1 $2"
}
jsv_del_param() {
    jsv_is_param "$1" || return 0
    jsv__without "$jsv_params" "$1"
    jsv_params=$jsv__rest
    unset "jsv_p_$1"
    jsv_send_command "PARAM $1 "
}
jsv_show_params() {
    for jsv__own in $jsv_params; do jsv_log_info "got param: $jsv__own=$(jsv_get_param "$jsv__own")"; done
}

# Lists such as l_hard: name=value,name=value
jsv_sub_is_param() {
    jsv__load "$1"
    case ",$jsv__v," in
    *",$2="* | *",$2,"*) return 0 ;;
    esac
    return 1
}
jsv_sub_get_param() {
    jsv__load "$1"
    jsv__list=$jsv__v
    while [ -n "$jsv__list" ]; do
        jsv__item=${jsv__list%%,*}
        case "$jsv__item" in
        "$2="*)
            printf '%s\n' "${jsv__item#*=}"
            return 0
            ;;
        esac
        case "$jsv__list" in
        *,*) jsv__list=${jsv__list#*,} ;;
        *) jsv__list="" ;;
        esac
    done
}
jsv__sub_others() {
    jsv__others=""
    jsv__load "$1"
    jsv__list=$jsv__v
    while [ -n "$jsv__list" ]; do
        jsv__item=${jsv__list%%,*}
        case "$jsv__item" in
        "$2" | "$2="*) ;;
        *) jsv__others="${jsv__others:+$jsv__others,}$jsv__item" ;;
        esac
        case "$jsv__list" in
        *,*) jsv__list=${jsv__list#*,} ;;
        *) jsv__list="" ;;
        esac
    done
}
jsv_sub_add_param() {
    jsv__sub_others "$1" "$2"
    jsv__item=$2
    [ -z "$3" ] || jsv__item="$2=$3"
    jsv_set_param "$1" "${jsv__others:+$jsv__others,}$jsv__item"
}
jsv_sub_del_param() {
    jsv_sub_is_param "$1" "$2" || return 0
    jsv__sub_others "$1" "$2"
    jsv_set_param "$1" "$jsv__others"
}

jsv_is_env() { jsv__is_name "$1" && jsv__listed "$jsv_envs" "$1"; }
jsv_get_env() {
    jsv_is_env "$1" || return 0
    eval "printf '%s\n' \"\$jsv_e_$1\""
}
jsv_add_env() { jsv__keep_env "$1" "$2" && jsv_send_command "ENV ADD $1 $2"; }
jsv_mod_env() { jsv__keep_env "$1" "$2" && jsv_send_command "ENV MOD $1 $2"; }
jsv_set_env() { if jsv_is_env "$1"; then jsv_mod_env "$@"; else jsv_add_env "$@"; fi; }
jsv_del_env() {
    jsv_is_env "$1" || return 0
    jsv__without "$jsv_envs" "$1"
    jsv_envs=$jsv__rest
    unset "jsv_e_$1"
    jsv_send_command "ENV DEL $1"
}
jsv_show_envs() {
    for jsv__own in $jsv_envs; do jsv_log_info "got env: $jsv__own=$(jsv_get_env "$jsv__own")"; done
}

jsv__result() {
    [ "$jsv_state" = verifying ] || return 0
    jsv_state=initialized
    jsv_send_command "RESULT STATE $1${2:+ $2}"
}
jsv_accept() { jsv__result ACCEPT "$1"; }
jsv_correct() { jsv__result CORRECT "$1"; }
jsv_reject() { jsv__result REJECT "$1"; }
jsv_reject_wait() { jsv__result REJECT_WAIT "$1"; }
jsv_log_info() { jsv_send_command "LOG INFO $1"; }
jsv_log_warning() { jsv_send_command "LOG WARNING $1"; }
jsv_log_error() { jsv_send_command "LOG ERROR $1"; }

jsv_main() {
    while IFS= read -r jsv_line; do
        jsv__word=${jsv_line%% *}
        jsv__rest=${jsv_line#"$jsv__word"}
        jsv__rest=${jsv__rest# }
        case "$jsv__word" in
        QUIT) return 0 ;;
        START)
            jsv_clear_params
            jsv_clear_envs
            jsv_on_start
            jsv_state=started
            jsv_send_command STARTED
            ;;
        PARAM)
            jsv__behind "$jsv__rest"
            jsv__keep_param "${jsv__rest%% *}" "$jsv__v"
            ;;
        ENV)
            jsv__rest=${jsv__rest#* }
            jsv__behind "$jsv__rest"
            jsv__keep_env "${jsv__rest%% *}" "$jsv__v"
            ;;
        BEGIN)
            jsv_state=verifying
            jsv_on_verify
            if [ "$jsv_state" = verifying ]; then jsv_accept; fi
            ;;
        *) jsv_send_command "ERROR unknown command: $jsv__word" ;;
        esac
    done
}
