// SPDX-License-Identifier: BSD-2-Clause

package moonrail

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	targetSize = 4 << 20
	childName  = "TEST_TARGET_OF_MOONRAIL"
)

func TestMain(m *testing.M) {
	if os.Getenv(childName) != "" {
		if err := targetMain(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	status := m.Run()
	if shared != nil {
		shared.kill()
	}
	os.Exit(status)
}

// targetMain is the main function of the second process, which executes the
// commands on its standard input.
func targetMain() error {
	engine, err := New(Options{Name: "127.0.0.1"})
	if err != nil {
		return err
	}
	memory, err := engine.Alloc(targetSize)
	if err != nil {
		return err
	}
	if _, err := memory.RegisterPart(4096, 8192, "layer 1"); err != nil {
		return err
	}
	bytes := memory.Bytes()
	fmt.Println(engine.Name(), memory.Address())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var word string
		var offset, length, value int
		_, _ = fmt.Sscan(lines.Text(), &word, &offset, &length, &value)
		switch word {
		case "fill":
			for i := range bytes[offset : offset+length] {
				bytes[offset+i] = byte(value)
			}
			fmt.Println("done")
		case "show":
			fmt.Println(hex.EncodeToString(bytes[offset : offset+length]))
		case "notes":
			notes, err := engine.Notifications()
			if err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Print(note.Name, "=", note.Text, ";")
			}
			fmt.Println()
		case "binary":
			notes, err := engine.BinaryNotifications()
			if err != nil {
				return err
			}
			for _, note := range notes {
				fmt.Print(note.Name, "=", hex.EncodeToString(note.Data), ";")
			}
			fmt.Println()
		default:
			return fmt.Errorf("unknown command: %s", lines.Text())
		}
	}
	return nil
}

// target is a second process.
type target struct {
	t       *testing.T
	process *exec.Cmd
	input   io.Writer
	output  *bufio.Scanner
	name    string
	address uint64
}

// shared is the target of the tests that neither stop nor kill it.
var shared *target

// sharedTarget returns the target of the tests that neither stop nor kill it. Its memory is
// zero.
func sharedTarget(t *testing.T) *target {
	t.Helper()
	if shared == nil {
		shared = launchTarget(t)
	}
	shared.t = t
	shared.ask("fill", 0, targetSize, 0)
	return shared
}

// startTarget starts a target that the test may stop or kill.
func startTarget(t *testing.T) *target {
	t.Helper()
	one := launchTarget(t)
	t.Cleanup(one.kill)
	return one
}

func launchTarget(t *testing.T) *target {
	t.Helper()
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), childName+"=1")
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	must(t, err)
	output, err := process.StdoutPipe()
	must(t, err)
	must(t, process.Start())
	one := &target{t: t, process: process, input: input, output: bufio.NewScanner(output)}
	one.output.Buffer(nil, 16<<20)
	_, err = fmt.Sscan(one.answer(), &one.name, &one.address)
	must(t, err)
	return one
}

func (o *target) answer() string {
	o.t.Helper()
	if !o.output.Scan() {
		o.t.Fatal("the target has ended")
	}
	return strings.TrimSpace(o.output.Text())
}

func (o *target) ask(words ...any) string {
	o.t.Helper()
	fmt.Fprintln(o.input, words...)
	return o.answer()
}

func (o *target) show(offset, length int) string {
	o.t.Helper()
	bytes, err := hex.DecodeString(o.ask("show", offset, length))
	must(o.t, err)
	return string(bytes)
}

func (o *target) signal(s syscall.Signal) {
	o.t.Helper()
	must(o.t, o.process.Process.Signal(s))
}

// stop sends SIGSTOP to the process, which continues for a moment until it has
// handled the signal.
func (o *target) stop() {
	o.t.Helper()
	o.signal(syscall.SIGSTOP)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.process.Process.Pid))
		must(o.t, err)
		if strings.Contains(string(stat), ") T ") {
			return
		}
		runtime.Gosched()
	}
}

func (o *target) kill() {
	_ = o.process.Process.Kill()
	_ = o.process.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, condition bool, format string, args ...any) {
	t.Helper()
	if !condition {
		t.Fatalf(format, args...)
	}
}

func waitUntil(t *testing.T, condition func() bool) {
	t.Helper()
	until := time.Now().Add(40 * time.Second)
	for !condition() {
		want(t, time.Now().Before(until), "the condition is not met")
		time.Sleep(5 * time.Millisecond)
	}
}

func pattern(seed, length int) string {
	bytes := make([]byte, length)
	for i := range bytes {
		bytes[i] = byte(seed*31 + i*7)
	}
	return string(bytes)
}
