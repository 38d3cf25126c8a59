# Functions for job submission verifiers in Perl: give jsv_on_start and jsv_on_verify a sub each, and call jsv_main.
#
#   use JSV qw( :DEFAULT );
#   jsv_on_start(sub { jsv_send_env() });
#   jsv_on_verify(sub {
#       my %params = jsv_get_param_hash();
#       if (exists $params{l_hard}{h_vmem}) { jsv_sub_del_param('l_hard', 'h_vmem'); return jsv_correct('no h_vmem') }
#       jsv_accept();
#   });
#   jsv_main();
#
# Subs of these names in main serve, too, in a script that imports neither: use JSV ();
package JSV;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT = qw(
    jsv_main jsv_on_start jsv_on_verify jsv_send_env jsv_get_param_hash jsv_get_env_hash jsv_clear_params jsv_clear_envs
    jsv_send_command jsv_set_env jsv_is_param jsv_get_param jsv_set_param jsv_del_param jsv_show_params
    jsv_sub_is_param jsv_sub_get_param jsv_sub_add_param jsv_sub_del_param
    jsv_is_env jsv_get_env jsv_add_env jsv_mod_env jsv_del_env jsv_show_envs
    jsv_accept jsv_correct jsv_reject jsv_reject_wait jsv_log_info jsv_log_warning jsv_log_error
);
our @EXPORT_OK = @EXPORT;
our %EXPORT_TAGS = (ALL => \@EXPORT);

our (%params, %envs, $verifying, $on_start, $on_verify);

# Parameters with lists of name=value, and with lists of values: hashes within jsv_get_param_hash.
my %is_list = map { $_ => 1 } qw(
    ac hold_jid hold_jid_ad l_hard l_soft M masterl masterq q_hard q_soft
);

# A line break within a value would be a command of its own.
sub _say {
    my $line = join(' ', map { defined $_ ? $_ : '' } @_);
    $line =~ tr/\r\n/  /;
    print STDOUT "$line\n";
}

sub jsv_on_start { ($on_start) = @_ }
sub jsv_on_verify { ($on_verify) = @_ }
sub jsv_send_command { _say(@_) }

# Copies: parameters are changed by functions alone.
sub jsv_get_param_hash {
    my %copy = %params;
    for my $list (grep { $is_list{$_} } keys %copy) {
        $copy{$list} = { map { my ($own, $value) = split /=/, $_, 2; ($own => $value) } _items($list) };
    }
    return %copy;
}
sub jsv_get_env_hash { my %copy = %envs; return %copy }
sub jsv_clear_params { %params = () }
sub jsv_clear_envs { %envs = () }

sub jsv_send_env { _say('SEND', 'ENV') }
sub jsv_is_param { exists $params{$_[0]} ? 1 : 0 }
sub jsv_get_param { $params{$_[0]} }
sub jsv_set_param { $params{$_[0]} = $_[1]; _say('PARAM', @_[0, 1]) }
sub jsv_del_param { delete $params{$_[0]}; _say('PARAM', $_[0], '') }
sub jsv_show_params { jsv_log_info("got param: $_=$params{$_}") for sort keys %params }

# Lists such as l_hard: name=value,name=value
sub _items { grep { length } split /,/, (defined $params{$_[0]} ? $params{$_[0]} : '') }
sub _name { (split /=/, $_[0], 2)[0] }

sub jsv_sub_is_param { my ($list, $name) = @_; (grep { _name($_) eq $name } _items($list)) ? 1 : 0 }

sub jsv_sub_get_param {
    my ($list, $name) = @_;
    for (_items($list)) { my ($own, $value) = split /=/, $_, 2; return $value if $own eq $name }
    return;
}

sub jsv_sub_add_param {
    my ($list, $name, $value) = @_;
    my $item = defined $value && length $value ? "$name=$value" : $name;
    jsv_set_param($list, join ',', (grep { _name($_) ne $name } _items($list)), $item);
}

sub jsv_sub_del_param {
    my ($list, $name) = @_;
    jsv_set_param($list, join ',', grep { _name($_) ne $name } _items($list));
}

sub jsv_is_env { exists $envs{$_[0]} ? 1 : 0 }
sub jsv_get_env { $envs{$_[0]} }
sub jsv_add_env { $envs{$_[0]} = $_[1]; _say('ENV', 'ADD', @_[0, 1]) }
sub jsv_mod_env { $envs{$_[0]} = $_[1]; _say('ENV', 'MOD', @_[0, 1]) }
sub jsv_set_env { jsv_is_env($_[0]) ? jsv_mod_env(@_) : jsv_add_env(@_) }
sub jsv_del_env { delete $envs{$_[0]}; _say('ENV', 'DEL', $_[0]) }
sub jsv_show_envs { jsv_log_info("got env: $_=$envs{$_}") for sort keys %envs }

sub _result {
    my ($state, $message) = @_;
    return unless $verifying;
    $verifying = 0;
    _say('RESULT', 'STATE', $state, defined $message && length $message ? $message : ());
}

sub jsv_accept { _result('ACCEPT', @_) }
sub jsv_correct { _result('CORRECT', @_) }
sub jsv_reject { _result('REJECT', @_) }
sub jsv_reject_wait { _result('REJECT_WAIT', @_) }
sub jsv_log_info { _say('LOG', 'INFO', @_) }
sub jsv_log_warning { _say('LOG', 'WARNING', @_) }
sub jsv_log_error { _say('LOG', 'ERROR', @_) }

# Calls a handler; without one, a sub that the script has defined under its name.
sub _call {
    my ($handler, $name) = @_;
    my $own = main->can($name);
    $handler = $own if !defined $handler && defined $own && $own != JSV->can($name);
    $handler->() if defined $handler;
}

sub jsv_main {
    $| = 1;
    while (defined(my $line = <STDIN>)) {
        chomp $line;
        my ($word, $rest) = split / /, $line, 2;
        $rest = '' unless defined $rest;
        if ($word eq 'QUIT') { return }
        elsif ($word eq 'START') {
            %params = %envs = ();
            _call($on_start, 'jsv_on_start');
            _say('STARTED');
        }
        elsif ($word eq 'PARAM') { my ($name, $value) = split / /, $rest, 2; $params{$name} = $value }
        elsif ($word eq 'ENV') { my (undef, $name, $value) = split / /, $rest, 3; $envs{$name} = $value }
        elsif ($word eq 'BEGIN') {
            $verifying = 1;
            _call($on_verify, 'jsv_on_verify');
            jsv_accept();
        }
        else { _say('ERROR', "unknown command: $word") }
    }
}

1;
