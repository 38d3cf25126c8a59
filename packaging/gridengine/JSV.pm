# Functions for job submission verifiers in Perl. Give jsv_on_start and jsv_on_verify a function each, or define main's own of these
# names without importing them, and call jsv_main:
#
#   use JSV;
#   jsv_on_start(sub { jsv_send_env() });
#   jsv_on_verify(sub {
#       my %params = jsv_get_param_hash();
#       if (exists $params{l_hard}{h_vmem}) { jsv_sub_del_param('l_hard', 'h_vmem'); jsv_correct('no h_vmem'); }
#   });
#   jsv_main();
package JSV;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT = qw(
    jsv_main jsv_on_start jsv_on_verify jsv_get_param_hash jsv_get_env_hash
    jsv_send_command jsv_send_env jsv_is_param jsv_get_param jsv_set_param jsv_del_param jsv_show_params
    jsv_sub_is_param jsv_sub_get_param jsv_sub_add_param jsv_sub_del_param
    jsv_is_env jsv_get_env jsv_add_env jsv_mod_env jsv_del_env jsv_show_envs
    jsv_accept jsv_correct jsv_reject jsv_reject_wait jsv_log_info jsv_log_warning jsv_log_error
);
our @EXPORT_OK = @EXPORT;
our %EXPORT_TAGS = (ALL => \@EXPORT);

our (%params, %envs, $verifying, %functions);

# Parameters that are lists of names, or of name=value.
our %LISTS = map { $_ => 1 } qw(ac l_hard l_soft q_hard q_soft masterq M hold_jid hold_jid_ad dc sc);

sub _say { print STDOUT join(' ', map { defined $_ ? $_ : '' } @_), "\n" }

sub jsv_on_start { $functions{jsv_on_start} = $_[0] }
sub jsv_on_verify { $functions{jsv_on_verify} = $_[0] }
sub jsv_send_command { _say(@_) }

# All parameters; those that are lists are references to hashes of what they have.
sub jsv_get_param_hash {
    my %all = %params;
    for my $list (grep { $LISTS{$_} } keys %all) {
        my %items = map { my ($name, $value) = split /=/, $_, 2; ($name => $value) } _items($list);
        $all{$list} = \%items;
    }
    return %all;
}

sub jsv_get_env_hash { return %envs }

# Calls what was given, else main's own function of this name.
sub _call {
    my ($name) = @_;
    no strict 'refs';
    my $own = defined &{"main::$name"} ? \&{"main::$name"} : undef;
    my $function = $functions{$name} || ($own && $own != \&{$name} ? $own : undef);
    $function->() if $function;
}

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

sub jsv_main {
    $| = 1;
    while (defined(my $line = <STDIN>)) {
        chomp $line;
        my ($word, $rest) = split / /, $line, 2;
        $rest = '' unless defined $rest;
        if ($word eq 'QUIT') { return }
        elsif ($word eq 'START') {
            %params = %envs = ();
            _call('jsv_on_start');
            _say('STARTED');
        }
        elsif ($word eq 'PARAM') { my ($name, $value) = split / /, $rest, 2; $params{$name} = $value }
        elsif ($word eq 'ENV') { my (undef, $name, $value) = split / /, $rest, 3; $envs{$name} = $value }
        elsif ($word eq 'BEGIN') {
            $verifying = 1;
            _call('jsv_on_verify');
            jsv_accept();
        }
        else { _say('ERROR', "unknown command: $word") }
    }
}

1;
