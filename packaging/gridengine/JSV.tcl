# Functions for job submission verifiers in Tcl: source this file, define jsv_on_start and jsv_on_verify, and call jsv_main.
#
#   source $env(SGE_ROOT)/util/resources/jsv/JSV.tcl
#   proc jsv_on_start {} { jsv_send_env }
#   proc jsv_on_verify {} {
#       if {[jsv_get_param b] eq "y"} { jsv_reject "no binary jobs"; return }
#       jsv_sub_add_param l_hard h_rt 3600
#       jsv_correct "the limit is an hour"
#   }
#   jsv_main

array set jsv_params {}
array set jsv_envs {}
set jsv_is_verifying 0

# A line break within a value would be a command of its own.
proc jsv_send_command {line} {
    puts stdout [string map [list "\n" " " "\r" " "] $line]
    flush stdout
}
proc jsv_send_env {} { jsv_send_command "SEND ENV" }

proc jsv_clear_params {} { array unset ::jsv_params }
proc jsv_clear_envs {} { array unset ::jsv_envs }

proc jsv_is_param {name} { info exists ::jsv_params($name) }
proc jsv_get_param {name} {
    if {[jsv_is_param $name]} { return $::jsv_params($name) }
    return ""
}
proc jsv_set_param {name value} {
    set ::jsv_params($name) $value
    jsv_send_command "PARAM $name $value"
}
proc jsv_del_param {name} {
    if {![jsv_is_param $name]} { return }
    unset ::jsv_params($name)
    jsv_send_command "PARAM $name "
}
proc jsv_show_params {} {
    foreach name [lsort [array names ::jsv_params]] { jsv_log_info "got param: $name=$::jsv_params($name)" }
}

# Lists such as l_hard: name=value,name=value
proc jsv__items {list} {
    set items {}
    foreach item [split [jsv_get_param $list] ,] {
        if {$item ne ""} { lappend items $item }
    }
    return $items
}
proc jsv__others {list name} {
    set others {}
    foreach item [jsv__items $list] {
        if {[lindex [split $item =] 0] ne $name} { lappend others $item }
    }
    return $others
}
proc jsv_sub_is_param {list name} {
    expr {[llength [jsv__items $list]] != [llength [jsv__others $list $name]]}
}
proc jsv_sub_get_param {list name} {
    foreach item [jsv__items $list] {
        set parts [split $item =]
        if {[lindex $parts 0] eq $name} { return [join [lrange $parts 1 end] =] }
    }
    return ""
}
proc jsv_sub_add_param {list name {value ""}} {
    set item $name
    if {$value ne ""} { set item "$name=$value" }
    jsv_set_param $list [join [concat [jsv__others $list $name] [list $item]] ,]
}
proc jsv_sub_del_param {list name} {
    if {![jsv_sub_is_param $list $name]} { return }
    jsv_set_param $list [join [jsv__others $list $name] ,]
}

proc jsv_is_env {name} { info exists ::jsv_envs($name) }
proc jsv_get_env {name} {
    if {[jsv_is_env $name]} { return $::jsv_envs($name) }
    return ""
}
proc jsv_add_env {name value} {
    set ::jsv_envs($name) $value
    jsv_send_command "ENV ADD $name $value"
}
proc jsv_mod_env {name value} {
    set ::jsv_envs($name) $value
    jsv_send_command "ENV MOD $name $value"
}
proc jsv_set_env {name value} {
    if {[jsv_is_env $name]} { jsv_mod_env $name $value } else { jsv_add_env $name $value }
}
proc jsv_del_env {name} {
    if {![jsv_is_env $name]} { return }
    unset ::jsv_envs($name)
    jsv_send_command "ENV DEL $name"
}
proc jsv_show_envs {} {
    foreach name [lsort [array names ::jsv_envs]] { jsv_log_info "got env: $name=$::jsv_envs($name)" }
}

proc jsv__result {state message} {
    if {!$::jsv_is_verifying} { return }
    set ::jsv_is_verifying 0
    jsv_send_command [string trimright "RESULT STATE $state $message"]
}
proc jsv_accept {{message ""}} { jsv__result ACCEPT $message }
proc jsv_correct {{message ""}} { jsv__result CORRECT $message }
proc jsv_reject {{message ""}} { jsv__result REJECT $message }
proc jsv_reject_wait {{message ""}} { jsv__result REJECT_WAIT $message }
proc jsv_log_info {text} { jsv_send_command "LOG INFO $text" }
proc jsv_log_warning {text} { jsv_send_command "LOG WARNING $text" }
proc jsv_log_error {text} { jsv_send_command "LOG ERROR $text" }

# Splits a line after its first word.
proc jsv__split {line} {
    set space [string first " " $line]
    if {$space < 0} { return [list $line ""] }
    list [string range $line 0 [expr {$space - 1}]] [string range $line [expr {$space + 1}] end]
}

proc jsv_main {} {
    while {[gets stdin line] >= 0} {
        lassign [jsv__split $line] word rest
        switch -- $word {
            QUIT { return }
            START {
                jsv_clear_params
                jsv_clear_envs
                jsv_on_start
                jsv_send_command STARTED
            }
            PARAM {
                lassign [jsv__split $rest] name value
                set ::jsv_params($name) $value
            }
            ENV {
                lassign [jsv__split [lindex [jsv__split $rest] 1]] name value
                set ::jsv_envs($name) $value
            }
            BEGIN {
                set ::jsv_is_verifying 1
                jsv_on_verify
                jsv_accept
            }
            default { jsv_send_command "ERROR unknown command: $word" }
        }
    }
}
