#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-2-Clause
#
# Checks that the names in docs/ exist: each file name (x.c, x.h, x.sh, x.pl) is that
# of a file in the tree, each path is that of a file or folder, and each identifier
# with an underscore or a call's parentheses occurs in the sources. In "name (x.c)"
# and "x.c: name", x.c must define the function, or have the name if it is not one.
#
#   docs.pl        checks the tree below $SRC
use strict;
use warnings;
use File::Find ();

my $root = $ENV{SRC} or die "check-docs: SRC is not set\n";
my (%file, @docs, %defined, %text);
# Examples of names for tests.
my %word = map { $_ => 1 } qw(subject_condition_result
	submit_with_length_zero_is_refused write_survives_cut_rail);

File::Find::find({ no_chdir => 1, wanted => sub {
	my $path = substr $_, length $root;
	return if $path =~ m{^/(?:build|\.git)(?:/|$)} || !-f;
	$path =~ s{^/}{};
	$file{$path} = $file{ $path =~ s{.*/}{}r } = 1;
	push @docs, $path if $path =~ m{^docs/.*\.md$};
	return if $path =~ /\.md$/;
	open my $in, '<:raw', $_ or die "check-docs: $_: $!\n";
	local $/;
	my $text = <$in>;
	$word{$_} = 1 for $text =~ /\b[A-Za-z_]\w*\b/g;
	my $name = $path =~ s{.*/}{}r;
	$text{$name} .= $text;
	return unless $path =~ /\.c$/;
	while ($text =~ /^(?![\s#*\/}])[^;{}=()]*?\b(\w+)\([^;{}]*\)[^;{}()]*(?:\([^;{}]*\)[^;{}()]*)*\{/gm) {
		$defined{$1}{$name} = 1;
	}
} }, $root);

# Returns true if the file defines the function, or has the name of something else.
sub is_home
{
	my ($name, $home) = @_;
	return $defined{$name}{$home} if $defined{$name} && $home =~ /\.c$/;
	return $text{$home} =~ /\b\Q$name\E\b/;
}

my $bad = 0;
for my $doc (sort @docs) {
	open my $in, '<:encoding(UTF-8)', "$root/$doc" or die "check-docs: $doc: $!\n";
	while (my $line = <$in>) {
		# In a table, a placeholder such as <module>_<noun>_test.c has brackets.
		for my $name ($line =~ m{(?<![\w<>*/.-])([\w./-]*\w\.(?:c|h|sh|pl|mk|map))\b}g) {
			next if $file{$name} || -e "$root/$name";
			print STDERR "check-docs: $doc:$.: there is no file $name\n";
			$bad = 1;
		}
		for my $name ($line =~ /(?<![\w<>*\/.])([a-z]\w*_\w+)(?![\w*<>]|\.\w)/g) {
			next if $word{$name} || $file{$name};
			print STDERR "check-docs: $doc:$.: nothing is called $name\n";
			$bad = 1;
		}
		my @pairs;
		push @pairs, [$1, $2] while $line =~
			m{([a-z]\w*_\w+)(?:\(\))?`?,? \(`?(?:[\w/]+/)?(\w+\.[ch])`?[,:)]}g;
		while ($line =~ m{(\w+\.[ch])`: ((?:`\w+`(?:, | and )?)+)}g) {
			my ($home, $names) = ($1, $2);
			push @pairs, [$_, $home] for $names =~ /\w+_\w+/g;
		}
		for my $pair (@pairs) {
			my ($name, $home) = @$pair;
			next if !defined $text{$home} || is_home($name, $home);
			print STDERR "check-docs: $doc:$.: $home does not define $name\n";
			$bad = 1;
		}
	}
}
print "check-docs: fine\n" if !$bad;
exit $bad;
