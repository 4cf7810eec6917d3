#!/usr/bin/env perl
# SPDX-License-Identifier: BSD-2-Clause
#
# Measures the structure of the sources and fails if something is worse than the
# limits below:
#
#   circle    In each folder, the number of files of the largest circle: files
#             that call each other, directly or through other files of the folder.
#             Unit tests are left out.
#   header    The number of lines of each header that is not installed.
#   struct    The number of members of each struct. The members of a struct or
#             union inside it count as those of the inner one.
#   name      Two source files of the library that have the same name. An archive
#             names its objects without their folders, so "ar x" writes one over
#             the other, and a backtrace does not say which file is meant.
#
#   structure.pl            checks the tree below $SRC
#   structure.pl --show     prints all figures that are above a goal, and the circles
#
# The sources are read as text. A function belongs to the file that defines it without
# "static"; a file calls another one if it has a name of its functions before a
# parenthesis.
use strict;
use warnings;
use File::Find ();

my %goal = (circle => 8, header => 400, struct => 40);

# Figures that are above their goal at present. None may get worse; when one gets better,
# its limit is lowered or its row deleted. The limits of headers leave room for
# comments.
my %limit = (
);

my @folders = qw(util topo meta prov/rail prov/moonrail prov/local prov/nvmeof
	prov/gpu prov/staging api);

my (%text, %figure, %circle);

sub without_comments
{
	my ($text) = @_;
	$text =~ s{
		(?<keep>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+') | /\*.*?\*/ | //[^\n]*
	}{defined $+{keep} ? '""' : ' '}gesx;
	return $text;
}

sub read_tree
{
	my ($root) = @_;
	File::Find::find({ no_chdir => 1, wanted => sub {
		return unless -f && /\.[ch]$/;
		my $path = substr $_, length("$root/");
		open my $in, '<:encoding(UTF-8)', $_ or die "check-structure: $_: $!\n";
		local $/;
		$text{$path} = <$in>;
	} }, grep { -d } map { "$root/$_" } @folders, 'tools');
	die "check-structure: no sources below $root\n" unless %text;
}

# Returns, for each file of the folder, the files that it calls.
sub calls
{
	my ($folder) = @_;
	my @files = grep { m{^\Q$folder\E/} && /\.c$/ && !/_test(?:_main|_util)?\.c$/ }
		sort keys %text;
	my (%home, %code, %calls);
	for my $file (@files) {
		$code{$file} = without_comments($text{$file});
		while ($code{$file} =~ /^(?!static\b|typedef\b|\#)[A-Za-z_][\w\s*]*?
				\b(\w+)\([^;{}]*\)[^;{}()]*(?:\([^;{}]*\)[^;{}()]*)*\{/gmx) {
			$home{$1} //= $file;
		}
	}
	for my $file (@files) {
		$calls{$file} = {};
		while ($code{$file} =~ /\b(\w+)\s*\(/g) {
			my $to = $home{$1};
			$calls{$file}{$to} = 1 if defined $to && $to ne $file;
		}
	}
	return \%calls;
}

# Returns the largest strongly connected component (R. Tarjan, Depth-first search and
# linear graph algorithms, 1972).
sub largest_circle
{
	my ($calls) = @_;
	my (%index, %low, %on, @stack, @largest);
	my $count = 0;
	my $visit;
	$visit = sub {
		my ($file) = @_;
		$index{$file} = $low{$file} = $count++;
		push @stack, $file;
		$on{$file} = 1;
		for my $to (sort keys %{ $calls->{$file} }) {
			$visit->($to) unless defined $index{$to};
			$low{$file} = $low{$to} if $on{$to} && $low{$to} < $low{$file};
		}
		return if $low{$file} != $index{$file};
		my @part;
		do {
			push @part, pop @stack;
			delete $on{ $part[-1] };
		} while $part[-1] ne $file;
		@largest = @part if @part > @largest;
	};
	for my $file (sort keys %$calls) {
		$visit->($file) unless defined $index{$file};
	}
	return sort @largest;
}

# Returns the number of members of a struct's body.
sub members
{
	my ($body) = @_;
	my $count = 0;
	# Inner bodies, array sizes and the arguments of attributes and pointers to functions.
	1 while $body =~ s/\{[^{}]*\}//g;
	1 while $body =~ s/\([^()]*\)//g;
	for my $member (split /;/, $body) {
		$count += 1 + ($member =~ tr/,//) if $member =~ /\w/;
	}
	return $count;
}

sub measure_structs
{
	my ($path) = @_;
	my $code = without_comments($text{$path});
	$code =~ s/^\s*#.*(?:\\\n.*)*//gm;
	while ($code =~ /\bstruct\s+(\w+)\s*(?=(\{(?:[^{}]++|(?2))*\}))/g) {
		my ($name, $body) = ($1, $2);
		$figure{"struct $name"} = members(substr $body, 1, -1);
	}
}

sub measure
{
	for my $folder (@folders) {
		my @circle = largest_circle(calls($folder));
		$circle{$folder} = \@circle;
		$figure{"circle $folder"} = scalar @circle;
	}
	for my $path (sort keys %text) {
		measure_structs($path);
		next if $path !~ /\.h$/ ||
			$path =~ m{^api/(?:cxx/|(?:moonrail|transfer_engine_c)\.h$)};
		$figure{"header $path"} = ($text{$path} =~ tr/\n//);
	}
}

# Returns a line for each file name that several source files have.
sub same_names
{
	my %paths;
	for my $path (sort grep { /\.c$/ && !m{^tools/} } keys %text) {
		push @{ $paths{ $path =~ s{.*/}{}r } }, $path;
	}
	return map { "name $_: @{ $paths{$_} }" }
		grep { @{ $paths{$_} } > 1 } sort keys %paths;
}

# A search that finds nothing would pass: these have to be found.
sub check_itself
{
	%text = (
		'util/a.c' => "int a(void)\n{\n\treturn b();\n}\n",
		'util/b.c' => "/* c( */\nint b(void)\n{\n\treturn c();\n}\n",
		'util/c.c' => "int c(void) TEI_REQUIRES(lock)\n{\n\treturn \"(\"[0] + a();\n}\n",
		'util/d.c' => "int d(void)\n{\n\treturn a();\n}\nstatic int b(void)\n{\n}\n",
		'util/d.h' => "struct d {\n\tint x, *y[2];\n\tstruct { int z; } in;\n" .
			"\tint (*call)(int, int); /* int no; */\n};\n",
	);
	measure();
	my %want = ('circle util' => 3, 'struct d' => 4, 'header util/d.h' => 5);
	for my $key (sort keys %want) {
		my $found = $figure{$key} // 'nothing';
		$found eq $want{$key} or
			die "check-structure: $key: found $found instead of $want{$key}\n";
	}
	$text{'topo/a.c'} = '';
	my $same = join ' ', same_names();
	$same eq 'name a.c: topo/a.c util/a.c' or
		die "check-structure: same names: found \"$same\"\n";
	%text = %figure = %circle = ();
}

check_itself();
my $root = $ENV{SRC} // '.';
my $show = @ARGV && $ARGV[0] eq '--show';
my $failed = 0;
read_tree($root);
measure();
for my $key (sort keys %figure) {
	my ($kind) = split / /, $key;
	my $most = $limit{$key} // $goal{$kind};
	if ($figure{$key} > $most) {
		print "check-structure: $key: $figure{$key}, at most $most\n";
		$failed = 1;
	}
	printf "%-44s %5d (goal %d)\n", $key, $figure{$key}, $goal{$kind}
		if $show && $figure{$key} > $goal{$kind};
}
for my $same (same_names()) {
	print "check-structure: $same; rename one of them\n";
	$failed = 1;
}
for my $key (sort keys %limit) {
	my ($kind) = split / /, $key;
	next if defined $figure{$key} && $figure{$key} > $goal{$kind};
	print "check-structure: $key: is at its goal; delete its row in $0\n";
	$failed = 1;
}
if ($show) {
	print "$_: @{ $circle{$_} }\n" for grep { @{ $circle{$_} } > 1 } @folders;
}
print "check-structure: fine\n" unless $failed;
exit $failed;
