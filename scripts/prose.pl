#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-2-Clause
#
# Searches comments, strings, man pages and documents for the expressions listed in
# prose_words, which make a text hard to read.
#
#   prose.pl                checks the tree below $SRC against the limit below
#   prose.pl FILE...        prints the hits of these files
#
# Zero hits do not prove that a text is good: the list only finds known faults.
use strict;
use warnings;
use File::Basename qw(basename dirname);
use File::Find ();

# Greatest number of hits per 1000 lines of a folder.
my $goal = 0.5;

my @words;

sub read_words
{
	my ($path) = @_;
	open my $in, '<:encoding(UTF-8)', $path or die "check-prose: $path: $!\n";
	while (<$in>) {
		chomp;
		next if /^(?:#|\s*$)/;
		my ($expression, $reason) = /^(.*?)\t+([^\t]+)$/
			or die "check-prose: $path:$.: no tab before a reason\n";
		push @words, [qr/$expression/i, $reason];
	}
	@words or die "check-prose: $path: no expression\n";
}

# Returns the reason if the line holds an expression of the list, otherwise undef.
sub reason
{
	my ($line) = @_;
	# Names of the code are no part of the sentence.
	$line =~ s/`[^`]*`|\w+->\w+//g;
	for my $word (@words) {
		return $word->[1] if $line =~ $word->[0];
	}
	return undef;
}

sub line_of
{
	my ($text, $offset) = @_;
	return 1 + (substr($text, 0, $offset) =~ tr/\n//);
}

# Returns [line number, text] of each comment line and of each string that is long
# enough to be a sentence.
sub lines_of_c
{
	my ($text) = @_;
	my @found;
	while ($text =~ m{
		/\*(?<block>.*?)\*/ | //(?<line>[^\n]*) |
		"(?<string>(?:[^"\\\n]|\\.)*)" | '(?:[^'\\\n]|\\.)+'
	}gsx) {
		my $number = line_of($text, $-[0]);
		if (defined $+{string}) {
			push @found, [$number, $+{string}] if length $+{string} >= 12;
			next;
		}
		for my $line (split /\n/, $+{block} // $+{line} // '', -1) {
			$line =~ s/^[\s*]+|[\s*]+$//g;
			push @found, [$number++, $line];
		}
	}
	return @found;
}

sub lines_of_text
{
	my ($text, $wanted) = @_;
	my ($number, @found) = 0;
	for my $line (split /\n/, $text, -1) {
		$number++;
		push @found, [$number, $line] if $line =~ $wanted;
	}
	return @found;
}

# Returns [line number, text, reason] of each hit, and the number of lines.
sub hits
{
	my ($path) = @_;
	open my $in, '<:encoding(UTF-8)', $path or die "check-prose: $path: $!\n";
	my $text = do { local $/; <$in> } // '';
	my @lines = $path =~ /\.(?:[ch]|cc|hpp|rs|go)$/ ? lines_of_c($text) :
		$path =~ /\.(?:md|[1-8])$|NEWS$/ ? lines_of_text($text, qr/^(?!\.\\"|\.TH)/) :
		lines_of_text($text, qr/^\s*#/);
	my @hits;
	for my $line (@lines) {
		my $why = reason($line->[1]);
		push @hits, [@$line, $why] if defined $why;
	}
	return (\@hits, ($text =~ tr/\n//));
}

sub is_text
{
	my ($path) = @_;
	return 0 if basename($path) eq 'prose_words';
	return $path =~ m{\.(?:[ch]|cc|hpp|rs|go|py|md|[1-8]|sh|mk|awk)$} ||
		$path =~ m{(?:^|/)(?:NEWS|Makefile|configure|run)$} ||
		$path =~ m{(?:^|/)scripts/(?:check|abi)_[a-z]+$};
}

sub folder_of
{
	my ($path) = @_;
	return $1 if $path =~ m{^(prov/[^/]+|[^/]+)/};
	return 'top';
}

sub show
{
	my ($path, $hits) = @_;
	binmode STDERR, ':encoding(UTF-8)';
	printf STDERR "%s:%d: %s   [%s]\n", $path, $_->[0],
		substr($_->[1] =~ s/^\s+//r, 0, 110), $_->[2] for @$hits;
}

# Checks the list and the readers of files on planted lines.
sub self_test
{
	my %planted = (
		'/* The lane, of what is posted. */' => 1,
		"/*\n * Nobody waits for it.\n */" => 1,
		'x = "it waits in vain for it";' => 1,
		'x = "// in vain";' => 0,	# too short for a sentence
		'/* Returns true if the queue is full. */' => 0,
		'int nobody;' => 0,
		'/* the user who calls it */' => 0,
		'/* no more than 4 */' => 0,
		'/* it waits no more */' => 1,
	);
	for my $code (sort keys %planted) {
		my $found = grep { defined reason($_->[1]) } lines_of_c($code);
		$found == $planted{$code} or
			die "check-prose: self-test: '$code' has $found hits\n";
	}
}

read_words(dirname($0) . '/prose_words');
self_test();

if (@ARGV) {
	my $total = 0;
	for my $path (@ARGV) {
		my ($hits) = hits($path);
		show($path, $hits);
		$total += @$hits;
	}
	print "check-prose: $total hits\n";
	exit 0;
}

chdir($ENV{SRC} // '.') or die "check-prose: $ENV{SRC}: $!\n";
my (%hits, %lines, %files);
File::Find::find({ no_chdir => 1, wanted => sub {
	my $path = $File::Find::name =~ s{^\./}{}r;
	if (-d $_ && $path =~ m{^(?:\.git|build)$|/build$}) {
		$File::Find::prune = 1;
		return;
	}
	return unless -f $_ && is_text($path);
	my ($found, $lines) = hits($path);
	my $folder = folder_of($path);
	$hits{$folder} += @$found;
	$lines{$folder} += $lines;
	$files{$folder}{$path} = $found;
} }, '.');

my $bad = 0;
for my $folder (sort keys %lines) {
	my $rate = 1000 * $hits{$folder} / ($lines{$folder} || 1);
	printf "%-16s %5d hits %7d lines %6.2f per 1000 (limit %.1f)\n", $folder,
		$hits{$folder}, $lines{$folder}, $rate, $goal if $ENV{V};
	next if $rate <= $goal;
	$bad = 1;
	show($_, $files{$folder}{$_}) for sort keys %{$files{$folder}};
	printf STDERR "check-prose: %s: %d hits in %d lines, %.1f per 1000 (limit %.1f)\n",
		$folder, $hits{$folder}, $lines{$folder}, $rate, $goal;
}
print "check-prose: fine\n" unless $bad;
exit $bad;
